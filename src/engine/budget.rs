//! How much memory events may take (I11): what is fetched ahead, and payloads that are read when their turn
//! comes. Each has the same bound, for itself.
//!
//! There are two counts because they are kept in two ways. A [`Budget`] never makes anybody wait: while it has
//! no room nothing is claimed, and what is held already goes on. An [`Allowance`] is waited for. Were they one,
//! a lane that waits for its large payload would do so with its batch counted, and enough of them would wait for
//! each other. As it is, whoever holds a part of the allowance waits for no other part and for no room in the
//! budget: it delivers one event and gives the part back. So every wait ends.
//!
//! Not counted: what the driver and the adapters make of a payload while they have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lanekeeper_fault::Mutation;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of events that a worker has fetched ahead, against its bound.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
        })
    }

    /// Bytes that may still be fetched. What one fetch brings may pass the bound, once.
    pub fn room(&self) -> usize {
        if Mutation::BudgetWithoutBound.is_on() {
            return self.limit;
        }
        self.limit.saturating_sub(self.used())
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts bytes in; they are counted out when the share is dropped.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Share {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Share {
            budget: Arc::clone(self),
            bytes,
        }
    }
}

/// Bytes that are counted as used.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes that a permit of the allowance stands for: all of them together must fit a `u32`.
const PERMIT: usize = 1024;

/// Memory for payloads that are read one by one; who asks first has it first.
#[derive(Debug)]
pub struct Allowance {
    permits: Arc<Semaphore>,
    all: u32,
}

/// Memory that one payload may take, until it is dropped.
#[derive(Debug)]
pub struct Part {
    _permit: OwnedSemaphorePermit,
}

impl Allowance {
    pub fn new(limit: usize) -> Self {
        let all = u32::try_from(limit / PERMIT).unwrap_or(u32::MAX).max(1);
        let most = u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX);
        let all = all.min(most);
        Self {
            permits: Arc::new(Semaphore::new(usize::try_from(all).unwrap_or(usize::MAX))),
            all,
        }
    }

    /// A part at once, if nobody waits and there is so much left.
    pub fn try_take(&self, bytes: usize) -> Option<Part> {
        let permits = Arc::clone(&self.permits);
        let permit = permits
            .try_acquire_many_owned(self.permits_for(bytes))
            .ok()?;
        Some(Part { _permit: permit })
    }

    /// Waits for a part. What is larger than the whole takes all of it, and so is alone.
    pub async fn take(&self, bytes: usize) -> Part {
        let permits = Arc::clone(&self.permits);
        let permit = permits.acquire_many_owned(self.permits_for(bytes)).await;
        Part {
            _permit: permit.expect("the allowance is never closed"),
        }
    }

    fn permits_for(&self, bytes: usize) -> u32 {
        if Mutation::AllowanceWithoutBound.is_on() {
            return 0;
        }
        u32::try_from(bytes.div_ceil(PERMIT))
            .unwrap_or(u32::MAX)
            .clamp(1, self.all)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_payload_larger_than_the_whole_allowance_goes_alone_and_is_not_overtaken() {
        let allowance = Allowance::new(10 * PERMIT);
        let small = allowance.take(1).await;
        let mut large = Box::pin(allowance.take(usize::MAX));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(allowance.try_take(1).is_none(), "overtaken");
        let mut behind = Box::pin(allowance.take(1));
        assert!(behind.as_mut().now_or_never().is_none());
        drop(small);
        let large = large.now_or_never().unwrap();
        assert!(behind.as_mut().now_or_never().is_none(), "not alone");
        drop(large);
        assert!(behind.now_or_never().is_some());
        assert!(allowance.try_take(10 * PERMIT).is_some());
    }

    #[tokio::test]
    async fn a_wait_for_the_allowance_that_is_given_up_keeps_nothing() {
        let allowance = Allowance::new(2 * PERMIT);
        let held = allowance.take(PERMIT).await;
        let mut waiting = Box::pin(allowance.take(2 * PERMIT));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(waiting);
        assert!(allowance.try_take(PERMIT).is_some());
        drop(held);
    }

    #[test]
    fn a_dropped_share_is_free_again() {
        let budget = Budget::new(100);
        let share = budget.take(70);
        assert_eq!(budget.room(), 30);
        let large = budget.take(1000);
        assert_eq!(budget.room(), 0);
        drop((share, large));
        assert_eq!(budget.room(), 100);
    }
}
