//! The lane connections that this worker uses: they are not lost, as far as it knows.
//!
//! A worker takes over its lost connections without a charge. The server may run its last takeover after its death, when
//! all its connections are gone. So a takeover names those that were in use when it was sent, and leaves them to
//! survivors, who charge the death.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub struct LiveConnections {
    ids: Mutex<Vec<i64>>,
}

/// The connection is in use until this is dropped.
pub struct InUse<'a> {
    all: &'a LiveConnections,
    connection_id: i64,
}

impl LiveConnections {
    fn locked(&self) -> MutexGuard<'_, Vec<i64>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, connection_id: i64) -> InUse<'_> {
        self.locked().push(connection_id);
        InUse {
            all: self,
            connection_id,
        }
    }

    pub fn ids(&self) -> Vec<i64> {
        self.locked().clone()
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.all.locked().retain(|id| *id != self.connection_id);
    }
}
