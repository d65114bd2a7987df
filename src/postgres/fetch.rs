//! Reads the next events of held lanes. It reads only the recent partitions if they have all the events that the lanes
//! need, else the whole log, with a plan that has every partition.

mod arrival;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::TryStreamExt;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::de::IgnoredAny;
use tokio::sync::OnceCell;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, Row, Statement};
use uuid::Uuid;

use self::arrival::Arrival;
use super::StoreError;

const FETCHING: &str = "fetching events";
/// The size that the query returns for a filtered event.
const FILTERED: i32 = -1;
/// The low bits of the first column hold the seq; the bits above hold the number of the position.
const SEQ_BITS: u32 = 47;
/// The header of an event that was cancelled.
const CANCELLED: &str = "lanekeeper-cancelled";
pub const FETCH: &str = include_str!("sql/fetch.sql");
pub const PAYLOAD: &str = include_str!("sql/payload.sql");
pub const RESTORED_PAYLOAD: &str = include_str!("sql/restored_payload.sql");

/// The position from which to read a lane's events.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    pub session_id: i64,
    pub cursor: i64,
    pub cursor_day: Date,
    pub subscription_id: i32,
}

/// A row of the log, as one lane gets it.
#[derive(Clone, Debug)]
pub struct FetchedEvent {
    pub seq: i64,
    pub day: Date,
    pub message_id: Uuid,
    pub event_type: Arc<str>,
    pub created_at: Timestamp,
    /// Bytes of the payload as JSON text; without meaning if the event was filtered.
    pub size: i32,
    /// Whether the subscription's filter lets it through.
    pub matched: bool,
    /// JSON text. `None`: the event was filtered, or its payload is too large for the fetch and is read later.
    pub payload: Option<String>,
    pub headers: Option<String>,
}

impl FetchedEvent {
    /// Reads a row. Returns the index of the lane's position, and the event. The row omits the day if it is `day`, and
    /// the type if it is `usual_type`.
    fn of(row: &Row, day: Date, usual_type: &Arc<str>, last_type: &mut Arc<str>) -> (usize, Self) {
        let index_and_seq: i64 = row.get(0);
        let index = usize::try_from(index_and_seq >> SEQ_BITS).expect("an index counts from 1") - 1;
        let payload: Option<String> = row.get(5);
        let left_out: Option<i32> = row.get(6);
        let came = || payload.as_ref().map_or(0, String::len);
        let event = Self {
            seq: index_and_seq & ((1 << SEQ_BITS) - 1),
            day: row.get::<_, Option<Date>>(1).unwrap_or(day),
            message_id: row.get(2),
            event_type: match row.get::<_, Option<&str>>(4) {
                None => Arc::clone(usual_type),
                // Reuse the allocation if the type is that of the row before.
                Some(other) if **last_type == *other => Arc::clone(last_type),
                Some(other) => {
                    *last_type = Arc::from(other);
                    Arc::clone(last_type)
                }
            },
            created_at: row.get(3),
            size: left_out.unwrap_or_else(|| i32::try_from(came()).unwrap_or(i32::MAX)),
            matched: left_out != Some(FILTERED),
            payload,
            headers: row.get(7),
        };
        (index, event)
    }

    /// Whether `lanekeeper.cancel` has marked it.
    pub fn is_cancelled(&self) -> bool {
        self.headers.as_deref().is_some_and(|headers| {
            headers.contains(CANCELLED)
                && serde_json::from_str::<HashMap<String, IgnoredAny>>(headers)
                    .is_ok_and(|headers| headers.contains_key(CANCELLED))
        })
    }

    /// The bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        // Counts the type's bytes for each event, although events share the type.
        size_of::<Self>()
            + self.event_type.len()
            + self.payload.as_ref().map_or(0, String::len)
            + self.headers.as_ref().map_or(0, String::len)
    }
}

/// The prepared fetch of one connection.
pub struct Fetch {
    recent: Statement,
    /// Its plan has every partition of the log, so it is prepared only when it is needed.
    all: OnceCell<Statement>,
    /// The first day of the recent partitions, as last read. The statement refuses an earlier day.
    since: Mutex<Option<Date>>,
    /// The most frequent type of the last events. Rows with this type omit it.
    usual_type: Mutex<Arc<str>>,
}

/// Prepares the fetch for a lane connection.
///
/// # Errors
/// Where the schema lacks what it reads.
pub async fn prepare(client: &Client) -> Result<Fetch, StoreError> {
    let fetch = Fetch {
        recent: prepare_on(client, FETCH).await?,
        all: OnceCell::new(),
        since: Mutex::new(None),
        usual_type: Mutex::new(Arc::from("")),
    };
    // Otherwise the first fetch of an old backlog would write an error to the server's log.
    fetch.learn(client).await?;
    Ok(fetch)
}

async fn prepare_on(client: &Client, statement: &str) -> Result<Statement, StoreError> {
    let types = [
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::DATE_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8,
        Type::INT4,
        Type::INT4_ARRAY,
        Type::DATE,
        Type::TEXT,
    ];
    client
        .prepare_typed(statement, &types)
        .await
        .map_err(StoreError::on("preparing the fetch"))
}

impl Fetch {
    async fn all(&self, client: &Client) -> Result<&Statement, StoreError> {
        let statement = || async {
            let statement = FETCH
                .replace("lanekeeper.recent_event", "lanekeeper.event")
                .replace("lanekeeper.require_recent($8)", "$8::date IS NOT NULL");
            prepare_on(client, &statement).await
        };
        self.all.get_or_try_init(statement).await
    }

