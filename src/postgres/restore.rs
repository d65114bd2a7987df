//! Restores archived days for replays: what is on record of a file, the lanes that its sessions lack, and its events.
//!
//! The events are copied in one transaction, so a day is there as a whole or not at all, whatever ends the process. They go
//! to a table of their own (`restored_event`) that only replays read.

use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{Client, GenericClient, Row, Transaction};
use uuid::Uuid;

use super::StoreError;

pub const FIND: &str = include_str!("sql/archive_find.sql");
pub const LIST: &str = include_str!("sql/archive_list.sql");
pub const SESSIONS: &str = include_str!("sql/restore_sessions.sql");
pub const BEGIN: &str = include_str!("sql/restore_begin.sql");
pub const COPY: &str = include_str!("sql/restore_copy.sql");

/// The columns of COPY.
const TYPES: [Type; 10] = [
    Type::INT8,
    Type::INT8,
    Type::DATE,
    Type::INT2,
    Type::INT4,
    Type::TIMESTAMPTZ,
    Type::UUID,
    Type::TEXT,
    Type::TEXT,
    Type::JSONB,
];

/// What is on record of an archive file.
#[derive(Clone, Copy, Debug)]
pub struct OnRecord {
    pub day: Date,
    pub events: i64,
    pub bytes: i64,
    /// The file is the one that was recorded. Otherwise it has the name of one, and another content.
    pub is_whole: bool,
    /// The log has the day.
    pub in_log: bool,
}

/// Looks for a file by its SHA-256, or else by its name.
///
/// # Errors
/// Where it cannot be read.
pub async fn find(
    client: &impl GenericClient,
    sha256: &[u8],
    name: &str,
) -> Result<Option<OnRecord>, StoreError> {
    let operation = "looking for an archive file";
    let found = client
        .query_opt(FIND, &[&sha256, &name])
        .await
        .map_err(StoreError::on(operation))?;
    let on_record = |row: Row| {
        Ok(OnRecord {
            day: row.try_get("day")?,
            events: row.try_get("events")?,
            bytes: row.try_get("bytes")?,
            is_whole: row.try_get("is_whole")?,
            in_log: row.try_get("in_log")?,
        })
    };
    found
        .map(on_record)
        .transpose()
        .map_err(StoreError::on(operation))
}

/// A file of the archive that counts.
#[derive(Clone, Debug, Serialize)]
pub struct ArchivedDay {
    pub day: Date,
    /// The file, as the worker that wrote it calls it.
    pub location: String,
    pub events: i64,
    pub bytes: i64,
    pub archived_at: Timestamp,
    /// When the day left the log; `None`: it is there.
    pub dropped_at: Option<Timestamp>,
    pub restored_at: Option<Timestamp>,
    /// Until when what was restored is kept, or longer where a replay needs it.
    pub keep_until: Option<Timestamp>,
}

/// The archive files that count, the newest day first.
///
/// # Errors
/// Where they cannot be read.
pub async fn list(client: &impl GenericClient, limit: i64) -> Result<Vec<ArchivedDay>, StoreError> {
    let operation = "listing the archive";
    let rows = client
        .query(LIST, &[&limit])
        .await
        .map_err(StoreError::on(operation))?;
    let day = |row: &Row| {
        Ok(ArchivedDay {
            day: row.try_get("day")?,
            location: row.try_get("location")?,
            events: row.try_get("events")?,
            bytes: row.try_get("bytes")?,
            archived_at: row.try_get("archived_at")?,
            dropped_at: row.try_get("dropped_at")?,
            restored_at: row.try_get("restored_at")?,
            keep_until: row.try_get("keep_until")?,
        })
    };
    rows.iter()
        .map(day)
        .collect::<Result<_, _>>()
        .map_err(StoreError::on(operation))
}

/// The ids of sessions by their streams and names; `None`: there is no such session.
///
/// # Errors
/// Where they cannot be read.
pub async fn sessions(
    client: &impl GenericClient,
    streams: &[&str],
    names: &[&str],
) -> Result<Vec<Option<i64>>, StoreError> {
    let operation = "looking for the sessions of an archive file";
    let rows = client
        .query(SESSIONS, &[&streams, &names])
        .await
        .map_err(StoreError::on(operation))?;
    rows.iter()
        .map(|row| row.try_get("session_id"))
        .collect::<Result<_, _>>()
        .map_err(StoreError::on(operation))
}

