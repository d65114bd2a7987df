//! Requeued dead letters, as a lane delivers them.

use tokio_postgres::GenericClient;

use super::StoreError;
use super::fetch::FetchedEvent;

/// A dead letter that is to be delivered again.
#[derive(Clone, Debug)]
pub struct RequeuedLetter {
    pub dead_id: i64,
    /// It comes before the first event behind this seq.
    pub after_seq: i64,
    /// As the log had it; whatever the subscription's filter says by now.
    pub event: FetchedEvent,
}

/// The first of a lane that this worker holds.
///
/// # Errors
/// Where it cannot be read.
pub async fn next(
    client: &impl GenericClient,
    lane_id: i64,
) -> Result<Option<RequeuedLetter>, StoreError> {
    let row = client
        .query_opt(include_str!("sql/next_letter.sql"), &[&lane_id])
        .await
        .map_err(StoreError::on("reading a requeued dead letter"))?;
    Ok(row.map(|row| {
        let payload: String = row.get("payload");
        RequeuedLetter {
            dead_id: row.get("dead_id"),
            after_seq: row.get("after_seq"),
            event: FetchedEvent {
                seq: row.get("seq"),
                day: row.get("day"),
                message_id: row.get("message_id"),
                event_type: row.get("event_type"),
                created_at: row.get("created_at"),
                size: i32::try_from(payload.len()).unwrap_or(i32::MAX),
                matched: true,
                payload: Some(payload),
                headers: row.get("headers"),
            },
        }
    }))
}
