//! What Postgres will never take, kept beside the spool with its reason.
//!
//! `rejected/ID.json` has a record, whole, behind the reason; `rejected/*.torn` has bytes that are no
//! record. A file appears under its name when it is complete. It is on the disk then, but for what a
//! hook call set aside for others: it cannot wait for the disk to write so much, and leaves that to
//! the system. Only [`Spool::read_rejected`] holds a
//! record of any size in memory; what is shown of one is in its first bytes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;
use uuid::Uuid;

use super::file::{SessionFile, Span};
use super::record::SUM_LEN;
use super::{Record, Spool, SpoolError, entries, make_dir};

const FOLDER: &str = "rejected";

/// Reason, session and type of any record end before this.
const BEGINNING: usize = 64 << 10;

/// What stands in front of a payload, and nowhere before it: in a string its quotes are escaped.
const PAYLOAD_KEY: &str = ",\"payload\":";

/// A rejected record as `rejected/` keeps it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Rejection {
    pub reason: String,
    pub rejected_at: jiff::Timestamp,
    pub record: Box<RawValue>,
}

/// What is shown of a rejected record.
#[derive(Debug, Deserialize)]
pub struct Rejected {
    pub reason: String,
    pub rejected_at: jiff::Timestamp,
    pub record: RecordHead,
}

/// A record without what may be large.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordHead {
    pub message_id: Uuid,
    pub session: String,
    pub event_type: String,
}

/// Where an oversized line went.
#[derive(Debug)]
pub(super) struct SetAside {
    pub path: PathBuf,
    /// Takes the record's place in its session; none where the line was no record.
    pub stand_in: Option<Record>,
}

/// Whether a file is to be on the disk before it counts as kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Synced {
    Yes,
    No,
}

impl Synced {
    /// No deadline is kept by who waits for a disk.
    fn by(deadline: Option<Instant>) -> Self {
        match deadline {
            None => Self::Yes,
            Some(_) => Self::No,
        }
    }
}

impl Spool {
    pub(super) fn rejected_dir(&self) -> PathBuf {
        self.dir.join(FOLDER)
    }

    /// What was rejected, in no order.
    pub fn rejected(&self) -> Result<Vec<PathBuf>, SpoolError> {
        self.check_dir()?;
        entries(&self.rejected_dir(), "json")?.collect()
    }

    /// Keeps a record that Postgres will never take, with the reason. Repeatable: one file per
    /// message id.
    pub fn reject(&self, record: &Record, reason: &str) -> Result<PathBuf, SpoolError> {
        let rejection = Rejection {
            reason: reason.to_owned(),
            rejected_at: jiff::Timestamp::now(),
            record: record.to_raw(),
        };
        let body =
            serde_json::to_vec(&rejection).map_err(|source| SpoolError::Encode { source })?;
        self.keep(&name_of(record.message_id), Synced::Yes, |file, path| {
            file.write_all(&body)
                .map_err(|source| SpoolError::io("write", path, source))
        })
    }

    /// Reads a file of [`Spool::rejected`] whole.
    pub fn read_rejected(path: &Path) -> Result<(Rejection, Record), SpoolError> {
        let text = fs::read(path).map_err(|source| SpoolError::io("read", path, source))?;
        let unusable = |source| SpoolError::NotRejection {
            path: path.to_owned(),
            source,
        };
        let rejection: Rejection = serde_json::from_slice(&text).map_err(unusable)?;
        let record = serde_json::from_str(rejection.record.get()).map_err(unusable)?;
        Ok((rejection, record))
    }

    /// Reads what is shown of a file of [`Spool::rejected`].
    pub fn show_rejected(path: &Path) -> Result<Rejected, SpoolError> {
        let mut text = Vec::new();
        File::open(path)
            .and_then(|file| file.take(BEGINNING as u64).read_to_end(&mut text))
            .map_err(|source| SpoolError::io("read", path, source))?;
        let head = head(&text).map(|head| format!("{head}}}"));
        serde_json::from_str(head.as_deref().unwrap_or_default()).map_err(|source| {
            SpoolError::NotRejection {
                path: path.to_owned(),
                source,
            }
        })
    }

    /// Keeps bytes of a session file that are no record.
    pub(super) fn keep_torn(&self, file: &SessionFile, span: Span) -> Result<PathBuf, SpoolError> {
        self.keep_span(file, span, None)
    }

