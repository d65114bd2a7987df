//! Latency under a load that a worker keeps up with.

use std::time::Duration;

use super::measure::median;
use super::paced::{self, Load};
use super::report::{Distribution, Line, Targets};
use super::{BenchError, Options, Scratch, progress};

const PER_SECOND: f64 = 1_000.0;
const TIME: Duration = Duration::from_secs(20);
const TARGETS: Targets = Targets {
    p50_ms: None,
    p99_ms: Some(10.0),
};

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Vec<Line>, BenchError> {
    let load = Load {
        per_second: options.rate.unwrap_or(PER_SECOND),
        hot: 0,
        sessions: options.paced_sessions,
        time: options.seconds.map_or(TIME, Duration::from_secs_f64),
    };
    let (mut answered, mut called, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=options.runs() {
        progress(&format!("steady, run {run} of {}", options.runs()));
        let measured = paced::run(scratch, options, load, false).await?;
        let rate = measured.windows.iter().map(|w| w.delivered_per_second);
        rates.push(rate.sum::<f64>() / measured.windows.len() as f64);
        let line = |samples, targets| Distribution::new("steady", "", samples, targets);
        answered.push(line(measured.all.from_answer, TARGETS));
        called.push(line(measured.all.from_call, Targets::default()));
    }
    let load = format!(
        "{:.0} of {:.0} events/s over {} sessions",
        median(&rates),
        load.per_second,
        load.sessions
    );
    let lines = [
        ("commit answered to delivery start", answered),
        ("enqueue called to delivery start", called),
    ];
    Ok(lines
        .into_iter()
        .map(|(case, runs)| {
            Line::Distribution(Distribution {
                case: format!("{case}, {load}"),
                ..middle(runs, |run| run.p99_ms)
            })
        })
        .collect())
}

/// The run with the median of a figure; the lower of the middle two.
pub fn middle<T>(mut runs: Vec<T>, figure: impl Fn(&T) -> f64) -> T {
    runs.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    runs.swap_remove((runs.len() - 1) / 2)
}
