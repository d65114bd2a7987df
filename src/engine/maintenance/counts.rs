//! The figures of what became of messages, until `message_counts` writes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lanekeeper_core::subscription::MessageStage;
use lanekeeper_postgres::message_count::MessageCount;

/// The figures of one subscription since they were last written.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; MessageStage::ALL.len()]);

impl Counts {
    pub fn add(&self, stage: MessageStage, messages: u64) {
        if messages > 0 {
            self.0[stage as usize].fetch_add(messages, Ordering::Relaxed);
        }
    }

    pub fn take(&self) -> MessageCount {
        let [sent, acked, retried, failed, expired, dropped] = &self.0;
        let take =
            |count: &AtomicU64| i64::try_from(count.swap(0, Ordering::Relaxed)).unwrap_or(i64::MAX);
        MessageCount {
            sent: take(sent),
            acked: take(acked),
            retried: take(retried),
            failed: take(failed),
            expired: take(expired),
            dropped: take(dropped),
        }
    }

    pub fn put_back(&self, count: &MessageCount) {
        let counts = [
            count.sent,
            count.acked,
            count.retried,
            count.failed,
            count.expired,
            count.dropped,
        ];
        for (stage, count) in MessageStage::ALL.into_iter().zip(counts) {
            self.add(stage, u64::try_from(count).unwrap_or(0));
        }
    }
}

/// The figures of all subscriptions that this worker has delivered.
#[derive(Debug, Default)]
pub struct MessageCounts {
    subscriptions: Mutex<HashMap<i32, Arc<Counts>>>,
}

impl MessageCounts {
    /// Those of one subscription, whatever its version.
    pub fn of(&self, subscription_id: i32) -> Arc<Counts> {
        let mut all = self.locked();
        Arc::clone(all.entry(subscription_id).or_default())
    }

    /// All of them, by subscription.
    pub fn all(&self) -> Vec<(i32, Arc<Counts>)> {
        let all = self.locked();
        all.iter()
            .map(|(id, counts)| (*id, Arc::clone(counts)))
            .collect()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<i32, Arc<Counts>>> {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_is_counted_under_its_own_name_and_once() {
        let counts = Counts::default();
        for (count, stage) in (1..).zip(MessageStage::ALL) {
            counts.add(stage, count);
        }
        let taken = counts.take();
        let expected = MessageCount {
            sent: 1,
            acked: 2,
            retried: 3,
            failed: 4,
            expired: 5,
            dropped: 6,
        };
        assert_eq!(taken, expected);
        assert_eq!(counts.take(), MessageCount::default());
        counts.put_back(&taken);
        assert_eq!(counts.take(), expected);
    }
}
