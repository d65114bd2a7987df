//! Restores an archived day from its file, so that it can be replayed.
//!
//! ```text
//! file ─► SHA-256 on record? ─► its sessions known? as many events as on record? ─► lanes that sessions lack
//!                                                                                      │
//!                      committed ◄── the same file still? ◄── copied, one transaction ◄┘
//! ```
//!
//! The file is read three times, and nothing is written before the second time has come to its end. What it holds goes to a
//! table that only replays read. Maintenance drops it after its time, without archiving it: the file has it.
//!
//! | what goes wrong | what happens |
//! |---|---|
//! | the file is cut off, altered, of another database, or one that does not count | refused: its SHA-256 is not on record |
//! | its day is still in the log, or restored already | refused |
//! | a session of it is not in the database | refused |
//! | another restore is under way | refused for now; nobody waits |
//! | the file changes while it is read | rolled back |
//! | the process dies | the transaction is rolled back; lanes that were added stay, and are those of the next append |

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::civil::Date;
use lanekeeper_fault::CrashPoint;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::restore::{self, OnRecord, Restore, RestoredEvent};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio_postgres::Client;

use super::read::{self, Content, Line, ReadError};

/// Sessions that get lanes in one transaction: their append locks are held until its end.
const SESSIONS: usize = 200;
/// Groups of events that were read ahead.
const AHEAD: usize = 1;

/// Why a file was not restored. Nothing was changed, but for lanes that sessions lacked.
#[derive(Debug, Error)]
pub enum RestoreError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the task that reads the file ended early: nothing was restored")]
    Reader(#[from] JoinError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "{} is cut off: it has {bytes} bytes of {whole}. Nothing was restored", path.display()
    )]
    CutOff {
        path: PathBuf,
        bytes: u64,
        whole: i64,
    },
    #[error(
        "{} is not the file that this database has on record under its name: it was altered, or another database wrote it. Nothing was restored",
        path.display()
    )]
    Altered { path: PathBuf },
    #[error(
        "this database has no record of {}: another database wrote it, or a later file of its day took its place. Nothing was restored",
        path.display()
    )]
    Unknown { path: PathBuf },
    #[error("{day}, the day of {}, is still in the log: nothing was restored", path.display())]
    InLog { path: PathBuf, day: Date },
    #[error(
        "{} names the session {session:?} of the stream {stream:?}, which this database does not have: nothing was restored",
        path.display()
    )]
    UnknownSession {
        path: PathBuf,
        stream: String,
        session: String,
    },
    #[error(
        "{} has {found} events, and {expected} are on record: nothing was restored", path.display()
    )]
    Count {
        path: PathBuf,
        found: i64,
        expected: i64,
    },
    #[error("{} changed while it was read: nothing was restored", path.display())]
    Changed { path: PathBuf },
}

/// A day that was restored.
#[derive(Clone, Debug, Serialize)]
pub struct Restored {
    pub file: PathBuf,
    pub day: Date,
    pub events: i64,
    pub sessions: usize,
    /// How many of the sessions lacked lanes.
    pub sessions_without_lanes: i64,
}

/// Restores the day of a file, for at least as long as `keep`.
///
/// # Errors
/// Nothing was restored, unless the connection broke during the commit.
pub async fn restore(
    client: &mut Client,
    path: &Path,
    keep: Duration,
) -> Result<Restored, RestoreError> {
    let owned = path.to_owned();
    let content = tokio::task::spawn_blocking(move || read::content(&owned)).await??;
    let on_record = judge(client, path, content).await?;
    let (session_ids, found) = sessions(client, path, content).await?;
    if found != on_record.events {
        return Err(RestoreError::Count {
            path: path.to_owned(),
            found,
            expected: on_record.events,
        });
    }
    let mut sessions_without_lanes = 0;
    for some in session_ids.chunks(SESSIONS) {
        sessions_without_lanes += restore::lanes(client, some).await?;
    }
    let copied = copy(client, path, content, &session_ids, keep).await?;
    Ok(Restored {
        file: path.to_owned(),
        day: on_record.day,
        events: copied,
        sessions: session_ids.len(),
        sessions_without_lanes,
    })
}

