//! Days of the log are written to files before they are dropped, where a worker is told to.
//!
//! ```text
//! next day ──► read it in pages ──► gzip ──► file under a temporary name ──► synced, its own name ──► recorded
//!    ▲                                                                                                  │
//!    └────────── somebody committed to the day since: the drop takes the record away ◄── counted ───────┘
//! ```
//!
//! A day is dropped only where `lanekeeper.archived_day` has it with as many events as are in it, counted under
//! a lock that lets no more come. So whatever is lost on the way, a process, a file system or an answer, leaves a
//! day that is archived again, never one that is gone and in no file.
//!
//! | what goes wrong | what happens |
//! |---|---|
//! | the folder is full, gone or not writable | a warning; the day stays in Postgres and is tried again next round |
//! | the process dies before the file has its name | what is left under the temporary one goes after a day |
//! | it dies between that and the record | a whole file that nobody knows of stays; the day gets another one |
//! | an event is committed to the day after it was read | the drop notices; the day gets another file, with it |
//! | somebody drops the day meanwhile, not told to archive | a warning; the file has what was read until then |
//! | the worker is told to stop | nothing is left; a day that was not finished begins anew elsewhere |

mod digest;
mod file;
mod read;
pub mod restore;

use std::path::Path;

use jiff::civil::Date;
use serde::Serialize;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub use file::FolderError;

use lanekeeper_postgres::archive::{LogEntry, PAGE, Reader, Recorded};
use lanekeeper_postgres::{ErrorClass, StoreError};

use crate::shared::Shared;
use file::{FileError, Piece, Written};

/// Bytes that are compressed at once; a larger event goes alone.
const PIECE: usize = 64 << 10;
/// Pieces on their way to the disk, besides one that is read and one that is written: a slow disk slows down the
/// reading.
const PIECES: usize = 1;
/// The usual size of a line without its payload.
const BESIDE_PAYLOAD: usize = 1 << 10;

/// Why a day could not be archived.
#[derive(Debug, Error)]
enum ArchiveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the task that wrote the archive's file ended early")]
    Writer(#[from] tokio::task::JoinError),
    #[error("an event could not be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error(
        "the day was dropped while it was archived, by a worker without retention.archive_dir: {place} has what was read until then. Give all workers the same setting"
    )]
    Dropped { place: String },
}

/// Creates the folder if it is missing, and checks that files can be written to it.
pub async fn prepare(folder: &Path) -> Result<(), FolderError> {
    let path = folder.to_owned();
    tokio::task::spawn_blocking(move || file::prepare(&path))
        .await
        .unwrap_or_else(|error| Err(FolderError::unknown(folder, error)))
}

/// Archives the days that are due. A failure is logged here: the day stays, and the rest of the round continues.
pub async fn run(shared: &Shared) {
    let Some(folder) = &shared.settings.archive_dir else {
        return;
    };
    if let Err(error) = archive_days(shared, folder).await {
        shared.instruments.archive_failures.add(1, &[]);
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            folder = %folder.display(),
            "the log could not be archived. Nothing is lost: days that were not archived stay in Postgres, and are tried again in ten minutes"
        );
    }
}

async fn archive_days(shared: &Shared, folder: &Path) -> Result<(), ArchiveError> {
    let Some(reader) = Reader::open(&shared.database).await? else {
        return Ok(());
    };
    let folder = &file::absolute(folder)?;
    let swept = folder.clone();
    tokio::task::spawn_blocking(move || file::sweep(&swept)).await??;
    while !shared.stopping.is_cancelled() {
        let Some(day) = reader.next_day(shared.settings.retention_days).await? else {
            break;
        };
        let Some((events, written)) = archive(shared, &reader, folder, day).await? else {
            break;
        };
        let place = written.place.display().to_string();
        let recording = reader.record(day, events, written.bytes, &written.sha256, &place);
        match recording.await {
            Ok(Recorded::Done) => {}
            Ok(Recorded::Gone) => return Err(ArchiveError::Dropped { place }),
            Err(error) => {
                // After a lost connection it may be recorded.
                if error.class() != ErrorClass::ConnectionLost {
                    tokio::task::spawn_blocking(move || written.remove()).await??;
                }
                return Err(error.into());
            }
        }
        let count = |number| u64::try_from(number).unwrap_or(0);
        shared.instruments.archived.add(count(events), &[]);
        let bytes = count(written.bytes);
        shared.instruments.archived_size.add(bytes, &[]);
        tracing::info!(%day, events, bytes, place, "a day of the log was archived");
    }
    Ok(())
}

