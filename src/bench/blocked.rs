//! A drain beside many blocked lanes and their backlog, against the same drain alone (I3, I9).

use std::sync::Arc;

use super::measure::Pairs;
use super::report::{Comparison, Line};
use super::sink::{BLOCKED, Sink, Source};
use super::{Backlog, BenchError, Options, Scratch, backlog, drain, progress};
use crate::engine::Worker;

const OTHERS: Backlog = Backlog {
    sessions: 5_000,
    events: 20,
};
const TARGET: f64 = 0.95;

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Line, BenchError> {
    let mut pairs = Pairs::default();
    for run in 1..=options.runs {
        progress(&format!("blocked-backlog, run {run} of {}", options.runs));
        let beside = rate(scratch, options, Some(options.blocked)).await?;
        pairs.push(beside, rate(scratch, options, None).await?);
    }
    let case = format!("{OTHERS} beside {} blocked", options.blocked);
    let against = "the same without them";
    Ok(Line::Comparison(Comparison::new(
        ("blocked-backlog", case),
        against,
        pairs,
        Some(TARGET),
    )))
}

async fn rate(
    scratch: &Scratch,
    options: &Options,
    blocked: Option<Backlog>,
) -> Result<f64, BenchError> {
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    if let Some(blocked) = blocked {
        backlog::load(scratch, BLOCKED, blocked).await?;
        block(scratch, options, blocked.sessions).await?;
    }
    backlog::load(scratch, "s", OTHERS).await?;
    let (rate, _) = drain::drain_loaded(scratch, options, Arc::default(), OTHERS.total()).await?;
    Ok(rate)
}

/// Lets every head fail once: its lane's token is far in the future then.
async fn block(scratch: &Scratch, options: &Options, lanes: usize) -> Result<(), BenchError> {
    let sink = Arc::new(Sink::default());
    sink.expect(lanes);
    let watcher = scratch.connect().await?;
    let source = Arc::new(Source::new(Arc::clone(&sink)));
    let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
    sink.wait().await?;
    backlog::settled(&watcher).await?;
    worker.stop().await;
    Ok(())
}
