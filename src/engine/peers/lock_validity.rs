//! Lock validity: how long a worker relies on the locks of a connection (I5).
//!
//! A holder cannot see its locks go. It relies on them for `worker.trust_ms` (the validity window) after it sent a
//! question that was answered, by its monotonic clock. The window is shorter than any of the times above. After it,
//! the worker cancels its deliveries and settles nothing. A delivery that a frozen worker had under way may still
//! arrive, once; its settlement is refused by the compare-and-set.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lanekeeper_fault::Mutation;
use tokio::time::{Instant, sleep_until};

use crate::waking::signal::Signal;

/// Why validity ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing was answered for the length of the window.
    WindowPassed,
    /// The connection ended.
    Closed,
    /// A lane's task failed.
    TaskFailed,
}

/// The validity of the locks of one connection.
#[derive(Debug)]
pub struct LockValidity {
    origin: Instant,
    window: Duration,
    /// Microseconds from `origin` until the last answered question was sent.
    confirmed: AtomicU64,
    lost: Signal,
    why: OnceLock<Loss>,
}

impl LockValidity {
    /// For a connection that was just opened.
    pub fn new(window: Duration) -> Self {
        Self {
            origin: Instant::now(),
            window,
            confirmed: AtomicU64::new(0),
            lost: Signal::default(),
            why: OnceLock::new(),
        }
    }

    /// A question that was sent at `asked_at` was answered.
    pub fn confirm(&self, asked_at: Instant) {
        let micros = asked_at.saturating_duration_since(self.origin).as_micros();
        self.confirmed
            .fetch_max(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When validity ends unless another answer arrives before.
    pub fn deadline(&self) -> Instant {
        if Mutation::TrustWithoutEnd.is_on() {
            return Instant::now() + Duration::from_secs(3600);
        }
        self.origin + Duration::from_micros(self.confirmed.load(Ordering::Relaxed)) + self.window
    }

    /// Whether a delivery may start at `now`, the current time.
    pub fn holds(&self, now: Instant) -> bool {
        if now >= self.deadline() {
            // The caller releases its lane if the answer is no, so a late answer must not restore validity.
            self.lose(Loss::WindowPassed);
        }
        !self.lost.is_cancelled()
    }

    /// Set when validity has ended, for good.
    pub fn lost(&self) -> &Signal {
        &self.lost
    }

    /// Ends validity at once. The first reason counts.
    pub fn lose(&self, why: Loss) {
        // Before the signal: whoever waits for it asks why.
        let _ = self.why.set(why);
        self.lost.cancel();
    }

    /// Why validity ended, if it has.
    pub fn why(&self) -> Option<Loss> {
        self.why.get().copied()
    }

    /// Ends validity when the window has passed. Runs until then.
    pub async fn watch(&self) {
        while !self.lost.is_cancelled() {
            let deadline = self.deadline();
            if Instant::now() >= deadline {
                self.lose(Loss::WindowPassed);
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
    async fn validity_ends_one_window_after_the_last_answered_question_was_sent() {
        let validity = LockValidity::new(Duration::from_secs(8));
        tokio::time::advance(Duration::from_secs(5)).await;
        let asked_at = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        // The answer takes 2 s to arrive: it confirms the time of sending, no later one.
        validity.confirm(asked_at);
        tokio::time::advance(Duration::from_millis(5_900)).await;
        assert!(validity.holds(Instant::now()));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert!(!validity.holds(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_watch_ends_validity_when_nothing_is_confirmed() {
        let validity = LockValidity::new(Duration::from_secs(8));
        validity.watch().await;
        assert!(validity.lost().is_cancelled());
        assert!(!validity.holds(Instant::now()));
        assert_eq!(validity.why(), Some(Loss::WindowPassed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ended_is_the_reason_also_after_the_window() {
        let validity = LockValidity::new(Duration::from_secs(8));
        assert_eq!(validity.why(), None);
        validity.lose(Loss::Closed);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!validity.holds(Instant::now()));
        assert_eq!(validity.why(), Some(Loss::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_does_not_restore_validity() {
        let validity = LockValidity::new(Duration::from_secs(1));
        validity.watch().await;
        validity.confirm(Instant::now());
        assert!(!validity.holds(Instant::now()));
    }
}
