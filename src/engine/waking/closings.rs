//! Sessions that were closed while lanes of them were held: their running deliveries are cancelled.
//!
//! The close itself does not depend on this: the lane's progress has a new version, so the holder settles nothing any
//! more. The notification makes it stop at once. It is acted on in this order: first what the close left is expired,
//! then deliveries are cancelled. The other way round, the lane would be claimed again and its head delivered again.
//!
//! Only lanes that were claimed before are concerned: a session may be reopened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long a close is remembered, for lanes that wait for something else when it is heard of.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Sessions whose close is finished, and since when.
#[derive(Debug, Default)]
pub struct Closings {
    /// Whether there ever was one: deliveries ask before each event.
    any: AtomicBool,
    sessions: watch::Sender<BTreeMap<i64, Instant>>,
}

impl Closings {
    /// The close of this session is finished.
    pub fn add(&self, session_id: i64) {
        self.sessions.send_modify(|sessions| {
            sessions.retain(|_, at| at.elapsed() < REMEMBERED);
            sessions.insert(session_id, Instant::now());
        });
        self.any.store(true, Ordering::Release);
    }

    /// Whether this session was closed after `claimed_at`.
    pub fn is_closed(&self, session_id: i64, claimed_at: Instant) -> bool {
        self.any.load(Ordering::Acquire)
            && contains(&self.sessions.borrow(), session_id, claimed_at)
    }

    /// Returns when this session was closed after `claimed_at`.
    pub async fn wait(&self, session_id: i64, claimed_at: Instant) {
        let mut sessions = self.sessions.subscribe();
        // It fails only if the sender, which `self` owns, is gone.
        let _ = sessions
            .wait_for(|sessions| contains(sessions, session_id, claimed_at))
            .await;
    }
}

fn contains(sessions: &BTreeMap<i64, Instant>, session_id: i64, claimed_at: Instant) -> bool {
    sessions
        .get(&session_id)
        .is_some_and(|at| *at >= claimed_at)
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_lanes_that_were_claimed_before_the_close_hear_of_it() {
        let closings = Closings::default();
        let before = Instant::now();
        assert!(!closings.is_closed(1, before));
        advance(Duration::from_secs(1)).await;
        closings.add(1);
        advance(Duration::from_secs(1)).await;
        let waits = async |session_id, claimed_at| {
            timeout(
                Duration::from_millis(1),
                closings.wait(session_id, claimed_at),
            )
            .await
            .is_err()
        };
        assert!(closings.is_closed(1, before) && !waits(1, before).await);
        assert!(!closings.is_closed(1, Instant::now()) && waits(1, Instant::now()).await);
        assert!(!closings.is_closed(2, before) && waits(2, before).await);
        advance(REMEMBERED).await;
        closings.add(2);
        assert!(!closings.is_closed(1, before), "forgotten");
    }
}
