//! Gates for sessions whose append lock another transaction holds.
//!
//! An append waits in Postgres until no other transaction holds its session's append lock. One call of this process
//! waits there for a session, and takes a connection for it. Further calls for that session wait at the gate, without a
//! connection, and are appended together when the first call is done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

/// Above this number of gates, those that no call uses are removed.
const SESSIONS: usize = 1024;

type Gate = tokio::sync::Mutex<()>;

#[derive(Default)]
pub struct Gates(Mutex<HashMap<String, Weak<Gate>>>);

/// Keeps the gates of its sessions shut until it is dropped.
pub struct Passed(#[allow(dead_code, reason = "it is held, not read")] Vec<OwnedMutexGuard<()>>);

impl Gates {
    /// Waits until no call keeps the gates of these sessions shut. Returns false if that takes longer than `until`.
    pub async fn opened(&self, stream: &str, sessions: &[&str], until: Instant) -> bool {
        for session in sessions {
            let shut = self
                .gates()
                .get(&name(stream, session))
                .and_then(Weak::upgrade);
            if let Some(gate) = shut
                && timeout_at(until, gate.lock()).await.is_err()
            {
                return false;
            }
        }
        true
    }

    /// Shuts the gates of these sessions for a call that will wait in Postgres. `None`: another call does so already.
    pub fn try_pass(&self, stream: &str, sessions: &[&str]) -> Option<Passed> {
        let gate = |session: &&str| self.gate(name(stream, session)).try_lock_owned();
        let passed: Result<_, _> = sessions.iter().map(gate).collect();
        passed.ok().map(Passed)
    }

    fn gate(&self, name: String) -> Arc<Gate> {
        let mut gates = self.gates();
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

    fn gates(&self) -> MutexGuard<'_, HashMap<String, Weak<Gate>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(stream: &str, session: &str) -> String {
    format!("{stream}\0{session}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_call_waits_for_a_session_and_the_others_until_it_is_done() {
        let gates = Gates::default();
        let soon = || Instant::now() + Duration::from_secs(5);
        let passed = gates.try_pass("runs", &["a", "b"]).unwrap();
        assert!(gates.try_pass("runs", &["b"]).is_none());
        assert!(!gates.opened("runs", &["a"], soon()).await);
        for (stream, session) in [("runs", "c"), ("runsa", "")] {
            assert!(gates.opened(stream, &[session], soon()).await);
            assert!(gates.try_pass(stream, &[session]).is_some());
        }
        // A call that does not get all gates keeps none.
        assert!(gates.try_pass("runs", &["c", "b"]).is_none());
        assert!(gates.try_pass("runs", &["c"]).is_some());

        let (opened, ()) = tokio::join!(gates.opened("runs", &["a", "b"], soon()), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(passed);
        });
        assert!(opened);
        assert!(gates.try_pass("runs", &["a", "b"]).is_some());
        for number in 0..3 * SESSIONS {
            drop(gates.try_pass("runs", &[&number.to_string()]));
        }
        assert!(gates.0.lock().unwrap().len() <= SESSIONS);
    }
}
