//! A signal that is given once and stays: something ends.
//!
//! A cancellation token, and beside it a flag: a token's own answer to "was it given?" takes a lock, and lanes
//! ask before every delivery.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// Not set when it comes from `default`.
#[derive(Debug, Default)]
pub struct Signal {
    given: AtomicBool,
    token: CancellationToken,
}

impl Signal {
    /// Sets it for good.
    pub fn cancel(&self) {
        // Before the waiters are woken, so that each of them finds it set.
        self.given.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub fn is_cancelled(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Waits until it is set.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }
}
