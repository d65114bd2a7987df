//! One connection for each session whose appends wait.
//!
//! Appends to one session wait for each other in Postgres, and for whoever else has it. Those that found it so wait
//! here, where it costs no connection: a session that somebody keeps open holds up one connection and no other session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// Sessions that are remembered before those that nobody waits for are forgotten.
const SESSIONS: usize = 1024;

type Gate = tokio::sync::Mutex<()>;

#[derive(Default)]
pub struct Gates(Mutex<HashMap<String, Weak<Gate>>>);

impl Gates {
    /// Waits for this process's other appends to the session that have passed here.
    pub async fn pass(&self, stream: &str, session: &str) -> OwnedMutexGuard<()> {
        self.gate(name(stream, session)).lock_owned().await
    }

    /// Whether somebody has passed and is not done.
    pub fn is_shut(&self, stream: &str, session: &str) -> bool {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody waits for a session most of the time: no name is made then.
        !gates.is_empty()
            && gates
                .get(&name(stream, session))
                .is_some_and(|gate| gate.strong_count() > 0)
    }

    fn gate(&self, name: String) -> Arc<Gate> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(&name).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() >= SESSIONS {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::new(Gate::default());
        gates.insert(name, Arc::downgrade(&gate));
        gate
    }
}

fn name(stream: &str, session: &str) -> String {
    format!("{stream}\0{session}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn appends_to_one_session_wait_for_each_other_and_for_no_other() {
        let gates = Gates::default();
        let within = Duration::from_secs(5);
        let first = gates.pass("runs", "a").await;
        for (stream, session) in [("runs", "b"), ("runsa", "")] {
            assert!(!gates.is_shut(stream, session));
            assert!(timeout(within, gates.pass(stream, session)).await.is_ok());
        }
        assert!(gates.is_shut("runs", "a"));
        assert!(timeout(within, gates.pass("runs", "a")).await.is_err());
        drop(first);
        assert!(!gates.is_shut("runs", "a"));
        assert!(timeout(within, gates.pass("runs", "a")).await.is_ok());
        for number in 0..3 * SESSIONS {
            drop(gates.pass("runs", &number.to_string()).await);
        }
        assert!(gates.0.lock().unwrap().len() <= SESSIONS);
    }
}
