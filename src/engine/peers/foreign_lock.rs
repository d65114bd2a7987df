//! Locks that somebody holds who has no business with them: said in the log, and by the readiness probe where the worker
//! itself lacks its own.
//!
//! The keys of advisory locks follow from a secret, but `pg_locks` shows those that are held to everybody who may connect.
//! Somebody can wait for one and keep it: a lane then stands still, and a worker that lost its control connection does
//! not get its liveness lock again. A worker cannot end such a session, whose role is not its own: an operator can.

use std::collections::HashMap;
use std::time::Duration;

use lanekeeper_postgres::{StoreError, inspect, worker};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::shared::Shared;

/// Between two reads of the server's locks: some milliseconds where there are ten thousand.
const INTERVAL: Duration = Duration::from_secs(15);
/// Between two log lines about one session.
const SAID_AGAIN: Duration = Duration::from_secs(300);
/// Sessions that are named.
const LIMIT: i64 = 5;

/// What was said of which session, by its backend's pid.
#[derive(Default)]
pub struct ForeignLocks {
    looked_at: Option<Instant>,
    said_at: HashMap<i32, Instant>,
}

impl ForeignLocks {
    /// Logs who it is, now and then.
    ///
    /// # Errors
    /// Where the server does not answer.
    pub async fn look(&mut self, client: &Client) -> Result<(), StoreError> {
        if self.looked_at.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Ok(());
        }
        self.looked_at = Some(Instant::now());
        self.said_at.retain(|_, at| at.elapsed() < SAID_AGAIN);
        for foreign in inspect::foreign_locks(client, LIMIT).await? {
            if self.said_at.contains_key(&foreign.backend_pid) {
                continue;
            }
            self.said_at.insert(foreign.backend_pid, Instant::now());
            tracing::warn!(
                backend_pid = foreign.backend_pid,
                role = foreign.role,
                application = foreign.application,
                held = foreign.held,
                awaited = foreign.awaited,
                blocks = foreign.blocks,
                "a session that is no worker's and no producer's uses Lanekeeper's advisory locks; \
                 events may wait for it until it is ended with pg_terminate_backend"
            );
        }
        Ok(())
    }
}

/// Tells the readiness probe whether the worker has its liveness lock.
///
/// # Errors
/// Where the server does not answer.
pub async fn note_liveness(client: &Client, shared: &Shared, held: bool) -> Result<(), StoreError> {
    let health = &shared.maintenance.health;
    if held {
        health.locked();
    } else if let Some(holder) = worker::liveness_holder(client, shared.peers.worker_id()).await? {
        health.unlocked(holder);
    }
    Ok(())
}
