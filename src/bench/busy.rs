//! Single enqueues while ten workers listen and are busy, against the same without a worker.
//!
//! The workers hold as many lanes as they may, of deliveries that do not end: they take no time from the
//! producers, and want nothing of what these append. What they could cost is the doorbell and NOTIFY. Every
//! session is appended to twice: to an idle lane, which needs a token, and to one that has it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_engine::{Worker, WorkerSettings};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::types::Json;
use tokio_postgres::{Client, Statement};

use super::measure::{Pairs, per_second};
use super::report::{Comparison, Line};
use super::sink::Source;
use super::{Backlog, BenchError, Options, Scratch, backlog, beside, drain, prepare, progress};

const WORKERS: usize = 10;
/// Lanes that each of them holds.
const LANES: usize = 64;
pub const CLIENTS: [usize; 2] = [8, 1];
const BASE: &str = "busy";
const PREFIX: &str = "idle";
const ENDLESS: &str = "endless";
const ROUNDS: usize = 2;
const HELD_WITHIN: Duration = Duration::from_secs(30);
const ENQUEUE: &str = "SELECT seq FROM lanekeeper.enqueue($1, $2, 'message', $3)";

pub async fn measure(
    scratch: &Scratch,
    options: &Options,
    clients: usize,
) -> Result<Line, BenchError> {
    let sessions = options.busy_sessions;
    let name = match clients {
        1 => "1 client".to_owned(),
        n => format!("{n} clients"),
    };
    progress(&format!("enqueue, {name} beside {WORKERS} busy workers"));
    load(scratch, options, clients * sessions).await?;
    let mut pairs = Pairs::default();
    for _ in 0..options.runs() {
        scratch.restore(BASE).await?;
        let busy = Busy::start(scratch, options).await?;
        let value = rate(scratch, clients, sessions).await?;
        busy.stop().await;
        scratch.restore(BASE).await?;
        pairs.push(value, rate(scratch, clients, sessions).await?);
    }
    let case = format!("{name}, one event per transaction, {WORKERS} workers listen and are busy");
    let against = "the same without workers";
    Ok(Line::Comparison(Comparison::new(
        ("enqueue", case),
        against,
        pairs,
        Some(beside::TARGET),
    )))
}

/// Sessions whose lanes are idle, and those that keep the workers busy.
async fn load(scratch: &Scratch, options: &Options, idle: usize) -> Result<(), BenchError> {
    scratch.recreate().await?;
    backlog::subscribe(scratch, LANES as u32).await?;
    let each = |sessions| Backlog {
        sessions,
        events: 1,
    };
    backlog::load(scratch, PREFIX, each(idle)).await?;
    drain::deliver(scratch, options, idle).await?;
    backlog::load(scratch, ENDLESS, each(WORKERS * LANES)).await?;
    scratch.freeze(BASE).await
}

/// Every client appends to each of its sessions, round by round.
async fn rate(scratch: &Scratch, clients: usize, sessions: usize) -> Result<f64, BenchError> {
    let mut producers = Vec::new();
    for number in 0..clients {
        let client = scratch.connect().await?;
        let statement = prepare(&client, ENQUEUE).await?;
        producers.push((client, statement, number * sessions));
    }
    let started_at = Instant::now();
    let producing = producers
        .iter()
        .map(|(client, statement, first)| append(client, statement, *first, sessions));
    futures_util::future::try_join_all(producing).await?;
    Ok(per_second(
        clients * sessions * ROUNDS,
        started_at.elapsed(),
    ))
}

async fn append(
    client: &Client,
    statement: &Statement,
    first: usize,
    sessions: usize,
) -> Result<(), BenchError> {
    let payload = backlog::payload();
    for event in 0..ROUNDS * sessions {
        let session = format!("{PREFIX}-{}", first + event % sessions);
        client
            .query_one(statement, &[&backlog::STREAM, &session, &Json(&*payload)])
            .await
            .map_err(BenchError::on("enqueuing an event"))?;
    }
    Ok(())
}

/// Workers with nothing free.
struct Busy {
    workers: Vec<Worker>,
    release: watch::Sender<bool>,
}

impl Busy {
    async fn start(scratch: &Scratch, options: &Options) -> Result<Self, BenchError> {
        let (release, released) = watch::channel(false);
        let (count, mut held) = watch::channel(0);
        let endless = Arc::new(Endless { released, count });
        let settings = WorkerSettings {
            lane_connections: 1,
            pool_size: 1,
            ..options.worker.clone()
        };
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let source = Arc::new(Source::new(Arc::clone(&endless)));
            workers.push(Worker::start(scratch.database(), settings.clone(), source).await?);
        }
        let all = WORKERS * LANES;
        let full = timeout(HELD_WITHIN, held.wait_for(|held| *held >= all))
            .await
            .is_ok();
        let delivered = *held.borrow() as u64;
        if !full {
            return Err(BenchError::Stalled {
                delivered,
                expected: all as u64,
                silent: HELD_WITHIN,
            });
        }
        Ok(Self { workers, release })
    }

    async fn stop(self) {
        self.release.send_replace(true);
        futures_util::future::join_all(self.workers.into_iter().map(Worker::stop)).await;
    }
}

/// Accepts when it is released.
struct Endless {
    released: watch::Receiver<bool>,
    count: watch::Sender<usize>,
}

#[async_trait]
impl Adapter for Endless {
    async fn deliver(&self, _delivery: &Delivery<'_>) -> Verdict {
        self.count.send_modify(|count| *count += 1);
        let mut released = self.released.clone();
        // Where nobody is left to release it, the measurement is over as well.
        let _ = released.wait_for(|released| *released).await;
        Verdict::Accepted
    }
}
