//! The destination of the measurements: it counts, and accepts what it is told to accept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_engine::{Destination, DestinationSource};
use lanekeeper_postgres::subscription::Subscription;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::BenchError;

/// Sessions whose name starts so are never accepted.
pub const BLOCKED: &str = "blocked";
/// What is sent to sessions whose name starts so waits for an acknowledgement that never comes.
pub const WAITING: &str = "waiting";
/// Deliveries of sessions whose name starts so take [`PACE`] each.
pub const PACED: &str = "paced";
const PACE: Duration = Duration::from_millis(5);
/// Longer than any measurement.
const BLOCKED_FOR: Duration = Duration::from_secs(86_400);
/// Without a single delivery for this long, something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// Hands the worker one adapter for all subscriptions.
pub struct Source<A> {
    adapter: Arc<A>,
}

impl<A> Source<A> {
    pub fn new(adapter: Arc<A>) -> Self {
        Self { adapter }
    }
}

impl<A: Adapter> DestinationSource for Source<A> {
    fn build(
        &self,
        _subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Destination::Adapter(
            Arc::clone(&self.adapter) as Arc<dyn Adapter>
        ))
    }
}

/// Counts what it accepts and what it refuses.
#[derive(Default)]
pub struct Sink {
    accepted: AtomicU64,
    refused: AtomicU64,
    goal: AtomicU64,
    reached: Notify,
}

impl Sink {
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Sets what [`Sink::wait`] waits for.
    pub fn expect(&self, deliveries: usize) {
        self.goal.store(deliveries as u64, Ordering::Relaxed);
    }

    /// Waits until as many deliveries as expected were answered, one way or the other.
    pub async fn wait(&self) -> Result<(), BenchError> {
        let mut last = 0;
        while self.answered() < self.goal.load(Ordering::Relaxed) {
            if timeout(PATIENCE, self.reached.notified()).await.is_err() {
                let answered = self.answered();
                if answered == last {
                    return Err(BenchError::Stalled {
                        delivered: answered,
                        expected: self.goal.load(Ordering::Relaxed),
                        silent: PATIENCE,
                    });
                }
                last = answered;
            }
        }
        Ok(())
    }

    fn answered(&self) -> u64 {
        self.accepted() + self.refused.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Adapter for Sink {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let session = &delivery.event.session;
        let (counter, verdict) = if session.starts_with(BLOCKED) {
            let error = "refused, as the measurement asks".to_owned();
            let after = Some(BLOCKED_FOR);
            (&self.refused, Verdict::Retry { error, after })
        } else {
            if session.starts_with(PACED) {
                tokio::time::sleep(PACE).await;
            }
            let verdict = if session.starts_with(WAITING) {
                Verdict::Sent
            } else {
                Verdict::Accepted
            };
            (&self.accepted, verdict)
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if self.answered() == self.goal.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
        verdict
    }

    fn acknowledges(&self) -> bool {
        true
    }
}
