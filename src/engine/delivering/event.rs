//! The event that a destination gets, made of a fetched row and its payload. Adapter lanes and handler lanes share it.

use std::sync::Arc;

use lanekeeper_core::event::Event;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::fetch::{self, FetchedEvent};
use lanekeeper_postgres::requeued;
use tokio_postgres::GenericClient;

/// Reads a payload that was not fetched with its batch: of the dead letter that is the head, or of the log's event.
pub async fn large_payload(
    client: &impl GenericClient,
    session_id: i64,
    event: &FetchedEvent,
    dead_letter: Option<i64>,
) -> Result<String, StoreError> {
    match dead_letter {
        Some(dead_id) => requeued::payload(client, dead_id).await,
        None => fetch::payload(client, session_id, event.seq, event.day).await,
    }
}

/// The event for the destination.
pub fn event_of(
    fetched: FetchedEvent,
    payload: String,
    stream: &Arc<str>,
    session: &Arc<str>,
) -> Event {
    Event {
        message_id: fetched.message_id,
        stream: Arc::clone(stream),
        session: Arc::clone(session),
        seq: fetched.seq,
        event_type: fetched.event_type,
        created_at: fetched.created_at,
        payload,
        headers: fetched.headers,
    }
}
