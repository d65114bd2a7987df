//! The state of an aggregate at some seq: with a snapshot every 100 events, and with none. And a command, which loads the
//! newest state and appends behind it.

use std::time::{Duration, Instant};

use lanekeeper_postgres::aggregate::{self, Aggregate, AggregateError, CommandError};
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::backlog::{self, STREAM};
use super::report::{Distribution, Line, Targets};
use super::{BenchError, Options, Scratch, prepare, progress};

const SESSION: &str = "aggregate";
const TARGETS: Targets = Targets {
    p50_ms: None,
    p99_ms: Some(5.0),
};
/// Folds of all events take long.
const WITHOUT: usize = 5;
const COUNTERS: u64 = 100;

#[derive(Serialize, Deserialize)]
struct Counted {
    counter: u64,
}

lanekeeper_postgres::events! {
    enum Happened {
        Counted(Counted) = "message";
    }
}

/// As large as a state of a few kilobytes.
#[derive(Serialize, Deserialize)]
struct Counters {
    counters: Vec<u64>,
    events: i64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            counters: vec![0; COUNTERS as usize],
            events: 0,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

impl Aggregate for Counters {
    const NAME: &'static str = "counters";
    const SCHEMA_VERSION: i32 = 1;
    type Event = Happened;
    type Command = u64;
    type Error = Never;

    fn apply(&mut self, Happened::Counted(Counted { counter }): &Happened) {
        self.counters[(counter % COUNTERS) as usize] += 1;
        self.events += 1;
    }

    fn decide(&self, counter: &u64) -> Result<Vec<Happened>, Never> {
        Ok(vec![Happened::Counted(Counted { counter: *counter })])
    }
}

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Vec<Line>, BenchError> {
    let events = options.spread_events.max(1);
    progress(&format!("aggregates, {events} events"));
    scratch.recreate().await?;
    let mut client = scratch.connect().await?;
    append(&client, events).await?;
    let newest = i64::try_from(events).unwrap_or(i64::MAX);
    let mut seqs = Seqs(7);
    let without = loads(&client, WITHOUT.min(options.samples), || newest).await?;
    progress("aggregates, snapshots");
    aggregate::take_snapshots::<Counters>(&client, STREAM, SESSION).await?;
    backlog::vacuum(
        &client,
        "ANALYZE lanekeeper.event, lanekeeper.aggregate_snapshot",
    )
    .await?;
    let any = loads(&client, options.samples, || seqs.next(newest)).await?;
    let now = loads(&client, options.samples, || newest).await?;
    let commands = commands(&mut client, options.samples).await?;
    let line = |case: String, samples, targets| {
        Line::Distribution(Distribution::new("aggregates", case, samples, targets))
    };
    Ok(vec![
        line(format!("state at any seq of {events}"), any, TARGETS),
        line(format!("newest state of {events} events"), now, TARGETS),
        line(
            "a command and its event".to_owned(),
            commands,
            Targets::default(),
        ),
        line(
            format!("newest state of {events} events without snapshots"),
            without,
            Targets::default(),
        ),
    ])
}

async fn append(client: &Client, events: usize) -> Result<(), BenchError> {
    let statement = prepare(client, backlog::ENQUEUE_MANY).await?;
    for first in (0..events).step_by(backlog::BULK) {
        let event = |number: usize| {
            let payload = serde_json::json!({"counter": number});
            let payload = serde_json::value::to_raw_value(&payload).expect("a number is JSON");
            backlog::event(SESSION, &payload)
        };
        let bulk: Vec<_> = (first..events.min(first + backlog::BULK))
            .map(event)
            .collect();
        backlog::enqueue_many(client, &statement, &bulk).await?;
    }
    Ok(())
}

async fn loads(
    client: &Client,
    samples: usize,
    mut seq: impl FnMut() -> i64,
) -> Result<Vec<Duration>, BenchError> {
    let mut took = Vec::with_capacity(samples);
    for _ in 0..samples {
        let seq = seq();
        let began = Instant::now();
        let loaded = aggregate::load_at::<Counters>(client, STREAM, SESSION, seq).await?;
        took.push(began.elapsed());
        if loaded.state.events != seq {
            return Err(BenchError::Folded {
                events: loaded.state.events,
                expected: seq,
            });
        }
    }
    Ok(took)
}

async fn commands(client: &mut Client, samples: usize) -> Result<Vec<Duration>, BenchError> {
    let mut took = Vec::with_capacity(samples);
    for number in 0..samples {
        let began = Instant::now();
        let ran = aggregate::run::<Counters>(client, STREAM, SESSION, &(number as u64), 1).await;
        took.push(began.elapsed());
        ran.map_err(|error| match error {
            CommandError::Aggregate(error) => BenchError::from(error),
            other => BenchError::Command(other.to_string()),
        })?;
    }
    Ok(took)
}

/// Numbers that look drawn and are the same in each run.
struct Seqs(u64);

impl Seqs {
    /// From 1 to `newest`.
    fn next(&mut self, newest: i64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let drawn = i64::try_from(self.0 >> 33).unwrap_or_default();
        drawn % newest + 1
    }
}

impl From<AggregateError> for BenchError {
    fn from(error: AggregateError) -> Self {
        Self::Aggregate(Box::new(error))
    }
}
