//! How much memory events may take (I11): events that are fetched ahead, and payloads that are read when their turn
//! comes. Each kind has the same limit, for itself.
//!
//! The two are counted in different ways. A [`Budget`] makes nobody wait: while it is full nothing is claimed, and
//! lanes that are held continue. An [`Allowance`] is waited for. With one counter for both, a lane that waits for
//! its large payload would wait with its batch counted, and enough of them would wait for each other. As it is, the
//! holder of an allowance reservation waits for no other reservation and for no room in the budget: it delivers one
//! event and gives the reservation back. So every wait ends.
//!
//! Not counted: what the driver and the adapters make of a payload while they have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lanekeeper_fault::Mutation;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of events that a worker has fetched ahead, and their limit.
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

    /// Bytes that may still be fetched. One fetch may exceed the limit.
    pub fn room(&self) -> usize {
        if Mutation::BudgetWithoutBound.is_on() {
            return self.limit;
        }
        self.limit.saturating_sub(self.used())
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves bytes until the reservation is dropped.
    pub fn take(self: &Arc<Self>, bytes: usize) -> BudgetReservation {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        BudgetReservation {
            budget: Arc::clone(self),
            bytes,
        }
    }
}

/// Reserved bytes of the budget.
#[derive(Debug)]
pub struct BudgetReservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for BudgetReservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes for which one permit of the allowance stands: all permits together must fit a `u32`.
const PERMIT: usize = 1024;

/// Memory for payloads that are read one by one: first come, first served.
#[derive(Debug)]
pub struct Allowance {
    permits: Arc<Semaphore>,
    all: u32,
}

/// Memory that one payload may take until the reservation is dropped.
#[derive(Debug)]
pub struct PayloadReservation {
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

    /// Reserves at once, if no one waits and enough is left.
    pub fn try_take(&self, bytes: usize) -> Option<PayloadReservation> {
        let permits = Arc::clone(&self.permits);
        let permit = permits
            .try_acquire_many_owned(self.permits_for(bytes))
            .ok()?;
        Some(PayloadReservation { _permit: permit })
    }

    /// Waits for a reservation. A payload larger than the whole allowance takes all of it, and so is read alone.
    pub async fn take(&self, bytes: usize) -> PayloadReservation {
        let permits = Arc::clone(&self.permits);
        let permit = permits.acquire_many_owned(self.permits_for(bytes)).await;
        PayloadReservation {
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
    async fn a_payload_larger_than_the_allowance_is_read_alone_and_not_overtaken() {
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
    async fn a_cancelled_wait_for_the_allowance_keeps_nothing() {
        let allowance = Allowance::new(2 * PERMIT);
        let held = allowance.take(PERMIT).await;
        let mut waiting = Box::pin(allowance.take(2 * PERMIT));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(waiting);
        assert!(allowance.try_take(PERMIT).is_some());
        drop(held);
    }

    #[test]
    fn a_dropped_reservation_frees_its_bytes() {
        let budget = Budget::new(100);
        let share = budget.take(70);
        assert_eq!(budget.room(), 30);
        let large = budget.take(1000);
        assert_eq!(budget.room(), 0);
        drop((share, large));
        assert_eq!(budget.room(), 100);
    }
}
