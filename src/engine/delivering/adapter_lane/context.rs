//! What the adapter lanes of one connection share.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_limit::Limiter;
use lanekeeper_postgres::operate;
use lanekeeper_postgres::requeued::RequeuedDeadLetter;
use lanekeeper_postgres::subscription::Subscription;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::read::{Unread, read_dead_letter};
use crate::claiming::request::Request;
use crate::delivering::budget::BudgetReservation;
use crate::maintenance::lifecycle::{self, LifecycleEvent};
use crate::peers::lock_validity::LockValidity;
use crate::shared::Shared;

/// How long a lane waits until its subscription is paused. If it takes longer, the next refusal pauses it.
const PAUSE_WITHIN: Duration = Duration::from_secs(10);

/// The worker's state, the validity of the connection's locks, and the channel to the connection.
pub struct LaneContext {
    pub shared: Arc<Shared>,
    pub validity: Arc<LockValidity>,
    pub requests: mpsc::UnboundedSender<Request>,
}

impl LaneContext {
    pub fn limiter(&self) -> &Limiter {
        &self.shared.delivering.limiter
    }

    pub fn is_stopping(&self) -> bool {
        self.shared.stopping.is_cancelled()
    }

    /// Returns when the worker stops.
    pub async fn stopping(&self) {
        self.shared.stopping.cancelled().await;
    }

    /// Publishes an event on the lifecycle feed.
    pub fn publish(&self, event: LifecycleEvent) {
        lifecycle::publish(&self.shared, event);
    }

    /// Reads the next requeued dead letter of a lane, without its payload if that is large.
    pub async fn next_requeued(
        &self,
        lane_id: i64,
    ) -> Result<Option<(RequeuedDeadLetter, BudgetReservation)>, Unread> {
        let dead_letter = read_dead_letter(&self.shared.pool, lane_id).await?;
        Ok(dead_letter.map(|dead_letter| {
            let reservation = self
                .shared
                .delivering
                .budget
                .take(dead_letter.event.memory());
            (dead_letter, reservation)
        }))
    }

    /// Pauses a subscription whose destination answered that it is gone.
    pub async fn pause(&self, subscription: &Subscription, reason: &str) {
        // A pooled connection may hang, and the lane is held meanwhile: so the wait has a limit.
        let paused = timeout(PAUSE_WITHIN, async {
            let client = self.shared.pool.get().await?;
            let paused = operate::pause_subscription(&**client, &subscription.name, reason).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(paused)
        });
        match paused.await.unwrap_or_else(|silent| Err(silent.into())) {
            Ok(_) => {
                tracing::warn!(
                    subscription = %subscription.name, reason,
                    "subscription paused: its destination answered 410. Resume it when the destination is repaired"
                );
                if &*subscription.stream != lifecycle::STREAM {
                    self.publish(LifecycleEvent::SubscriptionPaused {
                        subscription: subscription.name.to_string(),
                        reason: reason.to_owned(),
                    });
                }
            }
            Err(error) => tracing::warn!(
                subscription = %subscription.name, error = &*error,
                "the subscription could not be paused; the event is retried"
            ),
        }
    }
}
