//! What became of messages, counted for `status`: each worker adds its figures to the subscription's row every five
//! seconds and when it stops, only where there are any. A worker that is killed loses those of the last seconds; the
//! outcomes, which are rows, it does not lose.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_core::subscription::MessageStage;
use lanekeeper_postgres::message_count::{self, MessageCount};
use tokio::time::{sleep, timeout};

use crate::shared::Shared;

const INTERVAL: Duration = Duration::from_secs(5);
/// The time-out of a write.
const WITHIN: Duration = Duration::from_secs(5);

/// The figures of one subscription since they were last written.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; MessageStage::ALL.len()]);

impl Counts {
    pub fn add(&self, stage: MessageStage, messages: u64) {
        if messages > 0 {
            self.0[stage as usize].fetch_add(messages, Ordering::Relaxed);
        }
    }

    fn take(&self) -> MessageCount {
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

    fn put_back(&self, count: &MessageCount) {
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

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<i32, Arc<Counts>>> {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes until the worker stops.
pub async fn run(shared: Arc<Shared>) {
    loop {
        sleep(INTERVAL).await;
        write(&shared).await;
    }
}

/// Adds what was counted to the subscriptions' rows. Where that fails, it is added with the next.
pub async fn write(shared: &Shared) {
    let all: Vec<(i32, Arc<Counts>)> = {
        let all = shared.maintenance.counts.locked();
        all.iter()
            .map(|(id, counts)| (*id, Arc::clone(counts)))
            .collect()
    };
    let taken: Vec<(i32, MessageCount)> = all
        .iter()
        .map(|(id, counts)| (*id, counts.take()))
        .filter(|(_, count)| *count != MessageCount::default())
        .collect();
    if taken.is_empty() {
        return;
    }
    let writing = async {
        let client = shared.pool.get().await?;
        message_count::add(&**client, &taken).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    // After a time-out it may have been written: figures that are too low are better than such as count twice.
    if let Ok(Err(error)) = timeout(WITHIN, writing).await {
        tracing::warn!(
            error = &*error,
            "the counts of messages could not be written; they are added with the next"
        );
        for (id, count) in &taken {
            shared.maintenance.counts.of(*id).put_back(count);
        }
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
