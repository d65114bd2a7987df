//! Events that could not be handed to Postgres yet, kept on this host's disk.
//!
//! One append-only file per session ([`file`]), drained in order by whoever gets to it
//! ([`drain`]): a worker, `lanekeeper spool`, or the session's next hook call.
//!
//! ```text
//!           append + fsync                 batch sent and committed
//! (no file) ─────────────► file, waiting ─────────────────────────► offset moved ─┐
//!     ▲                      ▲   ▲                                                 │
//!     │                      │   └──────────────── more in the file ◄──────────────┤
//!     └──────────────────────┼──── unlinked under the lock ◄─── nothing left ◄─────┘
//!                            └──── append (same lock)
//! ```
//!
//! Invariants:
//! - A session's events leave in the order in which they came. As long as a session has a file,
//!   its producers append to it and send nothing past it ([`Spool::holds`]); the file goes only
//!   when everything in it is committed.
//! - Nothing is stored twice: a record carries its message id, and Postgres answers a repeated one
//!   as a duplicate. So a drain that died between COMMIT and its note of it, a hook that never saw
//!   the answer to its COMMIT, and two drains of one file at a time are all harmless, and a drain
//!   needs no lock: every one sends a run of records that begins at or before the first unsent one.
//! - A record that is refused for good goes to `rejected/`, with its reason, and blocks nothing. It
//!   is sent again when an operator asks for it ([`retry`]), behind what its session has by then.
//!
//! | failure | what happens |
//! |---|---|
//! | crash or full disk in the middle of an append | the torn line fails its checksum, is put into `rejected/` and reported; the lines before and after it are good |
//! | crash after COMMIT, before the offset moved | sent again, answered as duplicates |
//! | torn offset | its checksum fails: the file is sent again from its start |
//! | unlink races with an append | the appender sees a file without a name once it has the lock, and starts a new one |
//!
//! Left out on purpose: order between sessions, and encryption (the directory is private to its
//! user, mode 0700).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

pub mod config;
pub mod drain;
pub mod error;
pub mod file;
pub mod record;
pub mod retry;

pub use config::SpoolConfig;
pub use drain::{DrainLimits, DrainReport, drain};
pub use error::SpoolError;
pub use record::Record;
pub use retry::{RetryReport, retry_rejected};

/// The stream that a spool's events belong to.
#[derive(Clone, Copy, Debug)]
pub struct SpooledStream {
    pub name: &'static str,
    /// Whether events of this type may use the last tenth of the spool.
    pub is_critical: fn(&str) -> bool,
}

const EXTENSION: &str = "spool";
const REJECTED: &str = "rejected";

/// A spool directory. Made on the first append.
#[derive(Clone, Debug)]
pub struct Spool {
    dir: PathBuf,
    max_bytes: u64,
    stream: SpooledStream,
}

/// A rejected record as `rejected/` keeps it.
#[derive(Debug, Serialize, serde::Deserialize)]
pub struct Rejection {
    pub reason: String,
    pub rejected_at: jiff::Timestamp,
    pub record: Box<RawValue>,
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
            stream,
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether events of this session wait here. One `stat`.
    pub fn holds(&self, session: &str) -> bool {
        self.path(session).exists()
    }

    /// Appends a record to its session's file. It is on disk when this returns.
    pub fn append(&self, record: &Record) -> Result<(), SpoolError> {
        make_dir(&self.dir)?;
        let line = record.to_line();
        self.check_room(
            line.len() as u64,
            (self.stream.is_critical)(&record.event_type),
        )?;
        file::append(&self.path(&record.session), &line)
    }

    /// The session files, oldest first.
    pub fn files(&self) -> Result<Vec<PathBuf>, SpoolError> {
        let mut files = entries(&self.dir, EXTENSION)?;
        files.sort_by_cached_key(|path| {
            fs::metadata(path)
                .and_then(|meta| meta.created().or_else(|_| meta.modified()))
                .ok()
        });
        Ok(files)
    }

