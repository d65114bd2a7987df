//! The event as the engine and the adapters see it.
//!
//! Payload and headers stay the JSON text that Postgres returned: nothing here parses them, so an
//! event that no filter, adapter or handler looks into costs no JSON work at all.

use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

/// One immutable row of a session's log.
#[derive(Clone, Debug)]
pub struct Event {
    /// Stable over retries and redeliveries; receivers deduplicate by it.
    pub message_id: Uuid,
    pub stream: Arc<str>,
    /// The ordering key inside the stream.
    pub session: Arc<str>,
    /// Position in the session's log: from 1, without gaps, in commit order.
    pub seq: i64,
    pub event_type: Arc<str>,
    /// Postgres' clock at the append.
    pub created_at: Timestamp,
    /// JSON text.
    pub payload: String,
    /// JSON text of an object; `None` where the producer gave none.
    pub headers: Option<String>,
}
