//! What live followers read: the newest events of many sessions at once, and the positions of their cursors.
//!
//! Followers write nothing and take no lane. They register interest in a stream on one connection per worker
//! (`functions/follow/`), which producers probe only where the stream has followers.
//!
//! **The commit horizon.** The cursor of a follower of a whole stream cannot list all sessions. It says "I have everything of
//! transactions below this number", and lists only the sessions whose events may have a higher one. Every transaction below
//! the horizon is over, so none of their events can appear later. Numbers of subtransactions are higher than that of
//! their transaction, so they are above the horizon as long as it is open.

use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::value::RawValue;
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use super::StoreError;
use super::log::LoggedEvent;

/// The channel of notifications for followers: `STREAM_ID SESSION_ID,…`, `fence NUMBER`, `token TOKEN_ID`.
pub const CHANNEL: &str = "lanekeeper_follow";

/// A session of a stream by its name.
#[derive(Clone, Debug)]
pub struct Named {
    pub stream_id: i32,
    pub name: String,
    /// `None`: there is none of that name yet.
    pub session_id: Option<i64>,
    /// 0 where it has no event.
    pub newest: i64,
    pub closed: Option<Closed>,
}

/// The close of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The seq of its last event.
    pub seq: i64,
    pub reason: Option<String>,
}

impl Closed {
    fn from_row(row: &Row) -> Result<Option<Self>, tokio_postgres::Error> {
        let seq: Option<i64> = row.try_get("closed_seq")?;
        let reason = row.try_get("close_reason")?;
        Ok(seq.map(|seq| Self { seq, reason }))
    }
}

/// The sessions with these names; none at all where there is no such stream.
///
/// # Errors
/// They cannot be read.
pub async fn named(
    client: &impl GenericClient,
    stream: &str,
    names: &[String],
) -> Result<Vec<Named>, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/follow_sessions.sql"),
            &[(&stream, Type::TEXT), (&names, Type::TEXT_ARRAY)],
        )
        .await;
    let named = |row: &Row| {
        Ok(Named {
            stream_id: row.try_get("stream_id")?,
            name: row.try_get("name")?,
            session_id: row.try_get("session_id")?,
            newest: row.try_get("newest")?,
            closed: Closed::from_row(row)?,
        })
    };
    rows.and_then(|rows| rows.iter().map(named).collect())
        .map_err(StoreError::on("looking for the sessions to follow"))
}

/// The state of a session by its id.
#[derive(Clone, Debug)]
pub struct State {
    pub session_id: i64,
    pub stream_id: i32,
    pub name: String,
    pub closed: Option<Closed>,
}

/// The states of sessions.
///
/// # Errors
/// They cannot be read.
pub async fn states(
    client: &impl GenericClient,
    session_ids: &[i64],
) -> Result<Vec<State>, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/follow_states.sql"),
            &[(&session_ids, Type::INT8_ARRAY)],
        )
        .await;
    let state = |row: &Row| {
        Ok(State {
            session_id: row.try_get("session_id")?,
            stream_id: row.try_get("stream_id")?,
            name: row.try_get("name")?,
            closed: Closed::from_row(row)?,
        })
    };
    rows.and_then(|rows| rows.iter().map(state).collect())
        .map_err(StoreError::on("reading the followed sessions"))
}

/// Where the reading of a session goes on.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    pub session_id: i64,
    pub seq: i64,
    /// No event from `seq` on is of an earlier day.
    pub day: Date,
}

/// How much one page may have of each session.
#[derive(Clone, Copy, Debug)]
pub struct PageBound {
    pub events: i64,
    pub bytes: i64,
    /// A larger payload is left out.
    pub payload_bytes: i64,
}

/// An event as it is read for all followers of its session.
#[derive(Debug)]
pub struct Read {
    pub session_id: i64,
    pub seq: i64,
    pub day: Date,
    pub event_type: String,
    pub created_at: Timestamp,
    /// The number of the transaction, or subtransaction, that appended it.
    pub xact: i64,
    /// `None`: its payload is larger than the bound.
    pub event: Option<LoggedEvent>,
    /// Of the session.
    pub closed: Option<Closed>,
}

impl Read {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let payload: Option<Json<Box<RawValue>>> = row.try_get("payload")?;
        Ok(Self {
            session_id: row.try_get("session_id")?,
            seq: row.try_get("seq")?,
            day: row.try_get("day")?,
            event_type: row.try_get("event_type")?,
            created_at: row.try_get("created_at")?,
            xact: row.try_get("xact")?,
            event: payload
                .is_some()
                .then(|| LoggedEvent::from_row(row))
                .transpose()?,
            closed: Closed::from_row(row)?,
        })
    }
}

/// The next events of several sessions, by session and seq.
///
/// # Errors
/// They cannot be read. The same call may be repeated.
pub async fn page(
    client: &impl GenericClient,
    next: &[Next],
    bound: PageBound,
) -> Result<Vec<Read>, StoreError> {
    let ids: Vec<i64> = next.iter().map(|next| next.session_id).collect();
    let seqs: Vec<i64> = next.iter().map(|next| next.seq).collect();
    let days: Vec<Date> = next.iter().map(|next| next.day).collect();
    let rows = client
        .query_typed(
            include_str!("sql/follow_page.sql"),
            &[
                (&ids, Type::INT8_ARRAY),
                (&seqs, Type::INT8_ARRAY),
                (&days, Type::DATE_ARRAY),
                (&bound.events, Type::INT8),
                (&bound.bytes, Type::INT8),
                (&bound.payload_bytes, Type::INT8),
            ],
        )
        .await;
    rows.and_then(|rows| rows.iter().map(Read::from_row).collect())
        .map_err(StoreError::on("reading the events of followed sessions"))
}

