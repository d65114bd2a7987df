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

#[cfg(test)]
pub(super) mod tests {
    use lanekeeper_postgres::inspect::LaneCounts;
    use lanekeeper_postgres::message_count::MessageCount;

    use super::*;

    pub fn seen(deepest: i64, failed: i64) -> [SubscriptionStatus; 1] {
        let lanes = LaneCounts {
            idle: 0,
            ready: 1,
            held: 0,
            blocked: 0,
            sent: 0,
            parked: 0,
        };
        [SubscriptionStatus {
            subscription_id: 1,
            subscription: "out".to_owned(),
            stream: "runs".to_owned(),
            adapter: "stdout".to_owned(),
            paused_at: None,
            pause_reason: None,
            lanes,
            behind: deepest,
            deepest,
            max_pending: Some(10),
            messages: MessageCount {
                failed,
                ..MessageCount::default()
            },
            oldest_undelivered_age_s: None,
            dead_letters: 0,
            dead_letters_partial: false,
            partial: false,
            idle_partial: false,
        }]
    }

    /// The types of the warnings of one look after the other.
    fn looks(looks: &[(i64, i64)]) -> Vec<Vec<&'static str>> {
        let mut warnings = Warnings::default();
        looks
            .iter()
            .map(|&(deepest, failed)| {
                let found = warnings.of(&seen(deepest, failed));
                found.iter().map(LifecycleEvent::event_type).collect()
            })
            .collect()
    }

    #[test]
    fn a_nearly_full_session_is_warned_of_once_until_it_is_half_empty() {
        let depths = [7, 8, 10, 7, 9, 5, 4, 8].map(|deepest| (deepest, 0));
        let none: Vec<&str> = Vec::new();
        let expected = [
            none.clone(),
            vec!["queue_deep"],
            none.clone(),
            none.clone(),
            none.clone(),
            none,
            vec!["queue_relieved"],
            vec!["queue_deep"],
        ];
        assert_eq!(looks(&depths), expected);
    }

    #[test]
    fn failures_are_warned_of_when_there_are_more_than_at_the_last_look() {
        let failures = [3, 3, 5, 5].map(|failed| (0, failed));
        let none: Vec<&str> = Vec::new();
        let expected = [none.clone(), none.clone(), vec!["messages_failing"], none];
        assert_eq!(looks(&failures), expected);
    }
}