/// Gives sessions the lanes that they lack; returns how many sessions lacked some.
///
/// # Errors
/// Nothing of this call was done. LK007: a session is being appended to.
pub async fn lanes(client: &impl GenericClient, session_ids: &[i64]) -> Result<i64, StoreError> {
    client
        .query_one("SELECT lanekeeper.restore_lanes($1)", &[&session_ids])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("adding lanes to sessions of a restored day"))
}

/// Drops restored days that were kept long enough; returns how many.
///
/// # Errors
/// Nothing was dropped.
pub async fn drop_days(client: &impl GenericClient) -> Result<i64, StoreError> {
    client
        .query_one("SELECT lanekeeper.drop_restored_days()", &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::on("dropping restored days"))
}

/// An event of an archive file.
#[derive(Clone, Copy, Debug)]
pub struct RestoredEvent<'e> {
    pub session_id: i64,
    pub seq: i64,
    pub priority: i16,
    pub created_at: Timestamp,
    pub message_id: Uuid,
    pub event_type: &'e str,
    /// JSON, as it was stored.
    pub payload: &'e str,
    pub headers: Option<&'e RawValue>,
}

/// A day that is being restored. Dropped before [`Restore::commit`], it leaves nothing.
pub struct Restore<'c> {
    transaction: Transaction<'c>,
    writer: Pin<Box<BinaryCopyInWriter>>,
    day: Date,
    /// How many events the file has.
    pub events: i64,
}

const COPYING: &str = "restoring the events of a day";

impl<'c> Restore<'c> {
    /// Begins to restore the day of the file with this SHA-256.
    ///
    /// # Errors
    /// Nothing was changed. LK006: there is no such file, or its day is there; LK007: another restore is under way.
    pub async fn begin(
        client: &'c mut Client,
        sha256: &[u8],
        keep: Duration,
    ) -> Result<Self, StoreError> {
        let operation = "beginning to restore a day";
        let transaction = client
            .transaction()
            .await
            .map_err(StoreError::on(operation))?;
        // Copying a day takes as long as it takes.
        transaction
            .batch_execute("SET LOCAL statement_timeout = 0")
            .await
            .map_err(StoreError::on(operation))?;
        let row = transaction
            .query_one(BEGIN, &[&sha256, &keep.as_secs_f64()])
            .await
            .map_err(StoreError::on(operation))?;
        let sink = transaction
            .copy_in(COPY)
            .await
            .map_err(StoreError::on(COPYING))?;
        Ok(Self {
            transaction,
            writer: Box::pin(BinaryCopyInWriter::new(sink, &TYPES)),
            day: row.try_get("day").map_err(StoreError::on(operation))?,
            events: row.try_get("events").map_err(StoreError::on(operation))?,
        })
    }

    /// # Errors
    /// Nothing will have been restored.
    pub async fn write(&mut self, event: RestoredEvent<'_>) -> Result<(), StoreError> {
        let size = i32::try_from(event.payload.len()).unwrap_or(i32::MAX);
        let headers = event.headers.map(Json);
        self.writer
            .as_mut()
            .write(&[
                &event.session_id,
                &event.seq,
                &self.day,
                &event.priority,
                &size,
                &event.created_at,
                &event.message_id,
                &event.event_type,
                &event.payload,
                &headers,
            ])
            .await
            .map_err(StoreError::on(COPYING))
    }

    /// Ends the copy.
    ///
    /// # Errors
    /// Nothing will have been restored.
    pub async fn finish(&mut self) -> Result<(), StoreError> {
        let finished = self.writer.as_mut().finish().await;
        finished.map(drop).map_err(StoreError::on(COPYING))
    }

    /// Replays read the day from now on.
    ///
    /// # Errors
    /// Nothing was restored, unless the connection broke during the commit: `archive list` says whether it was.
    pub async fn commit(self) -> Result<(), StoreError> {
        self.transaction
            .commit()
            .await
            .map_err(StoreError::on("committing a restored day"))
    }
}
