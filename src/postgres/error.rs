//! Classifies why a statement failed, and what the caller may conclude from it.

use thiserror::Error;
use tokio_postgres::error::{DbError, SqlState};

/// A failed operation on Postgres.
#[derive(Debug, Error)]
#[error("{operation} failed")]
pub struct StoreError {
    /// What was asked of Postgres, in words for a log.
    pub operation: &'static str,
    #[source]
    pub source: tokio_postgres::Error,
}

/// What a failure means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Nothing was written; the same call may succeed later.
    Retryable,
    /// Nothing was written; the same call fails again.
    Permanent,
    /// The connection went away: what was under way may or may not have been committed, and every
    /// lane lock that it held is gone.
    ConnectionLost,
}

impl StoreError {
    /// Wraps a driver error with the operation that met it; for `map_err`.
    pub fn on(operation: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Self {
        move |source| Self { operation, source }
    }

    pub fn class(&self) -> ErrorClass {
        let Some(code) = self.source.code() else {
            let io = std::error::Error::source(&self.source)
                .is_some_and(|cause| cause.is::<std::io::Error>());
            // Otherwise the driver refused the call before it sent anything.
            return if io || self.source.is_closed() {
                ErrorClass::ConnectionLost
            } else {
                ErrorClass::Permanent
            };
        };
        match code.code().get(..2) {
            // 57P01 to 57P03: terminated by an administrator or by a server that stops.
            _ if *code == SqlState::ADMIN_SHUTDOWN
                || *code == SqlState::CRASH_SHUTDOWN
                || *code == SqlState::CANNOT_CONNECT_NOW =>
            {
                ErrorClass::ConnectionLost
            }
            // Connection exceptions; serialization, deadlock; resources; operator intervention.
            Some("08") => ErrorClass::ConnectionLost,
            Some("40" | "53" | "55" | "57") => ErrorClass::Retryable,
            _ => ErrorClass::Permanent,
        }
    }

    /// What the schema's own functions refused, in words for people: SQLSTATEs of class LK.
    pub fn refusal(&self) -> Option<Refusal> {
        let said = self.source.as_db_error()?;
        said.code()
            .code()
            .starts_with("LK")
            .then(|| Refusal::of(said))
    }

    /// The SQLSTATE, where the server answered at all.
    pub fn sqlstate(&self) -> Option<&str> {
        self.source.code().map(SqlState::code)
    }
}

/// A refusal in the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Refusal {
    pub(super) fn of(said: &DbError) -> Self {
        Self {
            message: said.message().to_owned(),
            hint: said.hint().map(str::to_owned),
        }
    }
}
