//! Ordered delivery of a backlog that is there when the worker starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::cost::{self, Cost, Reading};
use super::measure::{Pairs, per_second};
use super::report::{Comparison, Costs, Line};
use super::sink::{Sink, Source};
use super::{Backlog, BenchError, Options, Scratch, backlog, progress, row_queue};
use crate::engine::Worker;

/// What is drained, and by what worker.
#[derive(Clone, Copy)]
pub struct Case {
    backlog: Backlog,
    /// Lanes that the worker and the subscription have room for; `None`: as they are configured.
    lanes: Option<u32>,
    target: Option<f64>,
}

/// Deep lanes; the worst case, a lane per event; and that by a worker with less room, as one of several has it.
const CASES: [Case; 3] = [
    Case {
        backlog: Backlog {
            sessions: 5_000,
            events: 20,
        },
        lanes: None,
        target: Some(5.0),
    },
    Case {
        backlog: Backlog {
            sessions: 100_000,
            events: 1,
        },
        lanes: None,
        target: Some(1.0),
    },
    Case {
        backlog: Backlog {
            sessions: 100_000,
            events: 1,
        },
        lanes: Some(512),
        target: None,
    },
];

pub fn cases(options: &Options) -> Vec<Case> {
    match options.drain {
        Some(backlog) => vec![Case {
            backlog,
            lanes: None,
            target: None,
        }],
        None => CASES.into(),
    }
}

pub async fn measure(
    scratch: &Scratch,
    options: &Options,
    case: Case,
) -> Result<Vec<Line>, BenchError> {
    let Case {
        backlog, target, ..
    } = case;
    let mut options = options.clone();
    let mut name = backlog.to_string();
    if let Some(lanes) = case.lanes {
        options.worker.max_lanes = Some(lanes as usize);
        options.concurrency = lanes;
        name = format!("{name}, room for {lanes} lanes");
    }
    let options = &options;
    let (mut alike, mut flushed) = (Pairs::default(), Pairs::default());
    let (mut costs, mut references) = (Vec::new(), Vec::new());
    for run in 1..=options.runs() {
        progress(&format!("drain {name}, run {run} of {}", options.runs()));
        let (value, cost) = drain(scratch, options, backlog).await?;
        costs.push(cost);
        let jobs = backlog.total();
        let (reference, cost) = row_queue::drain(scratch, jobs, "off").await?;
        references.push(cost);
        alike.push(value, reference);
        flushed.push(value, row_queue::drain(scratch, jobs, "on").await?.0);
    }
    let line = |pairs, commit: &str, target| {
        let connections = row_queue::CONNECTIONS;
        let against = format!(
            "row queue without order, {connections} connections, synchronous_commit {commit}"
        );
        Line::Comparison(Comparison::new(
            ("drain", name.clone()),
            against,
            pairs,
            target,
        ))
    };
    Ok(vec![
        line(alike, "off as in the engine", target),
        line(flushed, "on", None),
        Line::Costs(Costs {
            bench: "drain".to_owned(),
            case: name.clone(),
            value: cost::median(&costs),
            against: "row queue".to_owned(),
            reference: cost::median(&references),
            place: None,
        }),
    ])
}

/// How long ago the first lane connection was open: its first claim is the next thing that it does.
const OPEN_FOR: &str = "
    SELECT extract(epoch FROM clock_timestamp() - min(c.opened_at))::float8 FROM lanekeeper.lane_connection AS c";

/// Events per second, from the first claim to the last settlement, and what each cost.
pub async fn drain(
    scratch: &Scratch,
    options: &Options,
    backlog: Backlog,
) -> Result<(f64, Cost), BenchError> {
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    backlog::load(scratch, "s", backlog).await?;
    drain_loaded(scratch, options, Arc::default(), backlog.total()).await
}

/// Starts a worker on what is loaded and waits until `events` more are delivered and settled.
pub async fn drain_loaded(
    scratch: &Scratch,
    options: &Options,
    sink: Arc<Sink>,
    events: usize,
) -> Result<(f64, Cost), BenchError> {
    sink.expect(events);
    let watcher = scratch.connect().await?;
    let reading = Reading::take(&watcher).await?;
    let source = Arc::new(Source::new(Arc::clone(&sink)));
    let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
    sink.wait().await?;
    let ended_at = backlog::settled(&watcher).await?;
    let started_at = claims_since(&watcher).await?;
    let cost = reading.cost(&watcher, events).await?;
    worker.stop().await;
    backlog::check_drained(&watcher, sink.accepted(), events).await?;
    Ok((per_second(events, ended_at - started_at), cost))
}

/// When the worker could claim; rather too early than too late.
async fn claims_since(client: &Client) -> Result<Instant, BenchError> {
    let asked_at = Instant::now();
    let open_for = client
        .query_one(OPEN_FOR, &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(BenchError::on("asking since when lanes were claimed"))?;
    Ok(asked_at - Duration::from_secs_f64(open_for))
}
