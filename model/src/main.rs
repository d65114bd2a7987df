//! Runs the checker over all scenarios, or over those that are named, and says what it found.

use std::process::ExitCode;
use std::time::Instant;

use lanekeeper_model::{recovery, scenarios};
use stateright::{Checker, Model};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut failed = false;
    for mut named in scenarios::small().into_iter().chain(scenarios::large()) {
        named.scenario.alike = true;
        if !wanted.is_empty() && !wanted.contains(&named.name) {
            continue;
        }
        let started = Instant::now();
        let checker = named
            .scenario
            .clone()
            .checker()
            .threads(2)
            .spawn_bfs()
            .join();
        let recovery = recovery::check(&named.scenario);
        println!(
            "{:32} {:>9} states {:>10} steps {:>6.1} s",
            named.name,
            checker.unique_state_count(),
            checker.state_count(),
            started.elapsed().as_secs_f64()
        );
        let mut broken = checker.discoveries();
        broken.retain(|property, _| !named.excuses(property));
        for (property, path) in broken {
            failed = true;
            println!("  broken: {property}\n    {:?}", path.into_actions());
        }
        for stuck in recovery.stuck {
            failed = true;
            println!("  stuck: {:?}\n    {:?}", stuck.goal, stuck.steps);
        }
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
