//! Follows all sessions of a stream by their logs. It uses no lane and writes nothing.
//!
//! It compares a session's newest visible seq with the follower's cursor, never a timestamp or an id that was assigned
//! before the commit. Within a session, seqs commit in order, so a newest seq above the cursor always means new events,
//! whenever their producers committed.
//!
//! A pass reads the sessions with events of today or yesterday, in pages. It costs one index descent for each of them,
//! whatever the length of the log. It misses an event that was appended more than a day before its transaction
//! committed.

use jiff::civil::Date;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient};

use super::{StoreError, inspect};

/// Sessions that a page visits, those of other streams included.
const PAGE_SESSIONS: i64 = 1_000;

/// A session of the stream, with its newest seq.
#[derive(Clone, Debug)]
pub struct NewestSeq {
    pub session_id: i64,
    pub session: String,
    pub seq: i64,
}

/// One page of a pass.
#[derive(Clone, Debug)]
pub struct Page {
    pub sessions: Vec<NewestSeq>,
    /// The session after which the pass continues. `None`: the pass has ended.
    pub next: Option<i64>,
}

/// The first day that a pass reads.
///
/// # Errors
/// It cannot be read.
pub async fn since(client: &impl GenericClient) -> Result<Date, StoreError> {
    client
        .query_typed_one(include_str!("sql/log_follow_since.sql"), &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("reading the server's date"))
}

/// The sessions of a stream after `after` with events of `since` or later.
///
/// # Errors
/// They cannot be read. The same call may be repeated.
pub async fn page(
    client: &mut Client,
    stream_id: i32,
    after: i64,
    since: Date,
) -> Result<Page, StoreError> {
    let reading = inspect::begin(client).await?;
    let rows = reading
        .query_typed(
            include_str!("sql/log_follow.sql"),
            &[
                (&stream_id, Type::INT4),
                (&after, Type::INT8),
                (&since, Type::DATE),
                (&PAGE_SESSIONS, Type::INT8),
            ],
        )
        .await;
    let visited = rows.and_then(|rows| {
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
            .collect::<Result<Vec<(i64, Option<String>, Option<i64>)>, _>>()
    });
    let visited = visited.map_err(StoreError::on("reading the sessions with new events"))?;
    let is_full = i64::try_from(visited.len()).is_ok_and(|rows| rows >= PAGE_SESSIONS);
    let next = visited
        .last()
        .filter(|_| is_full)
        .map(|&(session_id, ..)| session_id);
    let sessions = visited
        .into_iter()
        .filter_map(|(session_id, session, seq)| {
            Some(NewestSeq {
                session_id,
                session: session?,
                seq: seq?,
            })
        })
        .collect();
    Ok(Page { sessions, next })
}

/// The event types of a stream that subscriptions without a list of their own receive; `None`: all.
///
/// # Errors
/// Where they cannot be read.
pub async fn fan_out(
    client: &impl GenericClient,
    stream_id: i32,
) -> Result<Option<Vec<String>>, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/stream_fan_out.sql"),
            &[(&stream_id, Type::INT4)],
        )
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("reading the stream's event types"))
}
