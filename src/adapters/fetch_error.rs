//! Why an attachment of a message could not be fetched, at the platform or in the worker's folder.

use std::io;
use std::time::Duration;

use lanekeeper_core::own_folder::Untrusted;
use thiserror::Error;
use tokio::task::JoinError;

/// Why an attachment is not there. No text has a token or a name that somebody else chose.
#[derive(Debug, Error)]
pub enum FetchError {
    #[error("it has more than {most} bytes (max_file_bytes of the source)")]
    TooLarge { most: u32 },
    #[error("it did not come within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The platform does not give it.
    #[error("{0}")]
    Refused(String),
    /// The platform may give it later.
    #[error("{0}")]
    Away(String),
    #[error(
        "the source's folder has no room for it: worker.attachments_bytes is taken by files of the last day"
    )]
    NoRoom,
    #[error("the folder of worker.attachments_dir is not used: {0}")]
    Untrusted(#[from] Untrusted),
    #[error("it cannot be written: {0}")]
    Io(#[from] io::Error),
}

impl From<JoinError> for FetchError {
    fn from(error: JoinError) -> Self {
        Self::Io(io::Error::other(error))
    }
}
