//! Which lane connections have nothing to do: the doorbell and retention want to know (I8).

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// Which lane connections have nothing to do: while there are any, the doorbell is wanted.
#[derive(Default)]
pub struct Idle {
    connections: Mutex<HashSet<i64>>,
    any: watch::Sender<bool>,
}

impl Idle {
    pub fn enter(&self, connection_id: i64) {
        self.change(|connections| connections.insert(connection_id));
    }

    pub fn leave(&self, connection_id: i64) {
        self.change(|connections| connections.remove(&connection_id));
    }

    fn change(&self, change: impl FnOnce(&mut HashSet<i64>) -> bool) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if change(&mut connections) {
            self.any.send_replace(!connections.is_empty());
        }
    }

    /// Until any is idle.
    pub async fn lull(&self) {
        // An error would mean that the sender, which is ours, is gone.
        let _ = self.any.subscribe().wait_for(|any| *any).await;
    }

    /// Whether any is idle, and when that changes.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.any.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_lull_begins_when_the_first_connection_has_nothing_to_do() {
        let idle = Idle::default();
        let mut lull = Box::pin(idle.lull());
        assert!((&mut lull).now_or_never().is_none());
        idle.enter(1);
        lull.await;
        idle.leave(1);
        assert!(idle.lull().now_or_never().is_none());
    }
}