/// Compares the file with what is on record.
async fn judge(client: &Client, path: &Path, content: Content) -> Result<OnRecord, RestoreError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let found = restore::find(client, &content.sha256, name.unwrap_or_default()).await?;
    let path = path.to_owned();
    match found {
        None => Err(RestoreError::Unknown { path }),
        Some(OnRecord {
            is_whole: false,
            bytes: whole,
            ..
        }) => {
            let owned = path.clone();
            // Another database's file of the day may be shorter, and is whole.
            let ends_early =
                tokio::task::spawn_blocking(move || read::is_cut_off(&owned)).await??;
            let is_shorter = u64::try_from(whole).is_ok_and(|whole| content.bytes < whole);
            match ends_early && is_shorter {
                true => Err(RestoreError::CutOff {
                    path,
                    bytes: content.bytes,
                    whole,
                }),
                false => Err(RestoreError::Altered { path }),
            }
        }
        Some(OnRecord {
            in_log: true, day, ..
        }) => Err(RestoreError::InLog { path, day }),
        Some(on_record) => Ok(on_record),
    }
}

/// The ids of the file's sessions in its order, in which each session's events stand together; and how many events it has.
async fn sessions(
    client: &Client,
    path: &Path,
    content: Content,
) -> Result<(Vec<i64>, i64), RestoreError> {
    let mut reading = Reading::begin(path);
    let (mut ids, mut events) = (Vec::new(), 0);
    let mut last: Option<(String, String)> = None;
    while let Some(lines) = reading.lines.recv().await {
        events += i64::try_from(lines.len()).unwrap_or(i64::MAX);
        let mut new: Vec<(&str, &str)> = Vec::new();
        for line in &lines {
            let name = (line.stream.as_str(), line.session.as_str());
            let before = new.last().copied();
            let before = before.or(last
                .as_ref()
                .map(|(stream, session)| (&**stream, &**session)));
            if before != Some(name) {
                new.push(name);
            }
        }
        let (streams, names): (Vec<&str>, Vec<&str>) = new.iter().copied().unzip();
        for (id, (stream, session)) in restore::sessions(client, &streams, &names)
            .await?
            .into_iter()
            .zip(&new)
        {
            let unknown = || RestoreError::UnknownSession {
                path: path.to_owned(),
                stream: (*stream).to_owned(),
                session: (*session).to_owned(),
            };
            ids.push(id.ok_or_else(unknown)?);
        }
        if let Some((stream, session)) = new.last() {
            last = Some(((*stream).to_owned(), (*session).to_owned()));
        }
    }
    reading.end(path, content).await?;
    Ok((ids, events))
}

/// Copies the events, all or none; returns how many.
async fn copy(
    client: &mut Client,
    path: &Path,
    content: Content,
    session_ids: &[i64],
    keep: Duration,
) -> Result<i64, RestoreError> {
    let changed = || RestoreError::Changed {
        path: path.to_owned(),
    };
    let mut restoring = Restore::begin(client, &content.sha256, keep).await?;
    let mut reading = Reading::begin(path);
    let mut ids = session_ids.iter();
    let mut last: Option<(String, String, i64)> = None;
    let mut events = 0;
    while let Some(lines) = reading.lines.recv().await {
        for line in lines {
            let session_id = match &last {
                Some((stream, session, id))
                    if *stream == line.stream && *session == line.session =>
                {
                    *id
                }
                _ => *ids.next().ok_or_else(changed)?,
            };
            restoring
                .write(RestoredEvent {
                    session_id,
                    seq: line.seq,
                    priority: line.priority,
                    created_at: line.created_at,
                    message_id: line.message_id,
                    event_type: &line.event_type,
                    payload: line.payload.get(),
                    headers: line.headers.as_deref(),
                })
                .await?;
            events += 1;
            last = Some((line.stream, line.session, session_id));
        }
    }
    reading.end(path, content).await?;
    if events != restoring.events {
        return Err(changed());
    }
    restoring.finish().await?;
    CrashPoint::DayCopied.pass();
    restoring.commit().await?;
    Ok(events)
}

/// A file that is read by a task that may block.
struct Reading {
    lines: mpsc::Receiver<Vec<Line>>,
    task: JoinHandle<Result<Content, ReadError>>,
}

impl Reading {
    fn begin(path: &Path) -> Self {
        let (to, lines) = mpsc::channel(AHEAD);
        let path = path.to_owned();
        let task = tokio::task::spawn_blocking(move || read::events(&path, &to));
        Self { lines, task }
    }

    /// All events were read, and they are those of the file that was judged.
    async fn end(self, path: &Path, content: Content) -> Result<(), RestoreError> {
        match self.task.await?? == content {
            true => Ok(()),
            false => Err(RestoreError::Changed {
                path: path.to_owned(),
            }),
        }
    }
}