/// The commit horizon: every transaction below `xact` is over. No event of another one is of a day before `day`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    pub xact: i64,
    pub day: Date,
}

/// # Errors
/// It cannot be read.
pub async fn horizon(client: &impl GenericClient) -> Result<Horizon, StoreError> {
    client
        .query_typed_one(include_str!("sql/follow_horizon.sql"), &[])
        .await
        .and_then(|row| {
            Ok(Horizon {
                xact: row.try_get("xact")?,
                day: row.try_get("day")?,
            })
        })
        .map_err(StoreError::on("reading the commit horizon"))
}

/// The first day that is in the log; `None`: it is empty.
///
/// # Errors
/// It cannot be read.
pub async fn oldest_day(client: &impl GenericClient) -> Result<Option<Date>, StoreError> {
    client
        .query_typed_one(include_str!("sql/follow_oldest.sql"), &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("reading the first day of the log"))
}

/// The first seq of a session that a cursor at this horizon lacks.
///
/// # Errors
/// It cannot be read.
pub async fn first_since(
    client: &impl GenericClient,
    session_id: i64,
    xact: i64,
) -> Result<i64, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/follow_since.sql"),
            &[(&session_id, Type::INT8), (&xact, Type::INT8)],
        )
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("reading where a follower stands"))
}

/// A session that a cursor may lack events of.
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    pub session_id: i64,
    pub first: i64,
    pub newest: i64,
    /// Its events up to `newest` are of transactions below this number.
    pub next_xact: i64,
}

/// One page of a scan over a stream's sessions.
#[derive(Clone, Debug)]
pub struct ScanPage {
    pub sessions: Vec<Behind>,
    /// The session after which the scan continues. `None`: it has ended.
    pub next: Option<i64>,
}

/// Sessions that a page of a scan visits, those of other streams included.
const SCAN_SESSIONS: i64 = 1_000;

/// The sessions of a stream after `after` that have events above the horizon.
///
/// # Errors
/// They cannot be read. The same call may be repeated.
pub async fn scan(
    client: &impl GenericClient,
    stream_id: i32,
    after: i64,
    since: Horizon,
) -> Result<ScanPage, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/follow_scan.sql"),
            &[
                (&stream_id, Type::INT4),
                (&after, Type::INT8),
                (&since.day, Type::DATE),
                (&SCAN_SESSIONS, Type::INT8),
                (&since.xact, Type::INT8),
            ],
        )
        .await;
    let visited = rows.and_then(|rows| {
        rows.iter()
            .map(|row| {
                Ok((
                    row.try_get(0)?,
                    row.try_get(1)?,
                    row.try_get(2)?,
                    row.try_get(3)?,
                ))
            })
            .collect::<Result<Vec<(i64, Option<i64>, i64, i64)>, _>>()
    });
    let visited = visited.map_err(StoreError::on("scanning for sessions with new events"))?;
    let is_full = i64::try_from(visited.len()).is_ok_and(|rows| rows >= SCAN_SESSIONS);
    let next = visited
        .last()
        .filter(|_| is_full)
        .map(|&(session_id, ..)| session_id);
    let sessions = visited
        .into_iter()
        .filter_map(|(session_id, newest, first, next_xact)| {
            let newest = newest.filter(|newest| *newest >= first)?;
            Some(Behind {
                session_id,
                first,
                newest,
                next_xact,
            })
        })
        .collect();
    Ok(ScanPage { sessions, next })
}

/// Registers this connection for the notifications of a stream. Returns the transaction since which it is; `None`: a
/// producer holds the lock, call again.
///
/// # Errors
/// It may be registered all the same, until the connection ends.
pub async fn register(
    client: &impl GenericClient,
    stream_id: i32,
) -> Result<Option<String>, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/follow_stream.sql"),
            &[(&stream_id, Type::INT4)],
        )
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("registering to follow a stream"))
}

/// Whether every append notifies, since a registration at `xact`: `Ok(Some("0"))`; else what to pass as `barrier` next time.
///
/// # Errors
/// It is not known.
pub async fn is_complete(
    client: &impl GenericClient,
    xact: &str,
    barrier: Option<&str>,
) -> Result<Option<String>, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/follow_is_complete.sql"),
            &[(&xact, Type::TEXT), (&barrier, Type::TEXT)],
        )
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("waiting for appends that do not notify"))
}

/// Takes a registration back.
///
/// # Errors
/// It may stay until the connection ends.
pub async fn unregister(client: &impl GenericClient, stream_id: i32) -> Result<(), StoreError> {
    client
        .query_typed(
            include_str!("sql/unfollow_stream.sql"),
            &[(&stream_id, Type::INT4)],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("ending the registration to follow a stream"))
}

/// Appends to followed streams that did not notify, of transactions from `xact` on: streams and sessions.
///
/// # Errors
/// They cannot be read.
pub async fn silent(client: &impl GenericClient, xact: i64) -> Result<Vec<(i32, i64)>, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/follow_silent.sql"),
            &[(&xact, Type::INT8)],
        )
        .await;
    rows.and_then(|rows| {
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect()
    })
    .map_err(StoreError::on("looking for appends that did not notify"))
}

/// Has the connection notify itself with this number.
///
/// # Errors
/// It may come all the same.
pub async fn fence(client: &impl GenericClient, number: u64) -> Result<(), StoreError> {
    client
        .query_typed(
            include_str!("sql/follow_fence.sql"),
            &[(&number.to_string(), Type::TEXT)],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("notifying the follower's own connection"))
}
