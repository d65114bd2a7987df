//! The state of subscriptions and workers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use super::{StoreError, read};
use crate::message_count::MessageCount;

/// Lanes with something to do that a command looks at per subscription: some 20 µs each.
pub const LANES_LOOKED_AT: i64 = 5_000;
/// The same of [`glance`].
const LANES_GLANCED_AT: i64 = 500;
/// Lanes that are counted per subscription.
const LANES_COUNTED: i64 = 100_000;

/// A subscription and its lanes.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
pub struct SubscriptionStatus {
    #[serde(skip)]
    pub subscription_id: i32,
    pub subscription: String,
    pub stream: String,
    pub adapter: String,
    pub paused_at: Option<Timestamp>,
    pub pause_reason: Option<String>,
    pub lanes: LaneCounts,
    /// Events after the cursors of lanes that have one of them to deliver, those that the filter will leave out
    /// included.
    pub behind: i64,
    /// `behind` of the lane that is furthest behind.
    pub deepest: i64,
    /// The most undelivered events that a session may have; none: any number.
    pub max_pending: Option<i32>,
    /// What became of its messages so far.
    pub messages: MessageCount,
    /// Age of the oldest of those.
    pub oldest_undelivered_age_s: Option<f64>,
    /// Dead letters that wait for an operator.
    pub dead_letters: i64,
    /// There are more: `dead_letters` is a lower bound.
    pub dead_letters_partial: bool,
    /// Not all lanes with something to do were read: every figure but `idle` is a lower bound.
    pub partial: bool,
    /// Not all lanes were counted or read: `idle` is approximate.
    pub idle_partial: bool,
}

/// Lanes by state. A paused subscription's lanes count as what they would be if it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
pub struct LaneCounts {
    /// Nothing to deliver.
    pub idle: i64,
    /// Waiting for a worker.
    pub ready: i64,
    /// A worker is at it.
    pub held: i64,
    /// The head failed and is tried again later.
    pub blocked: i64,
    /// Waiting for acknowledgements.
    pub sent: i64,
    /// Waiting for an operator.
    pub parked: i64,
}

impl SubscriptionStatus {
    /// How many dead letters wait, as people read it: `5000+` where there are more.
    pub fn dead_letters_text(&self) -> String {
        let more = if self.dead_letters_partial { "+" } else { "" };
        format!("{}{more}", self.dead_letters)
    }

    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let lanes: i64 = row.try_get("lanes")?;
        let partial = row.try_get("partial")?;
        let (ready, held): (i64, i64) = (row.try_get("ready")?, row.try_get("held")?);
        let (blocked, parked): (i64, i64) = (row.try_get("blocked")?, row.try_get("parked")?);
        let sent: i64 = row.try_get("sent")?;
        Ok(Self {
            subscription_id: row.try_get("subscription_id")?,
            subscription: row.try_get("subscription")?,
            stream: row.try_get("stream")?,
            adapter: row.try_get("adapter")?,
            paused_at: row.try_get("paused_at")?,
            pause_reason: row.try_get("pause_reason")?,
            lanes: LaneCounts {
                idle: (lanes - ready - held - blocked - sent - parked).max(0),
                ready,
                held,
                blocked,
                sent,
                parked,
            },
            behind: row.try_get("behind")?,
            deepest: row.try_get("deepest")?,
            max_pending: row.try_get("max_pending")?,
            messages: messages(row)?,
            oldest_undelivered_age_s: row.try_get("oldest_age_s")?,
            dead_letters: row.try_get("dead_letters")?,
            dead_letters_partial: row.try_get("many_dead_letters")?,
            partial,
            idle_partial: partial || row.try_get("many_lanes")?,
        })
    }
}

/// No row: nothing yet.
fn messages(row: &Row) -> Result<MessageCount, tokio_postgres::Error> {
    let count = |column| Ok(row.try_get::<_, Option<i64>>(column)?.unwrap_or(0));
    Ok(MessageCount {
        sent: count("messages_sent")?,
        acked: count("acked")?,
        retried: count("retried")?,
        failed: count("failed")?,
        expired: count("expired")?,
        dropped: count("dropped")?,
    })
}

