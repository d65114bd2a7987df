//! How much memory fetched events may take (I11).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of events that a worker has in memory, against its bound.
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
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
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

#[cfg(test)]
mod tests {
    use super::*;

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