/// `None`: the worker stops.
async fn archive(
    shared: &Shared,
    reader: &Reader,
    folder: &Path,
    day: Date,
) -> Result<Option<(i64, Written)>, ArchiveError> {
    let (pieces, receiver) = mpsc::channel(PIECES);
    let path = folder.to_owned();
    let writer: JoinHandle<Result<Option<Written>, FileError>> =
        tokio::task::spawn_blocking(move || file::write(&path, day, receiver));
    let copied = copy(shared, reader, day, &pieces).await;
    // Without the last piece the file is removed.
    drop(pieces);
    let written = writer.await?;
    // If the file could not be written, that is why copying ended.
    match (written?, copied?) {
        (Some(written), Some(events)) => Ok(Some((events, written))),
        _ => Ok(None),
    }
}

/// Hands all events of a day to the file, and returns their number. `None`: it ended before the last one.
async fn copy(
    shared: &Shared,
    reader: &Reader,
    day: Date,
    pieces: &mpsc::Sender<Piece>,
) -> Result<Option<i64>, ArchiveError> {
    use futures_util::TryStreamExt as _;

    let mut behind = (0, 0);
    let mut events = 0;
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        let mut entries = std::pin::pin!(reader.page(day, behind).await?);
        let mut read = 0;
        while let Some(entry) = entries.try_next().await? {
            write_line(&mut piece, &entry)?;
            behind = (entry.session_id, entry.seq);
            // Entry and piece are not both in memory while the piece waits.
            drop(entry);
            read += 1;
            if shared.stopping.is_cancelled() {
                return Ok(None);
            }
            if piece.len() >= PIECE {
                let full = std::mem::replace(&mut piece, Vec::with_capacity(PIECE));
                if pieces.send(Piece::Some(full)).await.is_err() {
                    return Ok(None);
                }
            }
        }
        events += read;
        if read < PAGE {
            break;
        }
    }
    let last = pieces.send(Piece::Last(piece)).await;
    Ok(last.is_ok().then_some(events))
}

/// The members of a line before its payload.
#[derive(Serialize)]
struct Head<'e> {
    stream: &'e str,
    session: &'e str,
    seq: i64,
    message_id: uuid::Uuid,
    event_type: &'e str,
    priority: i16,
    created_at: jiff::Timestamp,
}

/// One event, one line. Payload and headers are JSON texts from Postgres: they have no line breaks, and are copied
/// without parsing, so that no number is rounded and no member moved.
fn write_line(line: &mut Vec<u8>, entry: &LogEntry) -> Result<(), serde_json::Error> {
    let head = Head {
        stream: &entry.stream,
        session: &entry.session,
        seq: entry.seq,
        message_id: entry.message_id,
        event_type: &entry.event_type,
        priority: entry.priority,
        created_at: entry.created_at,
    };
    // Reserved at once: growing in steps would take twice the memory for a large line.
    line.reserve(entry.payload.len() + BESIDE_PAYLOAD);
    serde_json::to_writer(&mut *line, &head)?;
    // The head's closing brace comes last.
    line.pop();
    line.extend_from_slice(b",\"payload\":");
    line.extend_from_slice(entry.payload.as_bytes());
    line.extend_from_slice(b",\"headers\":");
    line.extend_from_slice(entry.headers.as_deref().unwrap_or("null").as_bytes());
    line.extend_from_slice(b"}\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_payload_as_it_is_stored() {
        let payload =
            r#"{"a": 1.10, "b": 1e400, "text": "ä\n\\ \u0001", "a_number": 12345678901234567890}"#;
        let entry = LogEntry {
            session_id: 7,
            seq: 3,
            stream: "runs".to_owned(),
            session: "a \"b\"\n".to_owned(),
            message_id: uuid::Uuid::nil(),
            event_type: "step".to_owned(),
            priority: -2,
            created_at: "2026-01-02T03:04:05.678901Z".parse().unwrap(),
            payload: payload.to_owned(),
            headers: None,
        };
        let mut line = Vec::new();
        write_line(&mut line, &entry).unwrap();
        assert_eq!(
            String::from_utf8(line).unwrap(),
            format!(
                "{}{}{}{payload},\"headers\":null}}\n",
                r#"{"stream":"runs","session":"a \"b\"\n","seq":3,"#,
                r#""message_id":"00000000-0000-0000-0000-000000000000","event_type":"step","#,
                r#""priority":-2,"created_at":"2026-01-02T03:04:05.678901Z","payload":"#,
            )
        );
    }
}
