//! Warnings of the lifecycle feed: a session that is nearly full, and messages that fail (C10). The worker that reads the
//! statistics for all compares them with what it read before. A worker that takes this over begins anew, so that a
//! warning may come twice.

use std::collections::{HashMap, HashSet};

use lanekeeper_postgres::inspect::SubscriptionStatus;

use super::lifecycle::{LifecycleEvent, STREAM};

/// What was seen last.
#[derive(Debug, Default)]
pub struct Warnings {
    /// Subscriptions with a session that is nearly full.
    deep: HashSet<i32>,
    /// How many messages of each subscription had failed.
    failed: HashMap<i32, i64>,
}

impl Warnings {
    /// What is new in these statistics.
    pub fn of(&mut self, subscriptions: &[SubscriptionStatus]) -> Vec<LifecycleEvent> {
        let mut warnings = Vec::new();
        for seen in subscriptions.iter().filter(|seen| seen.stream != STREAM) {
            let id = seen.subscription_id;
            let max_pending = seen.max_pending.map(i64::from);
            warnings.extend(max_pending.and_then(|max| self.of_depth(seen, max)));
            let failed = seen.messages.failed;
            let before = self.failed.insert(id, failed);
            if let Some(before) = before.filter(|before| *before < failed) {
                warnings.push(LifecycleEvent::MessagesFailing {
                    subscription: seen.subscription.clone(),
                    failed: failed - before,
                });
            }
        }
        warnings
    }

    /// From four fifths of the bound on it is deep, until it is below a half: a figure that goes up and down around one
    /// mark warns once.
    fn of_depth(&mut self, seen: &SubscriptionStatus, max_pending: i64) -> Option<LifecycleEvent> {
        let (subscription, pending) = (seen.subscription.clone(), seen.deepest);
        if pending * 5 >= max_pending * 4 {
            self.deep
                .insert(seen.subscription_id)
                .then_some(LifecycleEvent::QueueDeep {
                    subscription,
                    pending,
                    max_pending,
                })
        } else if pending * 2 < max_pending {
            self.deep
                .remove(&seen.subscription_id)
                .then_some(LifecycleEvent::QueueRelieved {
                    subscription,
                    pending,
                    max_pending,
                })
        } else {
            None
        }
    }
}
