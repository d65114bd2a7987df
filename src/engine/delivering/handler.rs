//! Destinations that live in this process and write to the same Postgres (A9).
//!
//! A handler gets each event with a transaction, on the very connection that holds the lane's lock;
//! the lane's settlement is written in that transaction too. Either both commit or neither does: the
//! handler's effect happens exactly once, through crashes, retries and takeovers. What it does
//! outside Postgres happens at least once, as with any adapter.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_postgres::projection::Projection;
use thiserror::Error;
use tokio_postgres::Transaction;

/// Handles the events of a subscription, each in a transaction.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles one event. Returning `Ok` commits the transaction with the settlement; an error rolls
    /// it back.
    ///
    /// The transaction is READ COMMITTED and has the session's default settings, except that it is
    /// flushed at commit whatever the worker's other transactions do. Keep it short: while it runs,
    /// its connection handles nothing else, and no transaction should wait for the outside (I7).
    ///
    /// # Errors
    /// They decide what happens to the event: see [`HandlerError`].
    async fn handle(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery<'_>,
    ) -> Result<(), HandlerError>;
}

/// Why a handler did not handle an event. Its transaction is rolled back.
#[derive(Debug, Error)]
pub enum HandlerError {
    /// The handler may succeed later: counts as an attempt.
    #[error("{error}")]
    Retry {
        error: String,
        after: Option<Duration>,
    },
    /// The handler will never succeed: the event is exhausted at once.
    #[error("{error}")]
    Reject { error: String },
}

impl From<tokio_postgres::Error> for HandlerError {
    fn from(error: tokio_postgres::Error) -> Self {
        let detail = error
            .as_db_error()
            .map_or_else(|| error.to_string(), ToString::to_string);
        Self::Retry {
            error: detail,
            after: None,
        }
    }
}

impl From<HandlerError> for Verdict {
    fn from(error: HandlerError) -> Self {
        match error {
            HandlerError::Retry { error, after } => Self::Retry { error, after },
            HandlerError::Reject { error } => Self::Rejected { error },
        }
    }
}

/// Where a subscription's events go.
#[derive(Clone)]
pub enum Destination {
    /// Outside Postgres: at least once.
    Adapter(Arc<dyn Adapter>),
    /// In this process, with a transaction: exactly once for what it writes there.
    Handler(Arc<dyn Handler>),
    /// A function in SQL, with a transaction of its own role: exactly once for what it writes there.
    Projection(Arc<Projection>),
}
