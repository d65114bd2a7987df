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

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_postgres::GenericClient;

use crate::store::StoreError;
use crate::store::lane_connection::{self, Backend};

#[derive(Default)]
pub struct GivenUp {
    backends: Mutex<Vec<Backend>>,
}

impl GivenUp {
    fn backends(&self) -> MutexGuard<'_, Vec<Backend>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, backend: Backend) {
        self.backends().push(backend);
    }

    pub fn is_empty(&self) -> bool {
        self.backends().is_empty()
    }

    /// Ends what the server still has of them. What does not end stays entered.
    ///
    /// # Errors
    /// All of them stay entered.
    pub async fn end(&self, client: &impl GenericClient) -> Result<(), StoreError> {
        let entered = self.backends().clone();
        if entered.is_empty() {
            return Ok(());
        }
        let there = lane_connection::end(client, &entered).await?;
        let gone = |backend: &Backend| entered.contains(backend) && !there.contains(backend);
        self.backends().retain(|backend| !gone(backend));
        for backend in there {
            tracing::warn!(
                backend_pid = backend.pid,
                "a connection that was given up does not end at the server; its lanes wait until it does"
            );
        }
        Ok(())
    }
}
