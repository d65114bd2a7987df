//! One lane and what came of its events for the first time and by repeats, in the order of arrival.

use std::collections::{BTreeSet, HashMap};

use super::{Arrival, Lane, LaneName, Subscription, Violation};

pub struct Course<'a> {
    pub name: &'a LaneName,
    /// What the lane is to deliver.
    pub due: &'a [i64],
    pub state: &'a Lane,
    pub arrivals: &'a [&'a Arrival],
    /// Its messages are acknowledged: what is sent again goes past those that are.
    pub is_acknowledged: bool,
}

impl Course<'_> {
    pub fn judge(
        &self,
        subscription: &Subscription,
        causes: usize,
        found: &mut BTreeSet<Violation>,
    ) {
        let lane = || self.name.clone();
        let places: HashMap<i64, usize> = self.due.iter().copied().zip(0..).collect();
        let excused = |place: usize| self.state.gave_up(self.due[place]);
        let mut came = vec![0_usize; self.due.len()];
        let mut accepted = vec![false; self.due.len()];
        // The first place that has neither come nor an outcome.
        let mut open = 0;
        let mut last: Option<(usize, usize)> = None;
        let mut earlier = None;
        let mut strays = 0;
        for arrival in self.arrivals.iter().filter(|one| !one.requeued) {
            let seq = arrival.seq;
            let Some(&place) = places.get(&seq) else {
                found.insert(Violation::Unwanted { lane: lane(), seq });
                continue;
            };
            while open < came.len() && (came[open] > 0 || excused(open)) {
                open += 1;
            }
            if place > open {
                let open = self.due[open];
                found.insert(Violation::Overtook {
                    lane: lane(),
                    seq,
                    open,
                });
            }
            // Whoever goes back repeats all from there; who takes over may begin anywhere behind.
            if let Some((sender, before)) = last
                && sender == arrival.sender
                && place > before + 1
                && !(before + 1..place)
                    .all(|place| excused(place) || self.is_acknowledged && came[place] > 0)
            {
                // A request that was given up may still arrive, once, in the midst of the next stretch.
                strays += 1;
                let goes_on = earlier.is_some_and(|at| (at..=at + 1).contains(&place));
                if !goes_on || strays > causes {
                    let after = self.due[before];
                    found.insert(Violation::Skipped {
                        lane: lane(),
                        seq,
                        after,
                    });
                }
            }
            earlier = last.map(|(_, place)| place);
            last = Some((arrival.sender, place));
            came[place] += 1;
            accepted[place] |= !arrival.refused;
            if subscription.max_attempts > 0 && arrival.attempt > subscription.max_attempts {
                let attempt = arrival.attempt;
                found.insert(Violation::TooManyAttempts {
                    lane: lane(),
                    seq,
                    attempt,
                });
            }
        }
        for (place, times) in came.into_iter().enumerate() {
            let seq = self.due[place];
            if times > 1 + causes {
                found.insert(Violation::TooOften {
                    lane: lane(),
                    seq,
                    times,
                    causes,
                });
            }
            if !accepted[place] && !excused(place) {
                found.insert(if seq <= self.state.cursor {
                    Violation::SettledUndelivered { lane: lane(), seq }
                } else {
                    Violation::Undelivered { lane: lane(), seq }
                });
            }
        }
    }
}
