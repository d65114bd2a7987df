//! The first ready entry of each route, for the backstop scan. It ignores where the claims' scans start.

use jiff::Timestamp;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::StoreError;
use super::claim::ScanStart;

/// A ready entry that exists, whether or not a worker holds its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstReadyEntry {
    pub due_at: Timestamp,
    pub entry_id: i64,
    pub lane_id: i64,
}

impl FirstReadyEntry {
    /// The latest start of a scan that finds this entry.
    pub fn scan_start(self) -> ScanStart {
        ScanStart {
            due_at: self.due_at,
            id: self.entry_id - 1,
        }
    }
}

/// The result of one backstop scan, as of one moment.
#[derive(Clone, Debug)]
pub struct FirstReadyEntries {
    /// One for each route, in the order of the parameter.
    pub entries: Vec<Option<FirstReadyEntry>>,
    /// Postgres' clock, no later than that moment.
    pub asked_at: Timestamp,
    /// The oldest open transaction that had a transaction id.
    pub oldest_open: i64,
    /// A transaction id that was assigned after `asked_at`.
    pub own_transaction: i64,
    /// Identifies the server. It changes if the server may have lost commits.
    pub server: Option<String>,
}

/// Finds the first entry of each route at or after the route's low-water mark.
///
/// # Errors
/// The query failed.
pub async fn first_ready_entries(
    client: &Client,
    routes: &[i32],
    low_water_marks: &[Timestamp],
) -> Result<FirstReadyEntries, StoreError> {
    let doing = "looking for the first entries";
    let row = client
        .query_typed_one(
            include_str!("sql/first_ready_entries.sql"),
            &[
                (&routes, Type::INT4_ARRAY),
                (&low_water_marks, Type::TIMESTAMPTZ_ARRAY),
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