    fn since(&self) -> Option<Date> {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn learn(&self, client: &Client) -> Result<(), StoreError> {
        let row = client
            .query_typed_one("SELECT since FROM lanekeeper.recent_since", &[])
            .await
            .map_err(StoreError::on("asking for the recent part of the log"))?;
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(row.get(0));
        Ok(())
    }

    async fn read(
        &self,
        client: &Client,
        statement: &Statement,
        positions: &[Position],
        rows: i64,
        inline_bytes: i32,
        give: impl FnMut(usize, Vec<FetchedEvent>),
    ) -> Result<(), tokio_postgres::Error> {
        let sessions: Vec<i64> = positions
            .iter()
            .map(|position| position.session_id)
            .collect();
        let cursors: Vec<i64> = positions.iter().map(|position| position.cursor).collect();
        let days: Vec<Date> = positions
            .iter()
            .map(|position| position.cursor_day)
            .collect();
        let oldest = days.iter().min().copied().unwrap_or(Date::MAX);
        let subscriptions: Vec<i32> = positions
            .iter()
            .map(|position| position.subscription_id)
            .collect();
        let mut distinct = subscriptions.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let usual_type = Arc::clone(
            &self
                .usual_type
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let usual_name = &*usual_type;
        let mut last_type = Arc::clone(&usual_type);
        let parameters: [&(dyn ToSql + Sync); 9] = [
            &sessions,
            &cursors,
            &days,
            &subscriptions,
            &rows,
            &inline_bytes,
            &distinct,
            &oldest,
            &usual_name,
        ];
        let mut found = pin!(client.query_raw(statement, parameters).await?);
        let mut arrival = Arrival::new(positions, give);
        let (mut usual, mut others) = (0_usize, 0_usize);
        while let Some(row) = found.try_next().await? {
            let (place, event) = FetchedEvent::of(&row, oldest, &usual_type, &mut last_type);
            if Arc::ptr_eq(&event.event_type, &usual_type) {
                usual += 1;
            } else {
                others += 1;
            }
            arrival.row(place, event);
        }
        arrival.end();
        if others > usual {
            *self
                .usual_type
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = last_type;
        }
        Ok(())
    }
}

/// Reads the next events of each position, in order: at most `rows` for each, with payloads of up to `inline_bytes`.
///
/// # Errors
/// Nothing was changed.
pub async fn fetch(
    client: &Client,
    fetch: &Fetch,
    positions: &[Position],
    rows: i64,
    inline_bytes: i32,
) -> Result<Vec<Vec<FetchedEvent>>, StoreError> {
    let mut batches: Vec<Vec<FetchedEvent>> = positions.iter().map(|_| Vec::new()).collect();
    let give = |at: usize, events| batches[at] = events;
    fetch_each(client, fetch, positions, rows, inline_bytes, give).await?;
    Ok(batches)
}

/// Like [`fetch`], but hands on each position's events as soon as they have arrived, with the position's index: once
/// for each position, even if it has no events. A position may get fewer events than there are.
///
/// # Errors
/// Nothing was changed. Positions that have got no events so far get none.
pub async fn fetch_each(
    client: &Client,
    fetch: &Fetch,
    positions: &[Position],
    rows: i64,
    inline_bytes: i32,
    mut give: impl FnMut(usize, Vec<FetchedEvent>),
) -> Result<(), StoreError> {
    loop {
        let since = fetch.since();
        let is_old = |at: &usize| since.is_some_and(|day| positions[*at].cursor_day < day);
        let (old, recent): (Vec<usize>, Vec<usize>) = (0..positions.len()).partition(is_old);
        let of = |places: &[usize]| -> Vec<Position> {
            places.iter().map(|at| positions[*at]).collect()
        };
        if !recent.is_empty() {
            let give = |at: usize, events| give(recent[at], events);
            let statement = &fetch.recent;
            match fetch
                .read(client, statement, &of(&recent), rows, inline_bytes, give)
                .await
            {
                Ok(()) => {}
                // Refused as a whole: nothing was given. It has moved.
                Err(error) if error.code() == Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE) => {
                    fetch.learn(client).await?;
                    continue;
                }
                Err(error) => return Err(StoreError::on(FETCHING)(error)),
            }
        }
        if !old.is_empty() {
            let all = fetch.all(client).await?;
            let give = |at: usize, events| give(old[at], events);
            fetch
                .read(client, all, &of(&old), rows, inline_bytes, give)
                .await
                .map_err(StoreError::on(FETCHING))?;
            // It may have moved, and back too.
            fetch.learn(client).await?;
        }
        return Ok(());
    }
}

/// A payload that did not come with its batch: of the log, or of a restored day that is replayed.
///
/// # Errors
/// Where it cannot be read.
pub async fn payload(
    client: &impl GenericClient,
    session_id: i64,
    seq: i64,
    day: Date,
) -> Result<String, StoreError> {
    let failed = "fetching a large payload";
    let place: [&(dyn ToSql + Sync); 3] = [&session_id, &seq, &day];
    let of_log = client
        .query_opt(PAYLOAD, &place)
        .await
        .map_err(StoreError::on(failed))?;
    let row = match of_log {
        Some(row) => row,
        None => client
            .query_one(RESTORED_PAYLOAD, &place)
            .await
            .map_err(StoreError::on(failed))?,
    };
    Ok(row.get(0))
}
