//! The watchdog (F6): subscriptions with work that is due and makes no progress. The worker that reads the statistics for
//! all looks; each finding is reported once, and again when it is over.
//!
//! A lane that a worker holds without progress is a finding whatever the subscription's other lanes do. One that is due and
//! that no worker takes is a finding only where nothing else of its subscription moves: it may wait for a rate limit, or
//! behind many others.
//!
//! Who takes the work over: an adapter ends by its time-out, a handler's query by the server's, a claim loop by
//! `claiming::claimer::standstill`, a worker as a whole by its heartbeat. What is found here outlasted
//! all of these, or no worker can deliver it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use lanekeeper_postgres::inspect::{Stalled, StalledState, SubscriptionStatus};
use lanekeeper_postgres::message_count::MessageCount;
use tokio::time::Instant;

use super::lifecycle::{LifecycleEvent, STREAM};

/// What was found, and when each subscription last moved.
#[derive(Debug, Default)]
pub struct Watchdog {
    moved: HashMap<i32, (MessageCount, Instant)>,
    /// Those that were reported, by subscription.
    reported: HashMap<i32, String>,
}

impl Watchdog {
    /// What is new. `stalled`: lanes without progress for `after`.
    pub fn of(
        &mut self,
        subscriptions: &[SubscriptionStatus],
        stalled: Vec<Stalled>,
        after: Duration,
        now: Instant,
    ) -> Vec<LifecycleEvent> {
        for seen in subscriptions {
            let moved = self
                .moved
                .entry(seen.subscription_id)
                .or_insert((seen.messages, now));
            if moved.0 != seen.messages {
                *moved = (seen.messages, now);
            }
        }
        self.moved
            .retain(|id, _| subscriptions.iter().any(|one| one.subscription_id == *id));
        let rests = |id: &i32| {
            let moved = self.moved.get(id);
            moved.is_some_and(|(_, at)| now.saturating_duration_since(*at) >= after)
        };
        let mut found: HashMap<i32, Stalled> = HashMap::new();
        for one in stalled {
            let is_feed = subscriptions
                .iter()
                .any(|seen| seen.subscription_id == one.subscription_id && seen.stream == STREAM);
            // The feed does not report itself: it would feed itself.
            if is_feed || (one.state == StalledState::Due && !rests(&one.subscription_id)) {
                continue;
            }
            // A lane that is held says more: it comes first.
            found.entry(one.subscription_id).or_insert(one);
        }
        let mut events = Vec::new();
        self.reported.retain(|id, subscription| {
            let stays = found.contains_key(id);
            if !stays {
                events.push(LifecycleEvent::SubscriptionMoves {
                    subscription: subscription.clone(),
                });
            }
            stays
        });
        for (id, one) in found {
            if self.reported.contains_key(&id) {
                continue;
            }
            self.reported.insert(id, one.subscription.clone());
            events.push(LifecycleEvent::SubscriptionStalled {
                subscription: one.subscription,
                state: one.state,
                session: one.session,
                holder: one.worker_id,
                stalled_s: one.stalled_s.round(),
            });
        }
        events
    }

    /// The subscriptions that are stalled.
    pub fn reported(&self) -> HashSet<i32> {
        self.reported.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::warnings::tests::seen;
    use super::*;

    const AFTER: Duration = Duration::from_secs(300);

    fn stalled(state: StalledState) -> Vec<Stalled> {
        vec![Stalled {
            subscription_id: 1,
            subscription: "out".to_owned(),
            state,
            session: "s1".to_owned(),
            worker_id: None,
            stalled_s: 301.0,
        }]
    }

    fn types(events: &[LifecycleEvent]) -> Vec<&'static str> {
        events.iter().map(LifecycleEvent::event_type).collect()
    }

    #[test]
    fn a_held_lane_is_reported_once_whatever_else_moves_and_once_more_when_it_is_over() {
        let (mut watchdog, now) = (Watchdog::default(), Instant::now());
        let mut look = |failed, found| types(&watchdog.of(&seen(1, failed), found, AFTER, now));
        let held = || stalled(StalledState::Held);
        assert_eq!(look(0, held()), ["subscription_stalled"]);
        assert_eq!(look(1, held()), Vec::<&str>::new());
        assert_eq!(look(1, Vec::new()), ["subscription_moves"]);
        assert_eq!(look(1, held()), ["subscription_stalled"]);
    }

    #[test]
    fn a_lane_that_is_due_is_reported_where_nothing_else_of_its_subscription_moved_as_long() {
        let (mut watchdog, began) = (Watchdog::default(), Instant::now());
        let mut look = |failed, seconds| {
            let now = began + Duration::from_secs(seconds);
            types(&watchdog.of(&seen(1, failed), stalled(StalledState::Due), AFTER, now))
        };
        let none = Vec::<&str>::new();
        assert_eq!(
            look(0, 0),
            none,
            "it is not known yet whether anything moves"
        );
        assert_eq!(look(1, 200), none);
        assert_eq!(look(1, 499), none, "something moved 299 s ago");
        assert_eq!(look(1, 500), ["subscription_stalled"]);
        assert_eq!(look(1, 900), none);
        assert_eq!(look(2, 910), ["subscription_moves"]);
    }
}
