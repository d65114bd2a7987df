//! Replays, as operators start and change them, and as workers go on with them. What a replay is, and why it keeps the
//! order of a session, stands in `migrations/functions/replay/feed_replays.sql`.

use std::time::Duration;

use jiff::Timestamp;
use lanekeeper_core::bucket::Rate;
use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, Row, Transaction};

use super::StoreError;

/// Which events are delivered again.
#[derive(Clone, Debug, Default)]
pub struct Range {
    pub subscription: String,
    /// A session, or a pattern in which `*` stands for any characters. `None`: all.
    pub sessions: Option<String>,
    /// Of one session.
    pub from_seq: Option<i64>,
    pub to_seq: Option<i64>,
    /// By when they were appended: from this instant on, and before that one.
    pub from_at: Option<Timestamp>,
    pub to_at: Option<Timestamp>,
}

impl Range {
    fn parameters(&self) -> [(&(dyn ToSql + Sync), Type); 6] {
        [
            (&self.subscription, Type::TEXT),
            (&self.sessions, Type::TEXT),
            (&self.from_seq, Type::INT8),
            (&self.to_seq, Type::INT8),
            (&self.from_at, Type::TIMESTAMPTZ),
            (&self.to_at, Type::TIMESTAMPTZ),
        ]
    }
}

/// How fast.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Events by all workers together. `None`: as fast as the destination takes them.
    pub rate: Option<Rate>,
    /// Sessions that are replayed at once.
    pub concurrency: i32,
}

impl Pace {
    pub const CONCURRENCY: i32 = 32;
    pub const MOST: i32 = 1_000;
}

/// Who starts a replay, and why.
#[derive(Clone, Copy, Debug, Default)]
pub struct By<'a> {
    /// `None`: the role of the connection.
    pub name: Option<&'a str>,
    pub reason: Option<&'a str>,
}

/// The stream of a subscription that was not removed.
///
/// # Errors
/// Where it cannot be read.
pub async fn stream_of(
    client: &impl GenericClient,
    subscription: &str,
) -> Result<Option<String>, StoreError> {
    let statement = include_str!("sql/subscription_stream.sql");
    client
        .query_typed(statement, &[(&subscription, Type::TEXT)])
        .await
        .and_then(|rows| rows.first().map(|row| row.try_get(0)).transpose())
        .map_err(StoreError::on("looking for a subscription"))
}

/// A transaction for [`plan`] and [`start`], which read the log: no statement of it takes longer than `within`.
///
/// # Errors
/// Where the server does not answer.
pub async fn bounded(client: &mut Client, within: Duration) -> Result<Transaction<'_>, StoreError> {
    let beginning = "beginning to count";
    let transaction = client
        .transaction()
        .await
        .map_err(StoreError::on(beginning))?;
    let bound = format!("SET LOCAL statement_timeout = {}", within.as_millis());
    transaction
        .batch_execute(&bound)
        .await
        .map_err(StoreError::on(beginning))?;
    Ok(transaction)
}

/// What a replay would deliver again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "ReplayPlan")]
pub struct Plan {
    pub sessions: i64,
    pub events: i64,
    /// Of their payloads.
    pub bytes: i64,
    /// Events of the session that has the most.
    pub longest: i64,
}

/// Counts what a replay would deliver again.
///
/// # Errors
/// SQLSTATEs: LK006 the range is invalid, LK010 there is no such session.
pub async fn plan(client: &impl GenericClient, range: &Range) -> Result<Plan, StoreError> {
    let read = |row: Row| {
        Ok(Plan {
            sessions: row.try_get("sessions")?,
            events: row.try_get("events")?,
            bytes: row.try_get("bytes")?,
            longest: row.try_get("longest")?,
        })
    };
    client
        .query_typed_one(include_str!("sql/replay_plan.sql"), &range.parameters())
        .await
        .and_then(read)
        .map_err(StoreError::on("counting what is to be replayed"))
}

/// Starts a replay; returns its id.
///
/// # Errors
/// Nothing was started, unless the connection was lost. SQLSTATEs: those of [`plan`]; LK006 nothing to replay; LK007 an
/// `apply` is under way; LK011 a session is being replayed to this subscription already.
pub async fn start(
    client: &impl GenericClient,
    range: &Range,
    pace: &Pace,
    by: By<'_>,
) -> Result<i64, StoreError> {
    let rate = pace.rate.map(|rate| rate.to_string());
    let interval_us = pace.rate.map(|rate| {
        let interval = rate.interval().as_micros().max(1);
        i64::try_from(interval).unwrap_or(i64::MAX)
    });
    let mut parameters = range.parameters().to_vec();
    parameters.extend::<[(&(dyn ToSql + Sync), Type); 5]>([
        (&rate, Type::TEXT),
        (&interval_us, Type::INT8),
        (&pace.concurrency, Type::INT4),
        (&by.reason, Type::TEXT),
        (&by.name, Type::TEXT),
    ]);
    client
        .query_typed_one(include_str!("sql/replay_start.sql"), &parameters)
        .await
        .and_then(|row| row.try_get("replay_id"))
        .map_err(StoreError::on("starting a replay"))
}

/// What is done to a replay that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Pause,
    Resume,
    Cancel,
}

