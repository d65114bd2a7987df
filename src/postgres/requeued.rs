//! Reads requeued dead letters for delivery (I11: a large payload is read separately).

use tokio_postgres::GenericClient;

use super::StoreError;
use super::fetch::FetchedEvent;

const NEXT: &str = include_str!("sql/next_dead_letter.sql");
const PAYLOAD: &str = include_str!("sql/dead_letter_payload.sql");

/// A dead letter that is to be delivered again.
#[derive(Clone, Debug)]
pub struct RequeuedDeadLetter {
    pub dead_id: i64,
    /// It comes before the first event behind this seq.
    pub after_seq: i64,
    /// As the log had it; whatever the subscription's filter says by now.
    pub event: FetchedEvent,
}

/// The first of a lane that this worker holds, with its payload if that has up to `inline_bytes`.
///
/// # Errors
/// Where it cannot be read.
pub async fn next(
    client: &impl GenericClient,
    lane_id: i64,
    inline_bytes: i32,
) -> Result<Option<RequeuedDeadLetter>, StoreError> {
    let row = client
        .query_opt(NEXT, &[&lane_id, &inline_bytes])
        .await
        .map_err(StoreError::on("reading a requeued dead letter"))?;
    Ok(row.map(|row| RequeuedDeadLetter {
        dead_id: row.get("dead_id"),
        after_seq: row.get("after_seq"),
        event: FetchedEvent {
            seq: row.get("seq"),
            day: row.get("day"),
            message_id: row.get("message_id"),
            event_type: row.get::<_, &str>("event_type").into(),
            created_at: row.get("created_at"),
            size: row.get("size"),
            matched: true,
            payload: row.get("payload"),
            headers: row.get("headers"),
        },
    }))
}

/// Reads a large payload, which was not read with its dead letter.
///
/// # Errors
/// Where it cannot be read.
pub async fn payload(client: &impl GenericClient, dead_id: i64) -> Result<String, StoreError> {
    let row = client
        .query_one(PAYLOAD, &[&dead_id])
        .await
        .map_err(StoreError::on("reading the payload of a dead letter"))?;
    Ok(row.get(0))
}
