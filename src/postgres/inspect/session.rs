//! Lists sessions, the newest first.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::registry::{RegistryEntry, seconds};
use super::{StoreError, read};

/// A session and how far it got.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct SessionStatus {
    #[serde(skip)]
    pub session_id: i64,
    pub stream: String,
    pub session: String,
    pub created_at: Timestamp,
    /// Seq of its newest event; 0 where it has none.
    pub newest_seq: i64,
    /// Of the newest event that is still kept.
    pub last_event_at: Option<Timestamp>,
    pub lanes: i64,
    pub parked: i64,
    /// Of the lane that is furthest behind: events after its cursor, if it has one of them to deliver.
    pub behind: i64,
    /// Since when it takes no appends.
    pub closed_at: Option<Timestamp>,
    pub close_reason: Option<String>,
    /// It is closed, and what is there is delivered first.
    pub draining: bool,
    /// What its events told; `None` where it is no agent's session, or the registry is off.
    pub registry: Option<RegistryEntry>,
}

impl SessionStatus {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            session_id: row.try_get("session_id")?,
            stream: row.try_get("stream")?,
            session: row.try_get("session")?,
            created_at: row.try_get("created_at")?,
            newest_seq: row.try_get("newest_seq")?,
            last_event_at: row.try_get("last_event_at")?,
            lanes: row.try_get("lanes")?,
            parked: row.try_get("parked")?,
            behind: row.try_get("behind")?,
            closed_at: row.try_get("closed_at")?,
            close_reason: row.try_get("close_reason")?,
            draining: row.try_get("draining")?,
            registry: RegistryEntry::from_row(row)?,
        })
    }
}

/// The newest `limit` sessions, of one stream or of all; or those of some ids. `stale_after_s`: for how many seconds
/// nothing has come of a running turn that is stale.
///
/// # Errors
/// Where they cannot be read.
pub async fn sessions(
    client: &impl GenericClient,
    stream_id: Option<i32>,
    session_ids: Option<&[i64]>,
    stale_after_s: u32,
    limit: i64,
) -> Result<Vec<SessionStatus>, StoreError> {
    let statement = include_str!("../sql/session_list.sql");
    read(
        client,
        "listing sessions",
        statement,
        &[
            (&stream_id, Type::INT4),
            (&session_ids, Type::INT8_ARRAY),
            (&limit, Type::INT8),
            (&seconds(stale_after_s), Type::INT4),
        ],
        SessionStatus::from_row,
    )
    .await
}

/// A page out of a stretch of rows.
#[derive(Debug)]
pub struct Stretch<T> {
    pub rows: Vec<T>,
    /// The lowest id of the stretch, where there is more behind it.
    pub scanned_to: Option<i64>,
}

/// Sessions that are read for a page of them.
const STRETCH: i64 = 5_000;

/// The ids of the newest `limit` sessions of these streams (`None`: of all) with an id lower than `before`.
///
/// # Errors
/// Where they cannot be read.
pub async fn session_page(
    client: &impl GenericClient,
    stream_ids: Option<&[i32]>,
    before: Option<i64>,
    limit: i64,
) -> Result<Stretch<i64>, StoreError> {
    let rows = read(
        client,
        "listing sessions",
        include_str!("../sql/session_page.sql"),
        &[
            (&stream_ids, Type::INT4_ARRAY),
            (&before, Type::INT8),
            (&STRETCH, Type::INT8),
            (&limit, Type::INT8),
        ],
        |row| Ok((row.try_get("scanned_to")?, row.try_get("session_id")?)),
    )
    .await?;
    Ok(Stretch::of(rows))
}

impl<T> Stretch<T> {
    /// From rows that each have the end of the stretch, of which one has nothing else where nothing fits.
    pub(super) fn of(rows: Vec<(Option<i64>, Option<T>)>) -> Self {
        let scanned_to = rows.first().and_then(|(scanned_to, _)| *scanned_to);
        let rows = rows.into_iter().filter_map(|(_, row)| row).collect();
        Self { rows, scanned_to }
    }
}
