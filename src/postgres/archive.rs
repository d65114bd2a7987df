//! Reading a day of the log from end to end, and recording where it was written to.
//!
//! It goes over a connection of its own, which has the lock for as long as it lives. A day is read in pages, each
//! a statement with a snapshot of its own: none is held for as long as the day takes, behind which the versions of
//! hot rows would pile up. What is committed behind the reader's back is found by its number: the drop counts the
//! day's events under a lock that lets no more of them come.

use futures_util::{Stream, TryStreamExt as _};
use jiff::Timestamp;
use jiff::civil::Date;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, GenericClient, Row, Statement};
use uuid::Uuid;

use super::{Database, StoreError, lane_connection};

/// Events that one statement reads.
pub const PAGE: i64 = 1_000;

/// The pages' plan does not depend on statistics of a table that others write to. A day may be long to read.
const PREPARE: &str =
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off;
                       SET plan_cache_mode = force_custom_plan; SET statement_timeout = 0";

/// A row of the log with the names that it goes by.
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

/// What became of a day that was written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Done,
    /// The day was dropped meanwhile, by somebody who was not told to archive it.
    Gone,
}

impl Reader {
    /// `None`: somebody else is at it.
    ///
    /// # Errors
    /// Where Postgres does not answer.
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
        // 1 to 4 are taken by functions: partitions, retention, what applies left to finish, the recent part.
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

    /// Up to [`PAGE`] events of a day behind `(session_id, seq)`, as fast as they are taken: the driver reads
    /// no further ahead than its buffer.
    ///
    /// # Errors
    /// Where Postgres does not answer; also in the midst of it.
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
    /// Where the connection was lost, it may have been recorded.
    pub async fn record(
        &self,
        day: Date,
        events: i64,
        bytes: i64,
        place: &str,
    ) -> Result<Recorded, StoreError> {
        let rows = self
            .client
            .execute(
                include_str!("sql/archive_record.sql"),
                &[&day, &events, &bytes, &place],
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

/// How many days past retention have events and are in no file.
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
