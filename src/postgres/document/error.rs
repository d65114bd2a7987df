//! Why a document was not changed, or not read.

use serde::Deserialize;
use thiserror::Error;

use crate::append::AppendError;
use crate::{Refusal, StoreError, sqlstate};

/// Why nothing was changed. The caller's transaction, if there is one, is aborted by it, except by
/// [`Body`](Self::Body).
#[derive(Debug, Error)]
pub enum DocumentError {
    /// The document is not as the caller expects.
    #[error("{}", .refusal.message)]
    Conflict {
        /// The version that there is; 0: it is not there.
        version: i64,
        refusal: Refusal,
    },
    #[error("{}", .0.message)]
    NotThere(Refusal),
    /// The caller's type cannot be written as JSON, or the body is not one of it.
    #[error("the body does not fit its type")]
    Body(#[source] serde_json::Error),
    /// What is refused of any event, and what may go wrong with Postgres.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// The DETAIL of a conflict.
#[derive(Deserialize)]
struct There {
    version: i64,
}

impl DocumentError {
    /// What to do about it.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Self::Conflict { refusal, .. } | Self::NotThere(refusal) => refusal.hint.as_deref(),
            Self::Body(_) => None,
            Self::Append(error) => error.advice(),
        }
    }

    pub(super) fn new(source: tokio_postgres::Error) -> Self {
        let Some(said) = source.as_db_error() else {
            return AppendError::new(source).into();
        };
        match said.code().code() {
            sqlstate::VERSION_CONFLICT => {
                let there = said.detail().map(serde_json::from_str::<There>);
                match there {
                    Some(Ok(There { version })) => Self::Conflict {
                        version,
                        refusal: Refusal::of(said),
                    },
                    // Of a function of somebody else.
                    _ => AppendError::new(source).into(),
                }
            }
            sqlstate::NO_SESSION => Self::NotThere(Refusal::of(said)),
            _ => AppendError::new(source).into(),
        }
    }

    pub(super) fn reading(source: tokio_postgres::Error) -> Self {
        AppendError::Store(StoreError::on("reading documents")(source)).into()
    }
}
