//! Closes sessions, and finishes what closes and interrupts leave to workers.

use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::StoreError;

/// Where workers hear of a session that was closed or interrupted, or of an event that was cancelled, while lanes of it were
/// held: `session_id seq reach`.
pub const CLOSED: &str = "lanekeeper_closed";

/// Closes a session: appends are refused, and what is not delivered expires; with `drain` it is delivered first. Returns
/// how many events expired, as of the lane that was furthest behind.
///
/// # Errors
/// SQLSTATE LK006 where there is no such session, LK007 where another transaction appends to it and does not end within
/// 5 s. Nothing was changed.
pub async fn close_session(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
    reason: Option<&str>,
    drain: bool,
) -> Result<i64, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/close_session.sql"),
            &[
                (&stream, Type::TEXT),
                (&session, Type::TEXT),
                (&reason, Type::TEXT),
                (&drain, Type::BOOL),
            ],
        )
        .await
        .and_then(|row| row.try_get("expired"))
        .map_err(StoreError::on("closing a session"))
}

/// Has a closed session take appends again. False where it is not closed.
///
/// # Errors
/// As [`close_session`].
pub async fn reopen_session(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
) -> Result<bool, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/reopen_session.sql"),
            &[(&stream, Type::TEXT), (&session, Type::TEXT)],
        )
        .await
        .and_then(|row| row.try_get("reopened"))
        .map_err(StoreError::on("reopening a session"))
}

/// What a call of [`finish`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Lanes that were held then, and whose events are passed now.
    pub lanes: i64,
    /// Sessions that had delivered what was there, and are closed now.
    pub drained: i64,
    /// Lanes and sessions to look at again.
    pub unfinished: i64,
}

/// Ends what closes and interrupts left: of one session or of all, or of one lane that the caller holds and delivers nothing of.
///
/// # Errors
/// Nothing was changed.
pub async fn finish(
    client: &impl GenericClient,
    session_id: Option<i64>,
    held_lane: Option<i64>,
) -> Result<Finished, StoreError> {
    let row = client
        .query_typed_one(
            include_str!("sql/finish_closing.sql"),
            &[(&session_id, Type::INT8), (&held_lane, Type::INT8)],
        )
        .await
        .map_err(StoreError::on(
            "finishing the close or interrupt of a session",
        ))?;
    Ok(Finished {
        lanes: row.get("lanes"),
        drained: row.get("drained"),
        unfinished: row.get("unfinished"),
    })
}