impl Change {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
        }
    }
}

/// Changes a replay; returns its state.
///
/// # Errors
/// Nothing was changed. SQLSTATE LK006: there is none, or it has ended.
pub async fn change(
    client: &impl GenericClient,
    replay_id: i64,
    change: Change,
    reason: Option<&str>,
) -> Result<String, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/replay_change.sql"),
            &[
                (&replay_id, Type::INT8),
                (&change.as_str(), Type::TEXT),
                (&reason, Type::TEXT),
            ],
        )
        .await
        .and_then(|row| row.try_get("state"))
        .map_err(StoreError::on("changing a replay"))
}

/// A replay, and how far it is.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Replay {
    pub replay_id: i64,
    pub subscription: String,
    pub stream: String,
    /// running | paused | done | cancelled | removed
    pub state: String,
    /// A session, or a pattern; null: all.
    pub sessions: Option<String>,
    pub from_seq: Option<i64>,
    pub to_seq: Option<i64>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    pub rate: Option<String>,
    pub concurrency: i32,
    pub reason: Option<String>,
    /// What it was for when it began.
    pub planned: Planned,
    pub progress: Progress,
    pub started_by: String,
    pub started_at: Timestamp,
    pub paused_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub end_reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "PlannedReplay")]
pub struct Planned {
    pub sessions: i64,
    pub events: i64,
    pub bytes: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "ReplayProgress")]
pub struct Progress {
    /// Sessions that came to their end, are under way, and wait for their turn. The others were closed or interrupted.
    pub sessions_done: i64,
    pub sessions_active: i64,
    pub sessions_waiting: i64,
    /// Events that the destination accepted, and that were exhausted.
    pub delivered: i64,
    pub exhausted: i64,
}

impl Replay {
    /// Events that are still to be delivered, as far as it is known: what was cancelled or filtered since it began is not.
    pub fn left(&self) -> i64 {
        let passed = self.progress.delivered + self.progress.exhausted;
        (self.planned.events - passed).max(0)
    }

    fn of(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            replay_id: row.try_get("replay_id")?,
            subscription: row.try_get("subscription")?,
            stream: row.try_get("stream")?,
            state: row.try_get("state")?,
            sessions: row.try_get("pattern")?,
            from_seq: row.try_get("from_seq")?,
            to_seq: row.try_get("to_seq")?,
            from: row.try_get("from_at")?,
            to: row.try_get("to_at")?,
            rate: row.try_get("rate")?,
            concurrency: row.try_get("concurrency")?,
            reason: row.try_get("reason")?,
            planned: Planned {
                sessions: row.try_get("lanes")?,
                events: row.try_get("events")?,
                bytes: row.try_get("bytes")?,
            },
            progress: Progress {
                sessions_done: row.try_get("lanes_done")?,
                sessions_active: row.try_get("active")?,
                sessions_waiting: row.try_get("waiting")?,
                delivered: row.try_get("delivered")?,
                exhausted: row.try_get("exhausted")?,
            },
            started_by: row.try_get("started_by")?,
            started_at: row.try_get("started_at")?,
            paused_at: row.try_get("paused_at")?,
            ended_at: row.try_get("ended_at")?,
            end_reason: row.try_get("end_reason")?,
        })
    }
}

/// The newest `limit` replays: those that have not ended, with `ended` the others too; of these streams only.
///
/// # Errors
/// Where they cannot be read.
pub async fn list(
    client: &impl GenericClient,
    ended: bool,
    limit: i64,
    streams: Option<&[String]>,
) -> Result<Vec<Replay>, StoreError> {
    read(client, None, ended, limit, streams).await
}

/// One replay.
///
/// # Errors
/// Where it cannot be read.
pub async fn find(
    client: &impl GenericClient,
    replay_id: i64,
) -> Result<Option<Replay>, StoreError> {
    let found = read(client, Some(replay_id), true, 1, None).await?;
    Ok(found.into_iter().next())
}

async fn read(
    client: &impl GenericClient,
    replay_id: Option<i64>,
    ended: bool,
    limit: i64,
    streams: Option<&[String]>,
) -> Result<Vec<Replay>, StoreError> {
    client
        .query_typed(
            include_str!("sql/replay_list.sql"),
            &[
                (&replay_id, Type::INT8),
                (&ended, Type::BOOL),
                (&limit, Type::INT8),
                (&streams, Type::TEXT_ARRAY),
            ],
        )
        .await
        .and_then(|rows| rows.iter().map(Replay::of).collect())
        .map_err(StoreError::on("reading the replays"))
}

/// What one turn with the replays did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Lanes that began.
    pub begun: i64,
    /// Replays that are to be looked at again soon.
    pub unfinished: i64,
}

/// Goes on with all replays.
///
/// # Errors
/// Nothing of this turn was done.
pub async fn feed(client: &impl GenericClient) -> Result<Turn, StoreError> {
    let read = |row: Row| {
        Ok(Turn {
            begun: row.try_get("begun")?,
            unfinished: row.try_get("unfinished")?,
        })
    };
    client
        .query_typed_one(include_str!("sql/feed_replays.sql"), &[])
        .await
        .and_then(read)
        .map_err(StoreError::on("going on with the replays"))
}
