//! Subscriptions with work that is due and makes no progress (F6).

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use super::{StoreError, read};

/// What keeps a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StalledState {
    /// A worker has it, and neither settles it nor lets it go.
    Held,
    /// Its work is due, and no worker takes it.
    Due,
}

/// The lane of a subscription that has had work for the longest time without any progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stalled {
    #[serde(skip)]
    pub subscription_id: i32,
    pub subscription: String,
    pub state: StalledState,
    pub session: String,
    /// The worker that holds it.
    pub worker_id: Option<i64>,
    pub stalled_s: f64,
}

impl Stalled {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            subscription_id: row.try_get("subscription_id")?,
            subscription: row.try_get("subscription")?,
            state: match row.try_get::<_, &str>("state")? {
                "held" => StalledState::Held,
                _ => StalledState::Due,
            },
            session: row.try_get("session")?,
            worker_id: row.try_get("worker_id")?,
            stalled_s: row.try_get("stalled_s")?,
        })
    }
}

/// At most one lane that is held and one that is due of each subscription, `limit` in all. `low_water_marks` as for
/// [`status`](super::status). A lane that waits for a rate limit, or behind many others, is due too.
///
/// # Errors
/// Where they cannot be read.
pub async fn stalled(
    client: &impl GenericClient,
    after: Duration,
    limit: i64,
    low_water_marks: impl Iterator<Item = (i32, Timestamp)>,
) -> Result<Vec<Stalled>, StoreError> {
    let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
    let (routes, low_water_marks): (Vec<i32>, Vec<Timestamp>) = low_water_marks.unzip();
    let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
        (&after, Type::INT8),
        (&routes, Type::INT4_ARRAY),
        (&low_water_marks, Type::TIMESTAMPTZ_ARRAY),
        (&limit, Type::INT8),
    ];
    let statement = include_str!("../sql/stalled.sql");
    read(
        client,
        "looking for lanes without progress",
        statement,
        &parameters,
        Stalled::from_row,
    )
    .await
}
