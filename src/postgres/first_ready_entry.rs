//! The first entry of each route, wherever the walks have come to.

use jiff::Timestamp;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::StoreError;
use super::claim::ScanStart;

/// A due entry that is there, whoever holds its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstReadyEntry {
    pub due_at: Timestamp,
    pub entry_id: i64,
    pub lane_id: i64,
}

impl FirstReadyEntry {
    /// From where a walk takes it.
    pub fn bound(self) -> ScanStart {
        ScanStart {
            due_at: self.due_at,
            id: self.entry_id - 1,
        }
    }
}

/// How things stood at one moment.
#[derive(Clone, Debug)]
pub struct FirstReadyEntries {
    /// In the order of the routes that were asked for.
    pub entries: Vec<Option<FirstReadyEntry>>,
    /// Postgres' clock, no later than the moment.
    pub asked_at: Timestamp,
    /// The oldest transaction that was open and had a number.
    pub oldest_open: i64,
    /// A number that was drawn after `asked_at`.
    pub own_transaction: i64,
    /// Another one where commits may have been lost since.
    pub server: Option<String>,
}

/// Looks for the first entry of each route from its floor on.
///
/// # Errors
/// It is not known.
pub async fn first_ready_entries(
    client: &Client,
    routes: &[i32],
    floors: &[Timestamp],
) -> Result<FirstReadyEntries, StoreError> {
    let doing = "looking for the first entries";
    let row = client
        .query_typed_one(
            include_str!("sql/first_ready_entries.sql"),
            &[
                (&routes, Type::INT4_ARRAY),
                (&floors, Type::TIMESTAMPTZ_ARRAY),
            ],
        )
        .await
        .map_err(StoreError::on(doing))?;
    read(&row).map_err(StoreError::on(doing))
}

fn read(row: &Row) -> Result<FirstReadyEntries, tokio_postgres::Error> {
    let due_at: Option<Vec<Option<Timestamp>>> = row.try_get(0)?;
    let entry_ids: Option<Vec<Option<i64>>> = row.try_get(1)?;
    let lane_ids: Option<Vec<Option<i64>>> = row.try_get(2)?;
    let entries = due_at
        .unwrap_or_default()
        .into_iter()
        .zip(entry_ids.unwrap_or_default())
        .zip(lane_ids.unwrap_or_default())
        .map(|((due_at, entry_id), lane_id)| {
            Some(FirstReadyEntry {
                due_at: due_at?,
                entry_id: entry_id?,
                lane_id: lane_id?,
            })
        })
        .collect();
    Ok(FirstReadyEntries {
        entries,
        asked_at: row.try_get(3)?,
        oldest_open: row.try_get(4)?,
        own_transaction: row.try_get(5)?,
        server: row.try_get(6)?,
    })
}
