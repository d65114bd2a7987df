//! The usual drain in a database with something else in it, against the same drain alone (I3, I9).

use std::sync::Arc;

use lanekeeper_engine::Worker;

use super::drain::{self, Running};
use super::measure::Pairs;
use super::report::{Comparison, Line};
use super::sink::{BLOCKED, Sink, Source};
use super::{Backlog, BenchError, Options, Scratch, backlog, progress};

/// What is drained.
const USUAL: Backlog = Backlog {
    sessions: 5_000,
    events: 20,
};
const BASE: &str = "beside";
const ALONE: &str = "alone";
pub const TARGET: f64 = 0.95;

/// Lanes whose head failed and is not due for a day, each with its backlog.
pub async fn blocked(
    scratch: &Scratch,
    options: &Options,
    blocked: Backlog,
) -> Result<Line, BenchError> {
    progress(&format!("blocked-backlog, loading {blocked}"));
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    backlog::load(scratch, BLOCKED, blocked).await?;
    block(scratch, options, blocked.sessions).await?;
    scratch.freeze(BASE).await?;
    let beside = format!("{blocked} blocked");
    let line = measure(scratch, options, "blocked-backlog", &beside).await?;
    Ok(Line::Comparison(line.at("blocked lanes", blocked.sessions)))
}

/// Lanes with nothing to do: all that their sessions hold is settled.
pub async fn resting(scratch: &Scratch, options: &Options) -> Result<Line, BenchError> {
    let resting = Backlog {
        sessions: options.resting,
        events: 1,
    };
    progress(&format!("resting, loading {} lanes", options.resting));
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    backlog::load(scratch, "rest", resting).await?;
    progress("resting, delivering them");
    drain::deliver(scratch, options, resting.total()).await?;
    scratch.freeze(BASE).await?;
    let beside = format!("{} resting lanes", options.resting);
    let line = measure(scratch, options, "resting", &beside).await?;
    Ok(Line::Comparison(line.at("resting lanes", options.resting)))
}

/// Lets every head fail once: its lane's token is far in the future then.
async fn block(scratch: &Scratch, options: &Options, lanes: usize) -> Result<(), BenchError> {
    let sink = Arc::new(Sink::default());
    sink.expect(lanes);
    let source = Arc::new(Source::new(Arc::clone(&sink)));
    let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
    sink.wait().await?;
    // Hands back what it still has to settle.
    worker.stop().await;
    Ok(())
}

/// Runs in copies of the base and of an empty database, in turn.
async fn measure(
    scratch: &Scratch,
    options: &Options,
    bench: &str,
    beside: &str,
) -> Result<Comparison, BenchError> {
    let usual = options.drain.unwrap_or(USUAL);
    // A copy too: whatever copying does to caches and disk weighs on both.
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    scratch.freeze(ALONE).await?;
    let mut pairs = Pairs::default();
    for run in 1..=options.runs() {
        progress(&format!(
            "{bench}, {beside}, run {run} of {}",
            options.runs()
        ));
        scratch.restore(BASE).await?;
        let value = rate(scratch, options, usual).await?;
        scratch.restore(ALONE).await?;
        pairs.push(value, rate(scratch, options, usual).await?);
    }
    let case = format!("{usual} beside {beside}");
    let against = "the same without them";
    Ok(Comparison::new((bench, case), against, pairs, Some(TARGET)))
}

/// Of a worker that has drained as much before.
async fn rate(scratch: &Scratch, options: &Options, usual: Backlog) -> Result<f64, BenchError> {
    backlog::load(scratch, "first", usual).await?;
    let (mut worker, _) = Running::start(scratch, options, usual.total()).await?;
    let (rate, _) = worker.drain(scratch, "then", usual).await?;
    worker.stop().await?;
    Ok(rate)
}
