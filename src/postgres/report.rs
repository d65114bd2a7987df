//! What each worker reports about each subscription: whether it delivers it, and if not, why.
//!
//! There is one row for each worker and subscription, written when the state changes. `status`, `doctor`, `apply` and
//! autoscalers read them. Only a worker itself knows whether it has a secret, may reach an address, or finds a
//! destination failing.

use tokio_postgres::Client;

use super::StoreError;

/// What a worker does about a subscription.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Deserialize,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ReportedState {
    /// It claims the subscription's lanes.
    Delivering,
    /// It sends nothing but probes: the destination failed several sessions in a row.
    CircuitOpen,
    /// It cannot make the destination.
    Refused,
}

impl ReportedState {
    pub const ALL: [Self; 3] = [Self::Delivering, Self::CircuitOpen, Self::Refused];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivering => "delivering",
            Self::CircuitOpen => "circuit_open",
            Self::Refused => "refused",
        }
    }
}

/// A worker's report of one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub subscription_id: i32,
    pub version: i64,
    pub state: ReportedState,
    /// Why it does not deliver; `None` exactly where it does. At most [`REASON_BYTES`].
    pub reason: Option<String>,
}

/// The longest reason.
pub const REASON_BYTES: usize = 1_000;

/// Writes those reports that differ from the worker's rows, and removes the rows of subscriptions without a report.
///
/// # Errors
/// The rows may be as they were: the next call writes what is missing.
pub async fn write(client: &Client, worker_id: i64, reports: &[Report]) -> Result<(), StoreError> {
    let ids: Vec<i32> = reports.iter().map(|it| it.subscription_id).collect();
    let versions: Vec<i64> = reports.iter().map(|it| it.version).collect();
    let states: Vec<&str> = reports.iter().map(|it| it.state.as_str()).collect();
    let reasons: Vec<Option<&str>> = reports.iter().map(|it| it.reason.as_deref()).collect();
    client
        .execute(
            include_str!("sql/report_write.sql"),
            &[&worker_id, &ids, &versions, &states, &reasons],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("writing what this worker delivers"))
}