    /// Keeps a line that is larger than a record may be, and holds a part of it at a time. Its
    /// checksum is not looked at: whoever sends it again reads it whole.
    pub(super) fn set_aside(
        &self,
        file: &SessionFile,
        span: Span,
        deadline: Option<Instant>,
    ) -> Result<SetAside, SpoolError> {
        let beginning = file.beginning(span, BEGINNING)?;
        let json = beginning.get(SUM_LEN + 1..).unwrap_or_default();
        let record = head(json).and_then(|head| serde_json::from_str(&head).ok());
        let Some(record): Option<RecordHead> = record else {
            let path = self.keep_span(file, span, deadline)?;
            return Ok(SetAside {
                path,
                stand_in: None,
            });
        };
        let json = Span {
            offset: span.offset + SUM_LEN as u64 + 1,
            // Without the newline.
            len: span.len - SUM_LEN as u64 - 2,
        };
        let reason = self.too_large(span.len);
        let path = self.keep(
            &name_of(record.message_id),
            Synced::by(deadline),
            |to, path| {
                let failed = |source| SpoolError::io("write", path, source);
                let quoted = serde_json::to_string(&reason)
                    .map_err(|source| SpoolError::Encode { source })?;
                let at = jiff::Timestamp::now();
                write!(
                    to,
                    "{{\"reason\":{quoted},\"rejected_at\":\"{at}\",\"record\":"
                )
                .map_err(failed)?;
                file.copy(json, to, deadline)?;
                to.write_all(b"}").map_err(failed)
            },
        )?;
        let stand_in = record.stand_in(&reason, json.len, &path);
        Ok(SetAside {
            path,
            stand_in: Some(stand_in),
        })
    }

    /// Why a line of this length is set aside.
    pub(super) fn too_large(&self, bytes: u64) -> String {
        format!(
            "the record has {bytes} bytes, and the spool takes at most {} (spool.max_record_bytes)",
            self.max_record_bytes
        )
    }

    fn keep_span(
        &self,
        file: &SessionFile,
        span: Span,
        deadline: Option<Instant>,
    ) -> Result<PathBuf, SpoolError> {
        let stem = file
            .path()
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy();
        let name = format!("{stem}-{}.torn", span.offset);
        self.keep(&name, Synced::by(deadline), |to, _| {
            file.copy(span, to, deadline)
        })
    }

    /// Writes a file of `rejected/`, which is there when it is complete.
    fn keep(
        &self,
        name: &str,
        synced: Synced,
        write: impl FnOnce(&mut File, &Path) -> Result<(), SpoolError>,
    ) -> Result<PathBuf, SpoolError> {
        let dir = self.rejected_dir();
        make_dir(&dir)?;
        let path = dir.join(name);
        // Of this process alone: another one may be keeping the same.
        let unfinished = dir.join(format!("{name}.{}.part", Uuid::now_v7()));
        let failed = |source| SpoolError::io("write", &path, source);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)
            .map_err(failed)?;
        let kept = write(&mut file, &path).and_then(|()| {
            let finish = || -> io::Result<()> {
                if synced == Synced::No {
                    return fs::rename(&unfinished, &path);
                }
                file.sync_data()?;
                fs::rename(&unfinished, &path)?;
                File::open(&dir)?.sync_all()
            };
            finish().map_err(failed)
        });
        if kept.is_err() {
            // The first error is what counts; what is left here is never read.
            let _ = fs::remove_file(&unfinished);
        }
        kept.map(|()| path)
    }
}

impl RecordHead {
    fn stand_in(&self, reason: &str, bytes: u64, kept_in: &Path) -> Record {
        let nothing = RawValue::from_string("{}".to_owned()).expect("it is JSON");
        let record = Record {
            message_id: self.message_id,
            session: self.session.clone(),
            event_type: self.event_type.clone(),
            payload: nothing.clone(),
            headers: nothing,
        };
        record.stand_in_for(bytes, reason, kept_in)
    }
}

/// The document up to its payload, closed.
fn head(json: &[u8]) -> Option<String> {
    // A character that was cut at the end is behind the payload's key.
    let text = String::from_utf8_lossy(json);
    let (head, _) = text.split_once(PAYLOAD_KEY)?;
    Some(format!("{head}}}"))
}

fn name_of(message_id: Uuid) -> String {
    format!("{message_id}.json")
}
