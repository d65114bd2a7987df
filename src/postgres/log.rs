//! Reads a session's log for people and followers. It uses no lane and no ready entry, and writes nothing.

use jiff::Timestamp;
use jiff::civil::{Date, date};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::StoreError;

/// Events read at once.
const PAGE_EVENTS: i64 = 500;
/// Bytes of payload after which a page ends: a single larger one comes alone.
const PAGE_BYTES: i64 = 4 << 20;
/// Before every partition.
const BEGINNING: Date = date(2000, 1, 1);

/// A row of the log.
#[derive(Debug)]
pub struct LoggedEvent {
    pub seq: i64,
    pub message_id: Uuid,
    pub event_type: String,
    pub priority: i16,
    pub created_at: Timestamp,
    pub payload: Box<RawValue>,
    pub headers: Option<Box<RawValue>>,
    pub(super) day: Date,
}

impl LoggedEvent {
    pub(super) fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let headers: Option<Json<Box<RawValue>>> = row.try_get("headers")?;
        Ok(Self {
            seq: row.try_get("seq")?,
            message_id: row.try_get("message_id")?,
            event_type: row.try_get("event_type")?,
            priority: row.try_get("priority")?,
            created_at: row.try_get("created_at")?,
            payload: row.try_get::<_, Json<Box<RawValue>>>("payload")?.0,
            headers: headers.map(|json| json.0),
            day: row.try_get("day")?,
        })
    }
}

/// An event as `tail` prints it and the HTTP API answers it: what it prints, `enqueue --lines` reads.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "LoggedEvent")]
pub struct LineView<'a> {
    stream: &'a str,
    session: &'a str,
    seq: i64,
    message_id: Uuid,
    event_type: &'a str,
    priority: i16,
    created_at: Timestamp,
    payload: &'a RawValue,
    headers: Option<&'a RawValue>,
}

impl<'a> LineView<'a> {
    pub fn new(stream: &'a str, session: &'a str, event: &'a LoggedEvent) -> Self {
        Self {
            stream,
            session,
            seq: event.seq,
            message_id: event.message_id,
            event_type: &event.event_type,
            priority: event.priority,
            created_at: event.created_at,
            payload: &event.payload,
            headers: event.headers.as_deref(),
        }
    }
}

/// Where a reader of one session's log stands.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    session_id: i64,
    /// The seq that is read next.
    pub next_seq: i64,
    day: Date,
}

impl Reader {
    /// Starts at `from`, or at the first later event that is still kept.
    pub fn new(session_id: i64, from: i64) -> Self {
        Self {
            session_id,
            next_seq: from,
            day: BEGINNING,
        }
    }

    /// Starts at `from`, or at the first later event that is still kept and was appended on `day` or later.
    pub fn since(session_id: i64, from: i64, day: Date) -> Self {
        Self {
            session_id,
            next_seq: from,
            day,
        }
    }

    /// The next events in order; none where there are no more yet. A page is bounded in rows and
    /// bytes and holds no snapshot once it is here.
    ///
    /// # Errors
    /// Where they cannot be read; the same call goes on from the same place.
    pub async fn page(
        &mut self,
        client: &impl GenericClient,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let rows = client
            .query_typed(
                include_str!("sql/log_page.sql"),
                &[
                    (&self.session_id, Type::INT8),
                    (&self.next_seq, Type::INT8),
                    (&self.day, Type::DATE),
                    (&PAGE_EVENTS, Type::INT8),
                    (&PAGE_BYTES, Type::INT8),
                ],
            )
            .await;
        let events: Vec<LoggedEvent> = rows
            .and_then(|rows| rows.iter().map(LoggedEvent::from_row).collect())
            .map_err(StoreError::on("reading the log"))?;
        if let Some(last) = events.last() {
            self.next_seq = last.seq + 1;
            // Days never go back within a session.
            self.day = last.day;
        }
        Ok(events)
    }
}

/// The newest seq of a session; 0 where it has none.
///
/// # Errors
/// Where it cannot be read.
pub async fn newest_seq(client: &impl GenericClient, session_id: i64) -> Result<i64, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/log_newest.sql"),
            &[(&session_id, Type::INT8)],
        )
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("reading the newest seq"))
}