    /// What waits in a session's file; `None` where it is gone by now. Reads through it, and holds
    /// a line of it at a time.
    pub fn waiting(&self, path: &Path) -> Result<Option<Waiting>, SpoolError> {
        let Some(file) = file::SessionFile::open(path)? else {
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

    /// What was rejected, in no order.
    pub fn rejected(&self) -> Result<Vec<PathBuf>, SpoolError> {
        entries(&self.dir.join(REJECTED), "json")
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
        self.keep(&format!("{}.json", record.message_id), &body)
    }

    /// Reads a file of [`Spool::rejected`].
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

    /// Keeps bytes of a session file that are no record.
    fn keep_torn(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<PathBuf, SpoolError> {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        self.keep(&format!("{stem}-{offset}.torn"), bytes)
    }

    fn keep(&self, name: &str, body: &[u8]) -> Result<PathBuf, SpoolError> {
        let dir = self.dir.join(REJECTED);
        make_dir(&dir)?;
        let path = dir.join(name);
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(body)?;
            file.sync_data()?;
            File::open(&dir)?.sync_all()
        };
        write().map_err(|source| SpoolError::io("write", &path, source))?;
        Ok(path)
    }

    fn path(&self, session: &str) -> PathBuf {
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
        for dir in [self.dir.clone(), self.dir.join(REJECTED)] {
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

fn entries(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, SpoolError> {
    let listing = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing,
    };
    listing
        .and_then(|listing| {
            listing
                .map(|entry| Ok(entry?.path()))
                .collect::<io::Result<Vec<_>>>()
        })
        .map(|paths| {
            paths
                .into_iter()
                .filter(|path| path.extension().is_some_and(|e| e == extension))
                .collect()
        })
        .map_err(|source| SpoolError::io("read", dir, source))
}

fn bytes_in(dir: &Path) -> io::Result<u64> {
    let listing = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        listing => listing?,
    };
    let mut bytes = 0;
    for entry in listing {
        match entry?.metadata() {
            Ok(meta) if meta.is_file() => bytes += meta.len(),
            Ok(_) => {}
            // A drain unlinked it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::record::example;
    use super::*;

    const STREAM: SpooledStream = SpooledStream {
        name: "runs",
        is_critical: |event_type| event_type == "agent_stop",
    };

    struct Scratch(Spool);

    impl Scratch {
        fn new(max_bytes: u64) -> Self {
            let name = format!("lanekeeper-spool-{}", uuid::Uuid::now_v7());
            let dir = Some(std::env::temp_dir().join(name));
            Self(
                Spool::new(
                    &SpoolConfig {
                        dir,
                        max_bytes,
                        ..SpoolConfig::default()
                    },
                    STREAM,
                )
                .unwrap(),
            )
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0.dir).unwrap();
        }
    }

    #[test]
    fn a_session_is_held_from_its_first_append_on_in_a_private_file() {
        let scratch = Scratch::new(1 << 20);
        assert!(!scratch.0.holds("s"));
        scratch.0.append(&example("s", 1)).unwrap();
        assert!(scratch.0.holds("s"));
        assert!(!scratch.0.holds("t"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&scratch.0.dir), 0o700);
        assert_eq!(mode(&scratch.0.path("s")), 0o600);
        assert_eq!(scratch.0.files().unwrap(), [scratch.0.path("s")]);
    }

    #[test]
    fn the_last_tenth_is_kept_for_critical_events() {
        let mut record = example("s", 1);
        let scratch = Scratch::new(10 * record.to_line().len() as u64);
        let refused = loop {
            if let Err(error) = scratch.0.append(&record) {
                break error;
            }
        };
        assert!(matches!(refused, SpoolError::Full { .. }), "{refused}");
        record.event_type = "agent_stop".to_owned();
        scratch.0.append(&record).unwrap();
    }

    #[test]
    fn a_rejected_record_is_kept_whole_with_its_reason() {
        let scratch = Scratch::new(1 << 20);
        let record = example("s", 9);
        let path = scratch.0.reject(&record, "too large").unwrap();
        assert_eq!(scratch.0.reject(&record, "again").unwrap(), path);
        let kept: Rejection = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(kept.reason, "again");
        let kept: Record = serde_json::from_str(kept.record.get()).unwrap();
        assert_eq!(kept.payload.get(), record.payload.get());
        assert_eq!(scratch.0.rejected().unwrap(), [path]);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
        let dir = Some(PathBuf::from("/dev/null/spool"));
        let config = SpoolConfig {
            dir,
            ..SpoolConfig::default()
        };
        let spool = Spool::new(&config, STREAM).unwrap();
        let error = spool.append(&example("s", 1)).unwrap_err().to_string();
        assert!(error.contains("/dev/null/spool"), "{error}");
    }
}
