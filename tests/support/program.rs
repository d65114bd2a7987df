//! The program itself, as a process of its own.

use std::path::Path;

use tokio::process::Command;

/// `lanekeeper`, with nothing around it that would configure it, killed with its handle.
pub fn lanekeeper() -> Command {
    alone(Command::new(env!("CARGO_BIN_EXE_lanekeeper")))
}

/// Another build of it.
pub fn lanekeeper_at(path: &Path) -> Command {
    alone(Command::new(path))
}

/// The same, started by another program that takes a command line.
pub fn lanekeeper_by(starter: &[&str]) -> Command {
    let mut command = Command::new(starter[0]);
    command
        .args(&starter[1..])
        .arg(env!("CARGO_BIN_EXE_lanekeeper"));
    alone(command)
}

fn alone(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let configures = ["LANEKEEPER_", "PG", "OTEL_"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
            || ["DATABASE_URL", "REDIS_URL", "RUST_LOG"].contains(&text.as_ref())
            // Where the spool is: a worker would send it, to the test's database.
            || ["HOME", "XDG_STATE_HOME"].contains(&text.as_ref());
        if configures {
            command.env_remove(&name);
        }
    }
    // In place of a lanekeeper.toml of whoever runs the tests.
    command.env("LANEKEEPER_CONFIG", "/dev/null");
    command.kill_on_drop(true);
    command
}
