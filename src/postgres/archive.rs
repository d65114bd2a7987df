//! Reads a whole day of the log, and records where it was written to.
//!
//! The reader has its own connection, which holds the archive's lock until it closes. It reads a day in pages. Each
//! page is a statement with its own snapshot: one snapshot for the whole day would keep dead versions of hot rows in
//! the tables. Events that are committed after their page was read are noticed by the number of events: the drop of the
//! day counts them under a lock that blocks further appends to that day.

use futures_util::{Stream, TryStreamExt as _};
use jiff::Timestamp;
use jiff::civil::Date;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, GenericClient, Row, Statement};
use uuid::Uuid;

use super::{Database, StoreError, lane_connection};

/// Events that one statement reads.
pub const PAGE: i64 = 1_000;

/// Makes the plan of a page independent of the statistics of tables that change. There is no statement time-out,
/// because reading a day may take long.
const PREPARE: &str =
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off;
                       SET plan_cache_mode = force_custom_plan; SET statement_timeout = 0";

/// A row of the log, with the names of its stream and session.
#[derive(Debug)]
pub struct LogEntry {
    pub session_id: i64,
    pub seq: i64,
    pub stream: String,
    pub session: String,
    pub message_id: Uuid,
    pub event_type: String,
    pub priority: i16,
    pub created_at: Timestamp,
    /// JSON, as it is stored.
    pub payload: String,
    /// JSON.
    pub headers: Option<String>,
}

impl LogEntry {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            session_id: row.try_get("session_id")?,
            seq: row.try_get("seq")?,
            stream: row.try_get("stream")?,
            session: row.try_get("session")?,
            message_id: row.try_get("message_id")?,
            event_type: row.try_get("event_type")?,
            priority: row.try_get("priority")?,
            created_at: row.try_get("created_at")?,
            payload: row.try_get("payload")?,
            headers: row.try_get("headers")?,
        })
    }
}

/// Whoever has this is the only one to archive. Dropped, it lets others.
#[derive(Debug)]
pub struct Reader {
    client: Client,
    page: Statement,
}

/// Whether the archive of a day was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Done,
    /// Another worker, without an archive folder, dropped the day meanwhile.
    Gone,
}

impl Reader {
    /// Opens the reader. `None`: another worker holds the archive's lock.
    ///
    /// # Errors
    /// Postgres does not answer.
    pub async fn open(database: &Database) -> Result<Option<Self>, StoreError> {
        let failed = "opening a connection to read the log";
        let (client, connection) = database
            .with(lane_connection::prepare_pooled)
            .connect()
            .await
            .map_err(StoreError::on(failed))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "the archive's connection ended");
            }
        });
        client
            .batch_execute(PREPARE)
            .await
            .map_err(StoreError::on(failed))?;
        // SQL functions use 1 to 4: partitions, retention, unfinished changes of `apply`, recent partitions.
        let locked: bool = client
            .query_one(
                "SELECT pg_try_advisory_lock(lanekeeper.maintenance_lock(5))",
                &[],
            )
            .await
            .and_then(|row| row.try_get(0))
            .map_err(StoreError::on("taking the archive's lock"))?;
        if !locked {
            return Ok(None);
        }
        let page = client
            .prepare(include_str!("sql/archive_page.sql"))
            .await
            .map_err(StoreError::on("preparing to read the log"))?;
        Ok(Some(Self { client, page }))
    }

    /// The next day that is to be archived.
    ///
    /// # Errors
    /// Where Postgres does not answer.
    pub async fn next_day(&self, retention_days: i32) -> Result<Option<Date>, StoreError> {
        self.client
            .query_opt(include_str!("sql/archive_day.sql"), &[&retention_days])
            .await
            .and_then(|row| row.map(|row| row.try_get("day")).transpose())
            .map_err(StoreError::on("looking for a day to archive"))
    }

    /// Streams up to [`PAGE`] events of a day after `(session_id, seq)`. The driver reads ahead only as far as its
    /// buffer goes.
    ///
    /// # Errors
    /// Postgres does not answer. The stream may also end with this error.
    pub async fn page(
        &self,
        day: Date,
        (session_id, seq): (i64, i64),
    ) -> Result<impl Stream<Item = Result<LogEntry, StoreError>> + use<>, StoreError> {
        let failed = "reading a day of the log";
        let parameters: [&(dyn ToSql + Sync); 4] = [&day, &session_id, &seq, &PAGE];
        let rows = self
            .client
            .query_raw(&self.page, parameters)
            .await
            .map_err(StoreError::on(failed))?;
        Ok(rows
            .and_then(|row| std::future::ready(LogEntry::from_row(&row)))
            .map_err(move |error| StoreError::on(failed)(error)))
    }

    /// Records where a day is.
    ///
    /// # Errors
    /// Nothing was recorded, unless the connection was lost: then it may have been.
    pub async fn record(
        &self,
        day: Date,
        events: i64,
        bytes: i64,
        sha256: &[u8],
        place: &str,
    ) -> Result<Recorded, StoreError> {
        let rows = self
            .client
            .execute(
                include_str!("sql/archive_record.sql"),
                &[&day, &events, &bytes, &place, &sha256],
            )
            .await
            .map_err(StoreError::on("recording where a day was archived"))?;
        Ok(if rows == 0 {
            Recorded::Gone
        } else {
            Recorded::Done
        })
    }
}

/// Counts the days past retention that have events and are not archived.
///
/// # Errors
/// Where Postgres does not answer.
pub async fn waiting(client: &impl GenericClient, retention_days: i32) -> Result<i64, StoreError> {
    client
        .query_one(include_str!("sql/archive_waiting.sql"), &[&retention_days])
        .await
        .and_then(|row| row.try_get("days"))
        .map_err(StoreError::on("counting days that wait to be archived"))
}
