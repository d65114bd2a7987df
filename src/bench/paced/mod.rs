//! A load at a fixed rate while a worker delivers: when each event was called for, answered and started,
//! window by window.
//!
//! The schedule does not wait for answers: a producer that falls behind goes on without a pause until it has
//! caught up, and what it could not do is missing in the rate. Each session has one producer, so that the
//! deliveries' order can be judged.

mod beside;
mod journal;
mod producer;
mod tables;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lanekeeper_engine::Worker;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::cost::Reading;
use super::report::Window;
use super::sink::Source;
use super::{Backlog, BenchError, Options, Scratch, backlog};
use producer::{Mix, Producer, Schedule};

pub use beside::Beside;
pub use journal::{Journal, Latencies, Watched};

/// Sessions' names are this and their number.
const PREFIX: &str = "p-";
/// So many that commits which wait for the disk do not hold the schedule up.
const PRODUCERS: usize = 16;
const WARM_UP: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(10);
/// How long deliveries may be silent at the end.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is asked of the producers.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub per_second: f64,
    /// Half of the events go to so many of the sessions. 0: all share alike.
    pub hot: usize,
    pub sessions: usize,
    /// After the warm-up.
    pub time: Duration,
}

pub struct Measured {
    pub windows: Vec<Window>,
    /// Of all windows together.
    pub all: Latencies,
}

/// Runs the load in a database of its own. With `hold_snapshot`, a transaction keeps its snapshot from the
/// first window on.
pub async fn run(
    scratch: &Scratch,
    options: &Options,
    load: Load,
    hold_snapshot: bool,
) -> Result<Measured, BenchError> {
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    let journal = load_sessions(scratch, load).await?;

    let warm_up = WARM_UP.min(load.time / 2);
    let source = Arc::new(Source::new(Arc::new(Watched(Arc::clone(&journal)))));
    let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
    journal.delivered(load.sessions as u64, PATIENCE).await?;

    let begin = Instant::now() + Duration::from_millis(100);
    let opened_at = begin + warm_up;
    let until = opened_at + load.time;
    let window = WINDOW.min(load.time / 2);
    journal.begin(opened_at, window, windows_in(load.time, window));
    let mut producers = JoinSet::new();
    for producer in producers_of(scratch, &journal, load).await? {
        producers.spawn(producer.run(Schedule::between(begin, until)));
    }

    let watcher = scratch.connect().await?;
    sleep_until(opened_at.into()).await;
    let snapshot = match hold_snapshot {
        true => Some(snapshot(scratch).await?),
        false => None,
    };
    let mut windows = Vec::new();
    let mut reading = Reading::take(&watcher).await?;
    for number in 0..windows_in(load.time, window) {
        sleep_until((opened_at + window * (number as u32 + 1)).into()).await;
        // A producer that failed does not leave the others to their time.
        while let Some(ended) = producers.try_join_next() {
            ended??;
        }
        let now = Reading::take(&watcher).await?;
        let events = journal.started_in(number);
        windows.push(Window {
            cost: (events > 0).then(|| now.since(reading, events)),
            tables: tables::read(&watcher).await?,
            ..Window::default()
        });
        reading = now;
    }
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    journal.delivered(journal.appended(), PATIENCE).await?;
    drop(snapshot);
    worker.stop().await;
    journal.judge(&watcher).await?;

    let all = journal.all();
    for (number, filled) in windows.iter_mut().enumerate() {
        journal.fill(number, filled);
    }
    Ok(Measured { windows, all })
}

/// Appends the first event of each session; what becomes of the load goes into the journal.
async fn load_sessions(scratch: &Scratch, load: Load) -> Result<Arc<Journal>, BenchError> {
    let sessions = Backlog {
        sessions: load.sessions,
        events: 1,
    };
    backlog::load(scratch, PREFIX.trim_end_matches('-'), sessions).await?;
    Ok(Arc::new(Journal::new(load.sessions)))
}

async fn producers_of(
    scratch: &Scratch,
    journal: &Arc<Journal>,
    load: Load,
) -> Result<Vec<Producer>, BenchError> {
    let count = PRODUCERS.min(load.sessions);
    let mut producers = Vec::with_capacity(count);
    for number in 0..count {
        let mix = Mix::new(load, number, count);
        producers.push(Producer::new(scratch, Arc::clone(journal), mix).await?);
    }
    Ok(producers)
}

fn windows_in(time: Duration, window: Duration) -> usize {
    (time.as_nanos() / window.as_nanos().max(1)) as usize
}

/// A transaction that keeps every row version from now on, until the client goes.
async fn snapshot(scratch: &Scratch) -> Result<tokio_postgres::Client, BenchError> {
    let client = scratch.connect().await?;
    client
        .batch_execute(
            "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ;
             SELECT count(*) FROM lanekeeper.stream",
        )
        .await
        .map_err(BenchError::on("taking a snapshot"))?;
    Ok(client)
}
