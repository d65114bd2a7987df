//! Why a producer's events were not appended, over whichever way they went.

use lanekeeper_postgres::append::{AppendError, Fate};
use thiserror::Error;

use crate::remote::RemoteError;

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
