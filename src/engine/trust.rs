//! How long a worker may believe in the locks of a connection (I5).
//!
//! The server frees the locks of a connection that it thinks gone: at once when the socket closes,
//! after 11 s when the node vanished, after a peer's verdict when the process was frozen. The
//! holder cannot see that happen. So it trusts its locks only for a window, shorter than any of
//! these, after it *asked* a question that was answered; by its monotonic clock, which a change of
//! the wall clock does not move. After that it cancels what it is delivering and starts over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lanekeeper_fault::Mutation;
use tokio::time::{Instant, sleep_until};

use super::signal::Signal;

/// The trust in one connection's locks.
#[derive(Debug)]
pub struct Trust {
    origin: Instant,
    window: Duration,
    /// Microseconds from `origin` to the asking of the last question that was answered.
    confirmed: AtomicU64,
    lost: Signal,
}

impl Trust {
    /// Trust in a connection that was just opened.
    pub fn new(window: Duration) -> Self {
        Self {
            origin: Instant::now(),
            window,
            confirmed: AtomicU64::new(0),
            lost: Signal::default(),
        }
    }

    /// An answer came to what was asked at `asked_at`.
    pub fn confirm(&self, asked_at: Instant) {
        let micros = asked_at.saturating_duration_since(self.origin).as_micros();
        self.confirmed
            .fetch_max(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When trust ends unless something is confirmed before.
    pub fn deadline(&self) -> Instant {
        if Mutation::TrustWithoutEnd.is_on() {
            return Instant::now() + Duration::from_secs(3600);
        }
        self.origin + Duration::from_micros(self.confirmed.load(Ordering::Relaxed)) + self.window
    }

    /// Whether a delivery may start now, at the time that the caller has just read.
    pub fn holds(&self, now: Instant) -> bool {
        if now >= self.deadline() {
            // Whoever is told no gives its lane up: no late answer may revive the trust after that.
            self.lose();
        }
        !self.lost.is_cancelled()
    }

    /// Cancelled when trust is gone, for good.
    pub fn lost(&self) -> &Signal {
        &self.lost
    }

    /// Ends the trust at once: the connection is known to be gone.
    pub fn lose(&self) {
        self.lost.cancel();
    }

    /// Ends the trust when its window has passed. Runs until then.
    pub async fn watch(&self) {
        while !self.lost.is_cancelled() {
            let deadline = self.deadline();
            if Instant::now() >= deadline {
                self.lose();
                return;
            }
            tokio::select! {
                () = sleep_until(deadline) => {}
                () = self.lost.cancelled() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn trust_ends_a_window_after_the_last_question_that_was_answered() {
        let trust = Trust::new(Duration::from_secs(8));
        tokio::time::advance(Duration::from_secs(5)).await;
        let asked_at = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        // The answer is 2 s old when it arrives: it confirms the time of asking, no later one.
        trust.confirm(asked_at);
        tokio::time::advance(Duration::from_millis(5_900)).await;
        assert!(trust.holds(Instant::now()));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert!(!trust.holds(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_watch_cancels_when_nothing_is_confirmed() {
        let trust = Trust::new(Duration::from_secs(8));
        trust.watch().await;
        assert!(trust.lost().is_cancelled());
        assert!(!trust.holds(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_does_not_revive_lost_trust() {
        let trust = Trust::new(Duration::from_secs(1));
        trust.watch().await;
        trust.confirm(Instant::now());
        assert!(!trust.holds(Instant::now()));
    }
}
