//! A session's events as a timeline, with what became of each at every destination.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::{StoreError, read};

/// An event without its payload.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct TimelineEvent {
    pub seq: i64,
    pub message_id: Uuid,
    pub event_type: String,
    pub priority: i16,
    pub created_at: Timestamp,
    /// Bytes of the payload.
    pub size: i32,
    /// As W3C Trace Context writes it, if the event has one.
    pub traceparent: Option<String>,
}

/// The newest `limit` events of a session before a seq.
///
/// # Errors
/// Where they cannot be read.
pub async fn timeline(
    client: &impl GenericClient,
    session_id: i64,
    before: i64,
    limit: i64,
) -> Result<Vec<TimelineEvent>, StoreError> {
    let event = |row: &Row| {
        Ok(TimelineEvent {
            seq: row.try_get("seq")?,
            message_id: row.try_get("message_id")?,
            event_type: row.try_get("event_type")?,
            priority: row.try_get("priority")?,
            created_at: row.try_get("created_at")?,
            size: row.try_get("size")?,
            traceparent: row.try_get("traceparent")?,
        })
    };
    read(
        client,
        "reading a session's log",
        include_str!("../sql/timeline_page.sql"),
        &[
            (&session_id, Type::INT8),
            (&before, Type::INT8),
            (&limit, Type::INT8),
        ],
        event,
    )
    .await
}

/// What became of an event at one lane: a row of the view `lanekeeper.message`, which says what the states mean.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Fate {
    #[serde(skip)]
    pub seq: i64,
    pub lane_id: i64,
    pub state: String,
    /// Of the lane's head.
    pub attempts: Option<i32>,
    pub error: Option<String>,
    /// The seq of the event that went instead.
    pub replaced_by: Option<i64>,
    pub settled_at: Option<Timestamp>,
}

/// What became of the events between two seqs, which are part of it, at some lanes of a session.
///
/// # Errors
/// Where they cannot be read.
pub async fn fates(
    client: &impl GenericClient,
    (stream, session): (&str, &str),
    (from, to): (i64, i64),
    lane_ids: &[i64],
) -> Result<Vec<Fate>, StoreError> {
    let fate = |row: &Row| {
        Ok(Fate {
            seq: row.try_get("seq")?,
            lane_id: row.try_get("lane_id")?,
            state: row.try_get("state")?,
            attempts: row.try_get("attempts")?,
            error: row.try_get("error")?,
            replaced_by: row.try_get("replaced_by")?,
            settled_at: row.try_get("settled_at")?,
        })
    };
    read(
        client,
        "reading what became of events",
        include_str!("../sql/timeline_fate.sql"),
        &[
            (&stream, Type::TEXT),
            (&session, Type::TEXT),
            (&from, Type::INT8),
            (&to, Type::INT8),
            (&lane_ids, Type::INT8_ARRAY),
        ],
        fate,
    )
    .await
}

/// The beginning of what an event carries.
#[derive(Clone, Debug)]
pub struct Excerpt {
    pub event_type: String,
    pub message_id: Uuid,
    pub created_at: Timestamp,
    /// Bytes of the whole payload.
    pub size: i32,
    pub payload: String,
    pub headers: Option<String>,
}

/// At most `characters` of an event's payload, and of its headers. `None`: there is no such event.
///
/// # Errors
/// Where it cannot be read.
pub async fn excerpt(
    client: &impl GenericClient,
    session_id: i64,
    seq: i64,
    characters: i32,
) -> Result<Option<Excerpt>, StoreError> {
    let excerpt = |row: &Row| {
        Ok(Excerpt {
            event_type: row.try_get("event_type")?,
            message_id: row.try_get("message_id")?,
            created_at: row.try_get("created_at")?,
            size: row.try_get("size")?,
            payload: row.try_get("payload")?,
            headers: row.try_get("headers")?,
        })
    };
    let mut found = read(
        client,
        "reading a payload",
        include_str!("../sql/timeline_payload.sql"),
        &[
            (&session_id, Type::INT8),
            (&seq, Type::INT8),
            (&characters, Type::INT4),
        ],
        excerpt,
    )
    .await?;
    Ok(found.pop())
}