/// Returns the first `limit` subscriptions by name, without removed ones. It reads at most `lanes` lanes of each that
/// have something to do. `low_water_marks`: for some subscriptions, a time before which none of their ready entries is
/// due.
///
/// # Errors
/// Where they cannot be read.
pub async fn status(
    client: &impl GenericClient,
    limit: i64,
    lanes: i64,
    low_water_marks: impl Iterator<Item = (i32, Timestamp)>,
) -> Result<Vec<SubscriptionStatus>, StoreError> {
    count(client, limit, lanes, LANES_COUNTED, low_water_marks, None).await
}

/// The same, from few lanes of each subscription: for a page that many people have open all day.
///
/// # Errors
/// Where they cannot be read.
pub async fn glance(
    client: &impl GenericClient,
    limit: i64,
) -> Result<Vec<SubscriptionStatus>, StoreError> {
    count(
        client,
        limit,
        LANES_GLANCED_AT,
        LANES_GLANCED_AT,
        std::iter::empty(),
        None,
    )
    .await
}

/// The same of some subscriptions.
///
/// # Errors
/// Where they cannot be read.
pub async fn glance_at(
    client: &impl GenericClient,
    subscription_ids: &[i32],
) -> Result<Vec<SubscriptionStatus>, StoreError> {
    count(
        client,
        i64::try_from(subscription_ids.len()).unwrap_or(i64::MAX),
        LANES_GLANCED_AT,
        LANES_GLANCED_AT,
        std::iter::empty(),
        Some(subscription_ids),
    )
    .await
}

async fn count(
    client: &impl GenericClient,
    limit: i64,
    lanes: i64,
    lanes_counted: i64,
    low_water_marks: impl Iterator<Item = (i32, Timestamp)>,
    subscription_ids: Option<&[i32]>,
) -> Result<Vec<SubscriptionStatus>, StoreError> {
    let (routes, low_water_marks): (Vec<i32>, Vec<Timestamp>) = low_water_marks.unzip();
    let parameters: [(&(dyn ToSql + Sync), Type); 6] = [
        (&lanes, Type::INT8),
        (&limit, Type::INT8),
        (&lanes_counted, Type::INT8),
        (&routes, Type::INT4_ARRAY),
        (&low_water_marks, Type::TIMESTAMPTZ_ARRAY),
        (&subscription_ids, Type::INT4_ARRAY),
    ];
    let statement = include_str!("../sql/status.sql");
    read(
        client,
        "reading the status",
        statement,
        &parameters,
        SubscriptionStatus::from_row,
    )
    .await
}

/// A worker process.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
pub struct WorkerStatus {
    pub worker_id: i64,
    pub host: String,
    pub pid: i32,
    pub release: String,
    /// running | draining
    pub state: String,
    pub started_at: Timestamp,
    pub beat_at: Timestamp,
    /// Seconds since the last sign of life.
    pub silent_s: f64,
    pub lane_connections: i64,
    pub held_lanes: i64,
}

impl WorkerStatus {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            worker_id: row.try_get("worker_id")?,
            host: row.try_get("host")?,
            pid: row.try_get("pid")?,
            release: row.try_get("release")?,
            state: row.try_get("state")?,
            started_at: row.try_get("started_at")?,
            beat_at: row.try_get("beat_at")?,
            silent_s: row.try_get("silent_s")?,
            lane_connections: row.try_get("lane_connections")?,
            held_lanes: row.try_get("held_lanes")?,
        })
    }
}

/// The `limit` workers that were silent longest.
///
/// # Errors
/// Where they cannot be read.
pub async fn workers(
    client: &impl GenericClient,
    limit: i64,
) -> Result<Vec<WorkerStatus>, StoreError> {
    let statement = include_str!("../sql/worker_list.sql");
    read(
        client,
        "reading the workers",
        statement,
        &[(&limit, Type::INT8)],
        WorkerStatus::from_row,
    )
    .await
}
