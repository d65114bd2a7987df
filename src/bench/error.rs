//! Why a measurement gave no figure.

use std::time::Duration;

use deadpool_postgres::BuildError;
use lanekeeper_engine::StartError;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::appender::AppenderError;
use lanekeeper_postgres::migrate::MigrateError;
use lanekeeper_postgres::subscription::ApplyError;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("cannot connect to the scratch database")]
    Connect(#[source] tokio_postgres::Error),
    #[error("cannot create the scratch database {name}: the role needs CREATEDB")]
    Create {
        name: String,
        source: tokio_postgres::Error,
    },
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot make a pool of connections")]
    Pool(#[source] BuildError),
    #[error(transparent)]
    Append(#[from] AppenderError),
    #[error(
        "{delivered} of {expected} events were delivered, and then none for {} s", silent.as_secs()
    )]
    Stalled {
        delivered: u64,
        expected: u64,
        silent: Duration,
    },
    #[error(
        "the drain ended with {undelivered} events undelivered and {delivered} of {expected} delivered"
    )]
    Incomplete {
        undelivered: i64,
        delivered: u64,
        expected: u64,
    },
    #[error(
        "{0} deliveries did not follow the one before them in their session: the order is broken"
    )]
    Disordered(u64),
    #[error("the apply is not finished after {} s: some transaction of this server stays open", .0.as_secs())]
    ApplyUnfinished(Duration),
    #[error(transparent)]
    Aggregate(Box<lanekeeper_postgres::aggregate::AggregateError>),
    #[error("a command failed: {0}")]
    Command(String),
    #[error("a state has {events} events in it instead of {expected}")]
    Folded { events: i64, expected: i64 },
    #[error("a notification did not arrive within {} s", .0.as_secs())]
    NotNotified(Duration),
    #[error("cannot run a worker process")]
    Spawn(#[source] std::io::Error),
    #[error("the worker process ended by itself: {0}")]
    WorkerEnded(std::process::ExitStatus),
    #[error("cannot read the memory of a process from /proc: this measurement needs Linux")]
    NoProc(#[source] std::io::Error),
    #[error("{asked} worker processes were started and {running} came up within {} s", within.as_secs())]
    NotUp {
        asked: usize,
        running: i64,
        within: Duration,
    },
    #[error("a client of the measurement panicked")]
    Panicked(#[from] tokio::task::JoinError),
}

impl BenchError {
    /// Wraps a driver error with the operation that met it; for `map_err`.
    pub(super) fn on(operation: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Self {
        move |source| Self::Store(StoreError { operation, source })
    }
}
