//! The actions of operators. Each call is recorded in `operation` with the operator's name. Statements are unnamed,
//! because operators connect through transaction poolers too.

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::StoreError;

/// The channel that notifies workers which lanes an operator is about to change, so that they release lanes that wait.
/// A notification is sent only when its transaction commits, so callers must not be in a transaction.
pub const WANTED: &str = "lanekeeper_wanted";

/// An operator's action on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneAction {
    /// Try the head now, with its attempts forgotten.
    Retry,
    /// Skip the head, with the outcome `skipped`.
    Skip,
    /// Hold the lane until it is unparked.
    Park,
    Unpark,
}

impl LaneAction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::Park => "park",
            Self::Unpark => "unpark",
        }
    }
}

/// Acts on one lane; returns its new state. Waits up to 5 s for a running delivery. With `head`,
/// does nothing unless that seq is still the lane's head.
///
/// # Errors
/// SQLSTATE LK006 if there is no such lane or nothing to skip, LK007 if its holder did not release it,
/// LK008 if the head is another event.
pub async fn change_lane(
    client: &impl GenericClient,
    lane_id: i64,
    action: LaneAction,
    reason: Option<&str>,
    head: Option<i64>,
) -> Result<String, StoreError> {
    client
        .query_typed(
            include_str!("sql/want_lane.sql"),
            &[(&WANTED, Type::TEXT), (&lane_id, Type::INT8)],
        )
        .await
        .map_err(StoreError::on("asking for a lane"))?;
    client
        .query_typed_one(
            "SELECT lanekeeper.change_lane($1, $2, $3, $4)",
            &[
                (&lane_id, Type::INT8),
                (&action.as_str(), Type::TEXT),
                (&reason, Type::TEXT),
                (&head, Type::INT8),
            ],
        )
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("changing a lane"))
}

/// Stops the delivery of a subscription. False where there is none of that name that runs.
///
/// # Errors
/// Nothing was changed.
pub async fn pause_subscription(
    client: &impl GenericClient,
    name: &str,
    reason: &str,
) -> Result<bool, StoreError> {
    client
        .query_typed_one(
            "SELECT lanekeeper.pause_subscription($1, $2)",
            &[(&name, Type::TEXT), (&reason, Type::TEXT)],
        )
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("pausing a subscription"))
}

/// Restarts the delivery of a subscription. False where there is none of that name that is paused.
///
/// # Errors
/// Nothing was changed.
pub async fn resume_subscription(
    client: &impl GenericClient,
    name: &str,
) -> Result<bool, StoreError> {
    client
        .query_typed_one(
            "SELECT lanekeeper.pause_subscription($1, NULL)",
            &[(&name, Type::TEXT)],
        )
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("resuming a subscription"))
}

/// Marks a dead letter as resolved. Returns false if it was resolved already, or does not exist.
///
/// # Errors
/// Nothing was changed.
pub async fn drop_dead_letter(
    client: &impl GenericClient,
    dead_id: i64,
    reason: Option<&str>,
) -> Result<bool, StoreError> {
    want_lanes_of(client, &[dead_id]).await?;
    client
        .query_typed_one(
            "SELECT lanekeeper.drop_dead_letter($1, $2)",
            &[(&dead_id, Type::INT8), (&reason, Type::TEXT)],
        )
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("dropping a dead letter"))
}

/// The result of requeueing a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeued {
    Requeued,
    /// It already waits for its delivery.
    Before,
    /// It was resolved already.
    Resolved,
}

/// Requeues dead letters: at their place, which is before everything that their lanes have not delivered yet, or at the
/// end. Waits up to 5 s for a running delivery of each lane. All or nothing.
///
/// # Errors
/// SQLSTATE LK006 if there is no such dead letter, its lane is parked or its subscription removed, LK007
/// if a holder did not release its lane. Nothing was changed.
pub async fn requeue_dead_letters(
    client: &impl GenericClient,
    dead_ids: &[i64],
    at_end: bool,
    reason: Option<&str>,
) -> Result<Vec<(i64, Requeued)>, StoreError> {
    want_lanes_of(client, dead_ids).await?;
    let rows = client
        .query_typed(
            "SELECT dead_id, result FROM lanekeeper.requeue_dead_letters($1, $2, $3)",
            &[
                (&dead_ids, Type::INT8_ARRAY),
                (&at_end, Type::BOOL),
                (&reason, Type::TEXT),
            ],
        )
        .await
        .map_err(StoreError::on("requeueing dead letters"))?;
    let requeued = |row: &Row| {
        let result = match row.get("result") {
            "requeued" => Requeued::Requeued,
            "requeued_before" => Requeued::Before,
            _ => Requeued::Resolved,
        };
        (row.get("dead_id"), result)
    };
    Ok(rows.iter().map(requeued).collect())
}

async fn want_lanes_of(client: &impl GenericClient, dead_ids: &[i64]) -> Result<(), StoreError> {
    client
        .query_typed(
            include_str!("sql/want_lanes_of_letters.sql"),
            &[(&WANTED, Type::TEXT), (&dead_ids, Type::INT8_ARRAY)],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("asking for lanes"))
}
