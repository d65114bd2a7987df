//! Events that could not be handed to Postgres yet, kept on this host's disk.
//!
//! One append-only file per session ([`file`]), drained in order by whoever gets to it
//! ([`drain`]): a worker, `lanekeeper spool`, or the session's next hook call.
//!
//! ```text
//!           append                         batch sent and committed
//! (no file) ─────────────► file, waiting ─────────────────────────► offset moved ─┐
//!     ▲                      ▲   ▲                                                 │
//!     │                      │   └──────────────── more in the file ◄──────────────┤
//!     └──────────────────────┼──── unlinked under the lock ◄─── nothing left ◄─────┘
//!                            └──── append (same lock)
//! ```
//!
//! A hook call is in its session's file before anything else is tried ([`Spool::append`]), and then
//! sends that file up to its own record ([`drain::send_until`]). So whatever ends it, its record is
//! there, behind those that came before it.
//!
//! Invariants:
//! - A session's events leave in the order in which they came. Producers append to the session's
//!   file and send nothing past it; the file goes only when everything in it is committed.
//! - Nothing is stored twice: a record carries its message id, and Postgres answers a repeated one
//!   as a duplicate. So a drain that died between COMMIT and its note of it, a hook that never saw
//!   the answer to its COMMIT, and two drains of one file at a time are all harmless, and a drain
//!   needs no lock: every one sends a run of records that begins at or before the first unsent one.
//! - A record that is refused for good, or larger than `spool.max_record_bytes`, goes to
//!   `rejected/`, with its reason, and blocks nothing. It is sent again when an operator asks for it
//!   ([`retry`]), behind what its session has by then.
//! - Nobody holds more of the spool in memory than one batch, or one record where that is larger.
//! - The folder is the user's own ([`own_folder`]).
//!
//! | failure | what happens |
//! |---|---|
//! | crash or full disk in the middle of an append | the torn line fails its checksum, is put into `rejected/` and reported; the lines before and after it are good |
//! | crash or kill after the append, before COMMIT | the next drain sends it |
//! | crash after COMMIT, before the offset moved | sent again, answered as duplicates |
//! | torn offset | its checksum fails: the file is sent again from its start |
//! | power loss keeps the offset and loses lines before it | an offset behind the end counts as torn; the next append puts it back |
//! | unlink races with an append | the appender sees a file without a name once it has the lock, and starts a new one |
//!
//! Left out on purpose: order between sessions, and encryption (the directory is private to its
//! user, mode 0700).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lanekeeper_core::own_folder::{self, Untrusted};
use sha2::{Digest, Sha256};

pub mod append;
pub mod config;
pub mod drain;
pub mod error;
mod file;
mod layout;
mod lines;
pub mod record;
pub mod rejected;
pub mod retry;

pub use append::Appended;
pub use config::SpoolConfig;
pub use drain::{DrainLimits, DrainReport, drain};
pub use error::SpoolError;
pub use record::Record;
pub use rejected::{Rejected, Rejection};
pub use retry::{RetryReport, retry_rejected};

/// The stream that a spool's events belong to.
#[derive(Clone, Copy, Debug)]
pub struct SpooledStream {
    pub name: &'static str,
    /// Whether events of this type may use the last tenth of the spool.
    pub is_critical: fn(&str) -> bool,
}

const EXTENSION: &str = "spool";

/// Files of a folder that are looked at to tell how full it is, the others counting as their average;
/// and files in use that are passed over in search of others.
const SAMPLE: usize = 1_000;

/// A spool directory. Made on the first append.
#[derive(Clone, Debug)]
pub struct Spool {
    dir: PathBuf,
    max_bytes: u64,
    max_record_bytes: u64,
    stream: SpooledStream,
}

/// The unsent part of a session's file.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `None` where no line is whole.
    pub session: Option<String>,
    /// Lines, whole or torn.
    pub events: u64,
    pub bytes: u64,
}

