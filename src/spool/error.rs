//! What can go wrong with the spool, and what that means for the events.

use std::io;
use std::path::{Path, PathBuf};

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
    #[error("cannot encode a rejected record: {source}")]
    Encode { source: serde_json::Error },
    /// Retryable: the events are still in the spool.
    #[error(
        "Postgres did not take the spooled events, which are kept: {}",
        chain(source)
    )]
    Database { source: tokio_postgres::Error },
    /// Retryable: the events are still in the spool, and perhaps in Postgres as well, where a
    /// second try finds them by their message ids.
    #[error("Postgres did not answer in time; the spooled events are kept")]
    TimedOut,
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
}

/// An error with its causes: tokio-postgres shows only the outermost by itself.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
