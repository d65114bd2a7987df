//! The backends of connections that this worker abandoned and that the server may still have (I13).
//!
//! A connection that something on the way keeps open and silent looks to the server like a worker that sends
//! nothing: the backend keeps its lane locks for ever. The worker has other connections. So each task that abandons
//! a connection adds its backend here, and the control connection ends the backend, again with every tick until it
//! is gone. Then its lanes are woken like those of any lost connection, without a charge.
//!
//! A backend is added only after the validity of the connection's locks has ended: nothing may be delivered under
//! locks that another worker is about to get (I2).
//!
//! Nobody waits for a backend to end. That takes milliseconds, but a backend whose process is stopped never ends;
//! the control connection checks again with its next tick.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::lane_connection::{self, Backend};
use tokio::time::Instant;
use tokio_postgres::GenericClient;

/// A backend that exists this long after it was terminated is logged.
const WARN_AFTER: Duration = Duration::from_secs(1);

struct Entry {
    backend: Backend,
    termination: Termination,
}

#[derive(Clone, Copy)]
enum Termination {
    Pending,
    At(Instant),
    /// Long ago; the log has a warning.
    Logged,
}

#[derive(Default)]
pub struct AbandonedBackends {
    entries: Mutex<Vec<Entry>>,
}

impl AbandonedBackends {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, backend: Backend) {
        let termination = Termination::Pending;
        self.entries().push(Entry {
            backend,
            termination,
        });
    }

    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Terminates those that the server still has, and forgets those that are gone. A backend that was terminated now
    /// stays listed until the next call finds it gone.
    ///
    /// # Errors
    /// All of them stay listed.
    pub async fn end(&self, client: &impl GenericClient) -> Result<(), StoreError> {
        let entered: Vec<Backend> = self.entries().iter().map(|it| it.backend).collect();
        if entered.is_empty() {
            return Ok(());
        }
        let there = lane_connection::end(client, &entered).await?;
        let gone = |backend: &Backend| entered.contains(backend) && !there.contains(backend);
        let mut entries = self.entries();
        entries.retain(|entry| !gone(&entry.backend));
        for entry in entries.iter_mut() {
            if there.contains(&entry.backend) {
                entry.was_terminated();
            }
        }
        Ok(())
    }
}

impl Entry {
    fn was_terminated(&mut self) {
        match self.termination {
            Termination::Pending => self.termination = Termination::At(Instant::now()),
            Termination::At(at) if at.elapsed() >= WARN_AFTER => {
                self.termination = Termination::Logged;
                tracing::warn!(
                    backend_pid = self.backend.pid,
                    "an abandoned connection does not end at the server; its lanes wait until it does"
                );
            }
            Termination::At(_) | Termination::Logged => {}
        }
    }
}
