//! What is read and written of the database: snapshots, and events behind them.

use jiff::civil::Date;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::StoreError;

const FIND: &str = include_str!("../sql/snapshot_find.sql");
const TAKE: &str = include_str!("../sql/snapshot_take.sql");
const EVENTS: &str = include_str!("../sql/session_events.sql");
/// Events read at once; `lanekeeper.session_events` bounds their bytes.
const PAGE: i32 = 1_000;

/// Which snapshots are meant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub stream: &'a str,
    pub session: &'a str,
    pub aggregate: &'a str,
    pub schema_version: i32,
}

/// Where a fold begins.
#[derive(Debug)]
pub(super) struct Beginning {
    /// The seq of the session's newest event; 0: it has none.
    pub newest: i64,
    pub snapshot: Option<Snapshot>,
}

#[derive(Debug)]
pub(super) struct Snapshot {
    pub seq: i64,
    /// No later event is in an earlier day.
    pub day: Date,
    /// JSON text.
    pub state: String,
}

pub(super) struct StoredEvent {
    pub seq: i64,
    pub event_type: String,
    pub payload: String,
}

pub(super) async fn find(
    client: &impl GenericClient,
    key: Key<'_>,
    at: Option<i64>,
) -> Result<Beginning, StoreError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
        (&key.stream, Type::TEXT),
        (&key.session, Type::TEXT),
        (&key.aggregate, Type::TEXT),
        (&key.schema_version, Type::INT4),
        (&at, Type::INT8),
    ];
    let row = client.query_typed_one(FIND, &parameters).await;
    let read = |row: Row| {
        let seq: Option<i64> = row.try_get("seq")?;
        let snapshot = match seq {
            Some(seq) => Some(Snapshot {
                seq,
                day: row.try_get("day")?,
                state: row.try_get("state")?,
            }),
            None => None,
        };
        Ok(Beginning {
            newest: row.try_get("newest_seq")?,
            snapshot,
        })
    };
    row.and_then(read)
        .map_err(StoreError::on("looking for a snapshot"))
}

/// The events behind `after`, up to `last`: a page of them, none where there are no more.
pub(super) async fn events(
    client: &impl GenericClient,
    key: Key<'_>,
    after: i64,
    last: i64,
    since: Option<Date>,
) -> Result<Vec<StoredEvent>, StoreError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 6] = [
        (&key.stream, Type::TEXT),
        (&key.session, Type::TEXT),
        (&after, Type::INT8),
        (&last, Type::INT8),
        (&PAGE, Type::INT4),
        (&since, Type::DATE),
    ];
    let rows = client.query_typed(EVENTS, &parameters).await;
    let event = |row: &Row| {
        Ok(StoredEvent {
            seq: row.try_get("seq")?,
            event_type: row.try_get("event_type")?,
            payload: row.try_get("payload")?,
        })
    };
    rows.and_then(|rows| rows.iter().map(event).collect())
        .map_err(StoreError::on("reading the events of an aggregate"))
}

/// Whether it is there now: too large a state is not kept.
pub(super) async fn take(
    client: &impl GenericClient,
    key: Key<'_>,
    seq: i64,
    state: &str,
) -> Result<bool, StoreError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 6] = [
        (&key.stream, Type::TEXT),
        (&key.session, Type::TEXT),
        (&key.aggregate, Type::TEXT),
        (&key.schema_version, Type::INT4),
        (&seq, Type::INT8),
        (&state, Type::TEXT),
    ];
    client
        .query_typed_one(TAKE, &parameters)
        .await
        .and_then(|row| row.try_get("taken"))
        .map_err(StoreError::on("taking a snapshot"))
}
