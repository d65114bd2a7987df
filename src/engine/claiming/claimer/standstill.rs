//! A claim loop that stands still (F6).
//!
//! The loop of a lane connection asks Postgres something several times within the validity window. If it does not,
//! deliveries on its locks are cancelled when the window has passed, and the loop itself ends soon after. One that does not
//! end keeps the connection, and with it the locks of its lanes, for as long as the process lives: heartbeats come from
//! another task. So a task of its own watches each loop from the end of the validity on, ends the connection's backend, and
//! says so: the lanes go on elsewhere. The process is not ready any more, and after a minute not alive: only a restart
//! brings the loop back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lanekeeper_postgres::lane_connection::Backend;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::maintenance::lifecycle::{self, LifecycleEvent};
use crate::peers::lock_validity::LockValidity;
use crate::shared::Shared;

/// Watches until it is dropped, by the loop that ended.
pub(super) struct Standstill {
    shared: Arc<Shared>,
    is_found: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Standstill {
    pub(super) fn watch(
        shared: &Arc<Shared>,
        validity: &Arc<LockValidity>,
        backend: Backend,
    ) -> Self {
        let is_found = Arc::new(AtomicBool::new(false));
        let (watching, lost, found) = (
            Arc::clone(shared),
            Arc::clone(validity),
            Arc::clone(&is_found),
        );
        let task = tokio::spawn(async move {
            lost.lost().cancelled().await;
            // It takes milliseconds to notice that, unless a statement is under way.
            sleep(watching.settings.trust).await;
            found.store(true, Ordering::SeqCst);
            watching.maintenance.health.stands_still();
            tracing::error!(
                backend_pid = backend.pid,
                "a claim loop stands still: its connection is ended, and its lanes go on elsewhere; restart this worker"
            );
            lifecycle::publish(
                &watching,
                LifecycleEvent::ClaimLoopStalled {
                    worker: watching.peers.worker_id(),
                    backend_pid: backend.pid,
                },
            );
            watching.peers.abandoned.enter(backend);
        });
        Self {
            shared: Arc::clone(shared),
            is_found,
            task,
        }
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        self.task.abort();
        if self.is_found.load(Ordering::SeqCst) {
            self.shared.maintenance.health.moves();
            tracing::info!("a claim loop that stood still goes on");
        }
    }
}
