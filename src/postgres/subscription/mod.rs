//! Subscriptions as rows: loaded by workers, written by `apply`.

mod apply;
mod built_in;
mod row;
mod write;

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::subscription::{
    Acknowledge, Definition, Events, Exhaustion, Limit, MessageStage, PendingBound, Retry, Start,
    limit,
};
use tokio_postgres::{GenericClient, Row};

use super::StoreError;

pub use apply::{Applied, ApplyError, Backfill, add_lanes, apply};
pub(crate) use row::{a2a, acknowledge, reported_state};

pub use built_in::{BuiltInError, Done, install, remove};

pub const LIST: &str = include_str!("../sql/subscription_list.sql");

/// A subscription as a worker needs it.
#[derive(Clone, Debug)]
pub struct Subscription {
    pub id: i32,
    pub stream: Arc<str>,
    pub stream_id: i32,
    pub name: Arc<str>,
    /// Grows with every change of its definition.
    pub version: i64,
    pub adapter: String,
    /// Event types that it receives; `None`: every one.
    pub events: Option<Vec<String>>,
    /// Event types of its stream that are never coalesced; `None`: every one.
    pub critical: Option<Vec<String>>,
    /// The adapter's own.
    pub settings: serde_json::Value,
    pub limits: Vec<Limit>,
    /// The wait after each failed attempt; the last one repeats. Never empty.
    pub retry_schedule: Vec<Duration>,
    /// 0: for ever.
    pub max_attempts: u32,
    pub on_exhausted: Exhaustion,
    pub coalesce: bool,
    /// Lanes delivered at once by one worker.
    pub concurrency: usize,
    /// Whether settled ranges are recorded.
    pub history: bool,
    pub ack: Acknowledge,
    pub ack_timeout: Duration,
    pub ack_window: u32,
    /// Its lanes belong to the hosts of their sessions.
    pub host_bound: bool,
    pub pending: PendingBound,
    /// An event that is older when its turn comes expires.
    pub max_age: Option<Duration>,
    /// What the lifecycle feed is told of its messages.
    pub lifecycle: Vec<MessageStage>,
    pub paused: bool,
    pub removed: bool,
    pub start_from: Start,
    /// Its stream's: the longest time between two scans of an idle worker that delivers it. Changes without a version.
    pub poll_floor: Option<Duration>,
}

impl Subscription {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let (limits, settings) = row::settings(row)?;
        Ok(Self {
            id: row.try_get("subscription_id")?,
            stream: row.try_get::<_, &str>("stream")?.into(),
            stream_id: row.try_get("stream_id")?,
            name: row.try_get::<_, &str>("name")?.into(),
            version: row.try_get("version")?,
            adapter: row.try_get("adapter")?,
            events: row.try_get("events")?,
            critical: row.try_get("critical")?,
            settings,
            limits,
            retry_schedule: row::schedule(row)?,
            max_attempts: row::count(row, "max_attempts")?,
            on_exhausted: row::on_exhausted(row)?,
            coalesce: row.try_get("coalesce")?,
            concurrency: row::count(row, "concurrency")? as usize,
            history: row.try_get("history")?,
            ack: row::ack(row)?,
            ack_timeout: Duration::from_millis(row::count(row, "ack_timeout_ms")?.into()),
            ack_window: row::count(row, "ack_window")?,
            host_bound: row.try_get("host_bound")?,
            pending: row::pending(row)?,
            max_age: row::optional_millis(row, "max_age_ms")?,
            lifecycle: row::lifecycle(row)?,
            paused: row.try_get("paused")?,
            removed: row.try_get("removed")?,
            start_from: row::start_from(row)?,
            poll_floor: row::optional_millis(row, "poll_floor_ms")?,
        })
    }

    /// What every send draws on.
    pub fn buckets(&self) -> Vec<Bucket> {
        limit::buckets(&self.limits, &self.adapter, &self.settings)
    }

    /// Whether a lane may leave out events that are too old or too many.
    pub fn leaves_out(&self) -> bool {
        self.max_age.is_some() || self.pending.drops_beyond().is_some()
    }

    /// Where it delivers to, as all who send there call it.
    pub fn place(&self) -> String {
        limit::destination(&self.adapter, &self.settings)
    }

    fn definition(self) -> Definition {
        Definition {
            stream: self.stream.as_ref().to_owned(),
            adapter: self.adapter,
            events: Events::from_column(self.events),
            start: self.start_from,
            retry: Retry {
                schedule: self.retry_schedule,
                max_attempts: self.max_attempts,
                on_exhausted: self.on_exhausted,
            },
            coalesce: self.coalesce,
            concurrency: u32::try_from(self.concurrency).unwrap_or(u32::MAX),
            history: self.history,
            ack: self.ack,
            ack_timeout: self.ack_timeout,
            ack_window: self.ack_window,
            host_bound: self.host_bound,
            pending: self.pending,
            max_age: self.max_age,
            lifecycle: self.lifecycle,
            limits: self.limits,
            settings: self.settings,
        }
    }
}

/// Every subscription, paused and removed ones included.
///
/// # Errors
/// Where the rows cannot be read, or hold a word that this release does not know.
pub async fn load(client: &impl GenericClient) -> Result<Vec<Subscription>, StoreError> {
    let operation = "loading the subscriptions";
    let rows = client
        .query(LIST, &[])
        .await
        .map_err(StoreError::on(operation))?;
    rows.iter()
        .map(Subscription::from_row)
        .collect::<Result<_, _>>()
        .map_err(StoreError::on(operation))
}