impl Spool {
    pub fn new(config: &SpoolConfig, stream: SpooledStream) -> Result<Self, SpoolError> {
        let dir = config.directory().ok_or(SpoolError::NoDirectory)?;
        Ok(Self {
            dir,
            max_bytes: config.max_bytes,
            max_record_bytes: config.max_record_bytes,
            stream,
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether events of this session wait here. One `stat`.
    pub fn holds(&self, session: &str) -> bool {
        self.file_of(session).exists()
    }

    /// Writes a record to the end of its session's file. Once this returns the record outlives this
    /// process; once it is synced ([`Appended::sync`]), the machine. One that is larger than a record
    /// may be is set aside, and a stand-in takes its place.
    pub fn append(&self, record: &Record, patience: Duration) -> Result<Appended, SpoolError> {
        // Not to make folders along a path that others lead elsewhere, nor to trust what they made meanwhile.
        self.check_dir()?;
        make_dir(&self.dir)?;
        self.check_dir()?;
        let line = record.to_line();
        let bytes = line.len() as u64;
        self.check_room(bytes, (self.stream.is_critical)(&record.event_type))?;
        let path = self.file_of(&record.session);
        if bytes <= self.max_record_bytes {
            return append::append(&path, &line, patience);
        }
        let reason = self.too_large(bytes);
        let kept_in = self.reject(record, &reason)?;
        let stand_in = record.stand_in(&reason, &kept_in);
        let mut appended = append::append(&path, &stand_in.to_line(), patience)?;
        appended.set_aside = Some((reason, kept_in));
        Ok(appended)
    }

    /// Writes a record once more, with what was found out since: readers take the later copy of the
    /// two. Where that fails, or another record came in between, the first copy stands.
    pub fn amend(&self, first: Appended, record: &Record, patience: Duration) -> Appended {
        match self.append(record, patience) {
            Ok(mut amended) => {
                amended.is_new |= first.is_new;
                amended
            }
            Err(error) => {
                tracing::debug!(%error, "a spooled record was not amended");
                first
            }
        }
    }

    /// The session files, oldest first.
    pub fn files(&self) -> Result<Vec<PathBuf>, SpoolError> {
        self.check_dir()?;
        let mut files: Vec<_> = entries(&self.dir, EXTENSION)?.collect::<Result<_, _>>()?;
        sort_by_age(&mut files);
        Ok(files)
    }

    /// At most `max` session files to which nobody has written for some time: those of hook calls
    /// that are under way are not among them, and [`SAMPLE`] of those hide no other. The oldest of
    /// the found ones first.
    pub fn untouched_files(&self, since: Duration, max: usize) -> Result<Vec<PathBuf>, SpoolError> {
        self.check_dir()?;
        let now = SystemTime::now();
        let is_untouched = |path: &PathBuf| {
            let modified = fs::metadata(path).and_then(|meta| meta.modified());
            // One of the future, by a clock that was set back, is nobody's.
            modified.is_ok_and(|at| now.duration_since(at).map_or(true, |age| age >= since))
        };
        let mut files: Vec<_> = entries(&self.dir, EXTENSION)?
            .take(max.saturating_add(SAMPLE))
            .filter(|path| path.as_ref().map_or(true, is_untouched))
            .take(max)
            .collect::<Result<_, _>>()?;
        sort_by_age(&mut files);
        Ok(files)
    }

    /// What waits in a session's file; `None` where it is gone by now. Reads through it, and holds
    /// a line of it at a time.
    pub fn waiting(&self, path: &Path) -> Result<Option<Waiting>, SpoolError> {
        let Some(file) = file::SessionFile::open(path, self.max_record_bytes)? else {
            return Ok(None);
        };
        let first = file.first()?;
        let first = first.and_then(|json| serde_json::from_str::<Record>(&json).ok());
        let (events, bytes) = file.count()?;
        Ok(Some(Waiting {
            session: first.map(|record| record.session),
            events,
            bytes,
        }))
    }

    /// Refuses a folder that is not the user's own.
    fn check_dir(&self) -> Result<(), SpoolError> {
        own_folder::check(&self.dir).map_err(|untrusted| match untrusted {
            Untrusted::Refused(reason) => SpoolError::Untrusted {
                dir: self.dir.clone(),
                reason,
            },
            Untrusted::Io(source) => SpoolError::io("look at", &self.dir, source),
        })
    }

    /// Where a session's events wait.
    pub fn file_of(&self, session: &str) -> PathBuf {
        let digest = Sha256::digest(session.as_bytes());
        let name: String = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.dir.join(name).with_extension(EXTENSION)
    }

    /// Refuses what would make the directory larger than it may be; the last tenth is kept for
    /// critical events.
    fn check_room(&self, more: u64, critical: bool) -> Result<(), SpoolError> {
        let mut used = 0;
        for dir in [self.dir.clone(), self.rejected_dir()] {
            used += bytes_in(&dir).map_err(|source| SpoolError::io("read", &dir, source))?;
        }
        let max = match critical {
            true => self.max_bytes,
            false => self.max_bytes / 10 * 9,
        };
        if used.saturating_add(more) > max {
            return Err(SpoolError::Full {
                dir: self.dir.clone(),
                used,
                max,
            });
        }
        Ok(())
    }
}

fn make_dir(dir: &Path) -> Result<(), SpoolError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| SpoolError::io("create", dir, source))
}

fn sort_by_age(files: &mut [PathBuf]) {
    files.sort_by_cached_key(|path| {
        fs::metadata(path)
            .and_then(|meta| meta.created().or_else(|_| meta.modified()))
            .ok()
    });
}

/// The files with this extension, in no order.
fn entries(
    dir: &Path,
    extension: &str,
) -> Result<impl Iterator<Item = Result<PathBuf, SpoolError>>, SpoolError> {
    let failed = |source| SpoolError::io("read", dir, source);
    let listing = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        listing => Some(listing.map_err(failed)?),
    };
    let has_extension = move |path: &PathBuf| path.extension().is_some_and(|e| e == extension);
    Ok(listing
        .into_iter()
        .flatten()
        .map(move |entry| entry.map(|entry| entry.path()).map_err(failed))
        .filter(move |path| path.as_ref().map_or(true, has_extension)))
}

/// Bytes of a folder's files: exact for up to [`SAMPLE`] of them, for more an estimate, so that a
/// hook call does not pay for all that others left.
fn bytes_in(dir: &Path) -> io::Result<u64> {
    let listing = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        listing => listing?,
    };
    let (mut bytes, mut looked_at, mut others) = (0, 0, 0);
    for entry in listing {
        let entry = entry?;
        if looked_at == SAMPLE {
            others += 1;
            continue;
        }
        match entry.metadata() {
            Ok(meta) if meta.is_file() => {
                bytes += meta.len();
                looked_at += 1;
            }
            Ok(_) => {}
            // A drain unlinked it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes + bytes / SAMPLE as u64 * others)
}

#[cfg(test)]
mod tests;
