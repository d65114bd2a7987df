//! The backends of connections that this worker gave up and that the server may still have (I13).
//!
//! A connection that something on the way keeps open and silent looks to the server like a worker that
//! has nothing to say: it keeps the backend with its lane locks, for ever. The worker knows better, and
//! has other connections: whoever gives a connection up enters its backend here, and the control
//! connection ends it, again and again until it is gone. Then its lanes are woken as any lost
//! connection's are, without a charge.
//!
//! An entry is made only after the trust in the connection's locks has ended: nothing may be delivered
//! under locks that somebody else is about to get (I2).
//!
//! A backend that is told to end needs milliseconds; one whose process is stopped never does. Nobody
//! waits for it here: the control connection looks again with its next tick.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::lane_connection::{self, Backend};
use tokio::time::Instant;
use tokio_postgres::GenericClient;

/// A backend that is there for so long after it was told to end is spoken of.
const SLOW: Duration = Duration::from_secs(1);

struct Entry {
    backend: Backend,
    told: Told,
}

#[derive(Clone, Copy)]
enum Told {
    NotYet,
    At(Instant),
    /// Long ago, and the log says so.
    InVain,
}

#[derive(Default)]
pub struct GivenUp {
    entries: Mutex<Vec<Entry>>,
}

impl GivenUp {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, backend: Backend) {
        let told = Told::NotYet;
        self.entries().push(Entry { backend, told });
    }

    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Tells what the server still has of them to end, and forgets those that are gone. Those that are
    /// told stay entered: whether they are gone is seen by the next call.
    ///
    /// # Errors
    /// All of them stay entered.
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
                entry.was_told();
            }
        }
        Ok(())
    }
}

impl Entry {
    fn was_told(&mut self) {
        match self.told {
            Told::NotYet => self.told = Told::At(Instant::now()),
            Told::At(at) if at.elapsed() >= SLOW => {
                self.told = Told::InVain;
                tracing::warn!(
                    backend_pid = self.backend.pid,
                    "a connection that was given up does not end at the server; its lanes wait until it does"
                );
            }
            Told::At(_) | Told::InVain => {}
        }
    }
}
