//! How long a handler connection waits for Postgres (I13).
//!
//! What the engine asks has a limit. What a handler asks is its own affair: it may compute for as long as
//! it likes. But the server ends a transaction that is idle for 60 s, and where something on the way hangs
//! the worker does not hear of it: so it looks for its backend over another connection.

use std::time::Duration;

use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::lane_connection::{self, Backend, OpenError};
use tokio::time::{sleep, timeout};

use super::Feeds;
use crate::shared::Shared;

#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("cannot open a lane connection")]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("Postgres did not answer for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the server ended the connection, and this worker was not told")]
    Ended,
    #[error("its task panicked; the panic is in the log")]
    Panicked,
}

impl SessionError {
    /// A connection that is lost is everyday; a panic is a defect.
    pub(super) fn log(&self, feeds: Feeds) {
        let error = self as &dyn std::error::Error;
        let connection = feeds.name();
        match self {
            Self::Panicked => tracing::error!(
                error,
                connection,
                "handler connection ended by a panic, which is a defect; uncommitted effects were rolled back, and their \
                 events are handled again over another connection"
            ),
            _ => tracing::warn!(
                error,
                connection,
                "handler connection lost; uncommitted effects were rolled back, and their events are handled again"
            ),
        }
    }
}

/// Awaits an answer for at most `frozen_after`, as long as peers would wait for a heartbeat.
pub(super) async fn answer<T>(
    shared: &Shared,
    question: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, SessionError> {
    let limit = shared.settings.frozen_after;
    let answered = timeout(limit, question).await;
    Ok(answered.map_err(|_| SessionError::Silent(limit))??)
}

/// Returns when the server no longer has this backend. If the check fails it is repeated.
pub(super) async fn ended(shared: &Shared, backend: Backend) {
    let pause = shared.settings.frozen_after / 2;
    loop {
        sleep(pause).await;
        let there = timeout(pause, async {
            let client = shared.pool.get().await.ok()?;
            lane_connection::is_there(&**client, backend).await.ok()
        });
        if there.await == Ok(Some(false)) {
            return;
        }
    }
}
