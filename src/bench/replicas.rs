//! A drain by several worker processes on one server, against one of them.
//!
//! The subscription is paused until all are up, and the clock runs from the first claim: what is measured is
//! neither their start nor how they learn that they may.

use std::time::{Duration, Instant};

use lanekeeper_postgres::operate;
use tokio::process::Child;
use tokio::time::sleep;
use tokio_postgres::Client;

use super::cost::{self, Cost, Reading};
use super::measure::{Pairs, per_second};
use super::report::{Comparison, Costs, Line};
use super::{Backlog, BenchError, Options, Scratch, backlog, progress, worker_process};

/// What is drained.
const USUAL: Backlog = Backlog {
    sessions: 5_000,
    events: 60,
};
const BASE: &str = "replicas";
const AXIS: &str = "worker processes";
const UP_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Between the looks for the first claim.
const LOOK_CLOSELY: Duration = Duration::from_millis(1);
const RUNNING: &str = "
    SELECT count(DISTINCT w.worker_id) FROM lanekeeper.worker AS w WHERE w.state = 'running'";
const CLAIMED: &str = "SELECT EXISTS (SELECT FROM lanekeeper.claim)";

/// What one of them, or several, came to.
struct Drained {
    rate: f64,
    cost: Cost,
}

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Vec<Line>, BenchError> {
    let usual = options.drain.unwrap_or(USUAL);
    progress(&format!("replicas, loading {usual}"));
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    backlog::load(scratch, "s", usual).await?;
    let client = scratch.connect().await?;
    operate::pause_subscription(&client, backlog::SUBSCRIPTION, "until all workers are up").await?;
    drop(client);
    scratch.freeze(BASE).await?;

    let mut all: Vec<Vec<Drained>> = options.replicas.iter().map(|_| Vec::new()).collect();
    let mut ones = Vec::new();
    for run in 1..=options.runs() {
        // One worker first: all are compared with the one of their round.
        progress(&format!("replicas, 1, run {run} of {}", options.runs()));
        ones.push(drain(scratch, 1, usual).await?);
        for (workers, drained) in options.replicas.iter().zip(&mut all) {
            progress(&format!(
                "replicas, {workers}, run {run} of {}",
                options.runs()
            ));
            drained.push(drain(scratch, *workers, usual).await?);
        }
    }
    let mut lines = Vec::new();
    for (workers, drained) in options.replicas.iter().zip(&all) {
        let processes = if *workers == 1 {
            "process"
        } else {
            "processes"
        };
        let case = format!("{usual}, {workers} worker {processes}");
        let pairs = Pairs {
            values: drained.iter().map(|run| run.rate).collect(),
            references: ones.iter().map(|run| run.rate).collect(),
        };
        let comparison = Comparison::new(("replicas", case.clone()), "one", pairs, None);
        lines.push(Line::Comparison(comparison.at(AXIS, *workers)));
        let costs =
            |runs: &[Drained]| cost::median(&runs.iter().map(|run| run.cost).collect::<Vec<_>>());
        lines.push(Line::Costs(Costs {
            bench: "replicas".to_owned(),
            case,
            value: costs(drained),
            against: "one".to_owned(),
            reference: costs(&ones),
        }));
    }
    Ok(lines)
}

async fn drain(scratch: &Scratch, workers: usize, backlog: Backlog) -> Result<Drained, BenchError> {
    scratch.restore(BASE).await?;
    let client = scratch.connect().await?;
    let mut processes = (0..workers)
        .map(|_| worker_process::start(scratch))
        .collect::<Result<Vec<_>, _>>()?;
    all_up(&client, &mut processes).await?;
    let ids: Vec<u32> = processes.iter().filter_map(Child::id).collect();
    let reading = Reading::of(&client, &ids).await?;
    operate::resume_subscription(&client, backlog::SUBSCRIPTION).await?;
    let deadline = Instant::now() + UP_WITHIN;
    // A small backlog may be gone between two looks.
    while !holds(&client, CLAIMED).await? && !backlog::at_rest(&client).await? {
        worker_process::all_run(&mut processes)?;
        if Instant::now() > deadline {
            return Err(BenchError::Stalled {
                delivered: 0,
                expected: backlog.total() as u64,
                silent: UP_WITHIN,
            });
        }
        sleep(LOOK_CLOSELY).await;
    }
    let started_at = Instant::now();
    while !backlog::at_rest(&client).await? {
        worker_process::all_run(&mut processes)?;
        sleep(LOOK_EVERY).await;
    }
    let took = started_at.elapsed();
    let cost = Reading::of(&client, &ids)
        .await?
        .since(reading, backlog.total());
    for process in &mut processes {
        process.kill().await.map_err(BenchError::Spawn)?;
    }
    // What they delivered went to /dev/null: the cursors say that all of it did.
    backlog::check_drained(&client, backlog.total() as u64, backlog.total()).await?;
    Ok(Drained {
        rate: per_second(backlog.total(), took),
        cost,
    })
}

async fn all_up(client: &Client, processes: &mut [Child]) -> Result<(), BenchError> {
    let deadline = Instant::now() + UP_WITHIN;
    loop {
        worker_process::all_run(processes)?;
        let running: i64 = client
            .query_one(RUNNING, &[])
            .await
            .map_err(BenchError::on("looking for the workers"))?
            .get(0);
        if running as usize == processes.len() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(BenchError::NotUp {
                asked: processes.len(),
                running,
                within: UP_WITHIN,
            });
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn holds(client: &Client, question: &str) -> Result<bool, BenchError> {
    client
        .query_one(question, &[])
        .await
        .map(|row| row.get(0))
        .map_err(BenchError::on("looking for the first claim"))
}
