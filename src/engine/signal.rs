//! A signal that is given once and stays: something ends.
//!
//! A cancellation token, and beside it a flag: a token's own answer to "was it given?" takes a lock, and lanes
//! ask before every delivery.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// Not given yet where it comes from `default`.
#[derive(Debug, Default)]
pub struct Signal {
    given: AtomicBool,
    token: CancellationToken,
}

impl Signal {
    /// Gives it, for good.
    pub fn cancel(&self) {
        // Before those who wait are woken: each finds it given.
        self.given.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub fn is_cancelled(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Waits until it is given.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }
}
