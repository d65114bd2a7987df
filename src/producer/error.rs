//! Why a producer's events were not appended, over whichever way they went.

use lanekeeper_postgres::append::{AppendError, Fate};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ProducerError {
    /// Of the database; or of the events, whoever found it.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Of a worker's HTTP API, which could not be reached or did not take the events.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

impl ProducerError {
    /// As [`AppendError::fate`]. What a worker's HTTP API fails with is never final.
    pub fn fate(&self) -> Fate {
        match self {
            Self::Append(error) => error.fate(),
            Self::Remote(_) => Fate::Later,
        }
    }

    /// Whether the events may be in the log all the same: a message id or a dedupe key makes it
    /// safe to repeat the call.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Append(error) => error.is_outcome_unknown(),
            Self::Remote(error) => error.is_outcome_unknown(),
        }
    }

    /// Whether the schema is missing or older than this program.
    pub fn is_unmigrated(&self) -> bool {
        match self {
            Self::Append(error) => error.is_unmigrated(),
            Self::Remote(_) => false,
        }
    }

    /// What the producer can do about it.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Self::Append(error) => error.advice(),
            Self::Remote(error) => error.advice(),
        }
    }
}

/// Why a worker did not take the events.
#[derive(Debug, Error)]
pub enum RemoteError {
    #[error("the worker that LANEKEEPER_URL names cannot be reached: nothing was enqueued")]
    Unreachable(#[source] reqwest::Error),
    #[error("the connection to the worker broke: the events may or may not have been appended")]
    Broken(#[source] reqwest::Error),
    #[error("the worker answered {status}: {detail}")]
    Refused {
        status: u16,
        detail: String,
        hint: Option<String>,
        /// The events may have been appended all the same.
        unknown: bool,
    },
    #[error("the worker's answer is not what Lanekeeper answers: see what LANEKEEPER_URL names")]
    Foreign,
}

impl RemoteError {
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Unreachable(_) => false,
            Self::Broken(_) | Self::Foreign => true,
            Self::Refused { unknown, .. } => *unknown,
        }
    }

    pub fn advice(&self) -> Option<&str> {
        match self {
            Self::Refused { hint, .. } => hint.as_deref(),
            _ => None,
        }
    }
}
