//! What can go wrong with the spool, and what that means for the events.

use std::io;
use std::path::{Path, PathBuf};

use lanekeeper_core::error::chain;

use crate::error::ProducerError;

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("no spool directory: set LANEKEEPER_SPOOL__DIR, XDG_STATE_HOME or HOME")]
    NoDirectory,
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "the spool {} is full ({used} of {max} bytes): run `lanekeeper spool`, clear its rejected/ \
         folder, or raise spool.max_bytes",
        dir.display()
    )]
    Full { dir: PathBuf, used: u64, max: u64 },
    #[error("{} stayed locked: another process stopped in the middle of a write", path.display())]
    Locked { path: PathBuf },
    #[error(
        "the spool {} is not used: {reason}. Make it a folder of this user's own (mode 0700), or set \
         LANEKEEPER_SPOOL__DIR to one",
        dir.display()
    )]
    Untrusted { dir: PathBuf, reason: String },
    /// Only of drains with a deadline.
    #[error(
        "{} has a record of {bytes} bytes that could not be set aside in time: run `lanekeeper spool`",
        path.display()
    )]
    NoTime { path: PathBuf, bytes: u64 },
    #[error("cannot encode a rejected record: {source}")]
    Encode { source: serde_json::Error },
    #[error("a spooled record has a good checksum and cannot be read: {source}")]
    Decode { source: serde_json::Error },
    #[error("{} is no rejected record and stays as it is: {source}", path.display())]
    NotRejection {
        path: PathBuf,
        source: serde_json::Error,
    },
    /// The events are still in the spool; after a time-out perhaps in Postgres as well, where the
    /// next drain finds them by their message ids.
    #[error("the spooled events are kept: {}", chain(source))]
    Append {
        #[from]
        source: ProducerError,
    },
    #[error("a task of the drain died: {source}")]
    Task { source: tokio::task::JoinError },
}

impl SpoolError {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn is_missing_file(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
