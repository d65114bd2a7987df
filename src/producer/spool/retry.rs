//! Sends rejected records once more, on an operator's word: after the stream's limit was raised, or
//! what locked a session's file has gone.
//!
//! Their places in their sessions are taken, by a stand-in with the record's message id where the
//! payload was the reason. So a record comes back under an id that follows from its own: a retry
//! that is repeated, as after a crash between COMMIT and the removal of the file, stores nothing
//! twice. The header `lanekeeper-retried` has the first id.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanekeeper_core::error::chain;
use lanekeeper_postgres::append::Fate;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::drain::blocking;
use super::{Record, Spool, SpoolError};
use crate::Producer;

const RETRIED: &str = "lanekeeper-retried";

/// What a retry did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RetryReport {
    /// Events appended, duplicates not counted; their files are gone.
    pub events: u64,
    /// Events that an earlier retry had appended; their files are gone.
    pub duplicates: u64,
    pub kept: Vec<Kept>,
}

/// A rejected record that stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    pub file: PathBuf,
    pub reason: String,
}

/// Sends every rejected record, in the order in which the records were made, a statement each.
///
/// # Errors
/// Where Postgres cannot take anything now, or the disk fails: what was not sent stays.
pub async fn retry_rejected(
    producer: &Producer,
    spool: &Spool,
    statement_timeout: Duration,
) -> Result<RetryReport, SpoolError> {
    let mut report = RetryReport::default();
    let listed = spool.clone();
    let mut paths = blocking(move || listed.rejected()).await?;
    // Their names are message ids, which begin with the time.
    paths.sort();
    for file in paths {
        let path = file.clone();
        let record = match blocking(move || Spool::read_rejected(&path)).await {
            Ok((_, record)) => record,
            // Another retry was faster.
            Err(error) if error.is_missing_file() => continue,
            // One bad file keeps back no other.
            Err(error) => {
                let reason = error.to_string();
                report.kept.push(Kept { file, reason });
                continue;
            }
        };
        let again = again(&record);
        let deadline = Instant::now() + statement_timeout;
        match producer
            .enqueue(spool.stream.name, &again.as_event(), deadline)
            .await
        {
            Ok(one) => {
                report.events += u64::from(!one.duplicate);
                report.duplicates += u64::from(one.duplicate);
                blocking(move || remove(&file)).await?;
            }
            Err(error) if error.fate() == Fate::Later => return Err(error.into()),
            Err(error) => {
                let reason = chain(&error);
                report.kept.push(Kept { file, reason });
            }
        }
    }
    Ok(report)
}

fn again(record: &Record) -> Record {
    Record {
        message_id: second_id(record.message_id),
        headers: marked(&record.headers, record.message_id),
        ..record.clone()
    }
}

/// Follows from the first, and from nothing else.
fn second_id(first: Uuid) -> Uuid {
    let digest = Sha256::new()
        .chain_update(b"lanekeeper retry of ")
        .chain_update(first.as_bytes())
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The headers with the first id among them; as they are where they are no object.
fn marked(headers: &RawValue, first: Uuid) -> Box<RawValue> {
    let marked = || {
        let mut all: BTreeMap<String, Box<RawValue>> = serde_json::from_str(headers.get())?;
        all.insert(RETRIED.to_owned(), to_raw_value(&first)?);
        to_raw_value(&all)
    };
    marked().unwrap_or_else(|_| headers.to_owned())
}

fn remove(path: &Path) -> Result<(), SpoolError> {
    match fs::remove_file(path).map_err(|source| SpoolError::io("remove", path, source)) {
        Err(error) if !error.is_missing_file() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::record::example;
    use super::*;

    #[test]
    fn the_second_id_follows_from_the_first_alone() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(second_id(one), second_id(one));
        assert_ne!(second_id(one), second_id(other));
        assert_ne!(second_id(one), one);
    }

    #[test]
    fn the_headers_keep_what_they_had_and_name_the_first_id() {
        let mut record = example("s", 9);
        record.headers = to_raw_value(&json!({"cli": "codex"})).unwrap();
        let again = again(&record);
        let headers: Value = serde_json::from_str(again.headers.get()).unwrap();
        assert_eq!(
            headers,
            json!({"cli": "codex", "lanekeeper-retried": record.message_id})
        );
        assert_eq!(again.payload.get(), record.payload.get());
        assert_eq!(
            marked(&to_raw_value(&7).unwrap(), record.message_id).get(),
            "7"
        );
    }
}
