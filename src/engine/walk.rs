//! When to claim next, and from where each route's tokens are walked (I8, I9).
//!
//! Tokens are walked from a moving lower bound, so that a snapshot that somebody holds open does not
//! make every claim step over what has long been deleted. A token may appear behind the bound. What `behind`
//! finds there, about once a second, takes the bound back; where it finds nothing out, a walk from the beginning
//! looks itself.
//!
//! An idle connection looks again at short, growing intervals up to the poll floor: that finds what nobody is
//! told of, and is all that is left when notifications are broken. While its worker is not to be told (idle.rs) the
//! intervals stay short.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_fault::Mutation;
use lanekeeper_postgres::claim::{Bound, RouteState, RouteWalk};
use tokio::time::Instant;

use super::behind::Seen;
use super::idle::CALM_LATE;
use super::places::Places;
use super::route::Route;
use super::settings::WorkerSettings;

/// Between walks from the beginning where nobody looks behind the bounds, and no less often than the poll floor.
const FULL_WALK_EVERY: Duration = Duration::from_secs(1);
const FIRST_STEP: Duration = Duration::from_millis(2);
/// The same after a look that found something.
const NEXT_STEP: Duration = Duration::from_millis(1);
/// Between two looks soon after one that found something. Nobody is told meanwhile: see idle.rs.
const QUICK_STEP: Duration = Duration::from_millis(4);
/// Lanes from which on a claim is followed by the next at once, where there are more.
const SMALL_CLAIM: usize = 64;
const SMALL_CLAIM_PAUSE: Duration = Duration::from_millis(1);

/// What a connection delivers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Adapters,
    Handlers,
}

/// The state of one connection's walks.
pub struct Walks {
    kind: Kind,
    bounds: HashMap<i32, Bound>,
    /// Up to which look behind them the bounds were taken back.
    looks: u64,
    full_at: Instant,
    next_at: Instant,
    step: Duration,
    /// Until then looks are quick.
    quick_until: Instant,
    poll_floor: Duration,
    /// Which route is walked first.
    first: usize,
}

impl Walks {
    pub fn new(settings: &WorkerSettings, kind: Kind) -> Self {
        let now = Instant::now();
        Self {
            kind,
            bounds: HashMap::new(),
            looks: 0,
            full_at: now,
            next_at: now,
            step: FIRST_STEP,
            quick_until: now,
            poll_floor: settings.poll_floor,
            first: 0,
        }
    }

    pub fn due(&self, now: Instant) -> bool {
        self.next_at <= now
    }

    pub fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Somebody said that there is something.
    pub fn wake(&mut self) {
        self.next_at = Instant::now();
        self.step = FIRST_STEP;
    }

    /// A token of its own making is due then: nobody else has to notice.
    pub fn expect(&mut self, at: Instant) {
        self.next_at = self.next_at.min(at);
    }

    /// Whether this connection delivers what the route sends.
    pub fn takes(&self, route: &Route) -> bool {
        route.is_transactional() == (self.kind == Kind::Handlers)
    }

    /// The routes that have places, each with the bound from which to walk it. `seen` is what was
    /// seen behind the bounds last.
    pub fn start(
        &mut self,
        places: &Places,
        seen: Option<Arc<Seen>>,
        now: Instant,
    ) -> Vec<RouteWalk> {
        let full = self.looks_itself(seen.is_some(), now);
        if let Some(seen) = seen {
            self.take_back(&seen);
        }
        let mut walks: Vec<RouteWalk> = places
            .routes()
            .map(|(route, places)| RouteWalk {
                route: route.id(),
                room: i32::try_from(places).unwrap_or(i32::MAX),
                bound: match self.bounds.get(&route.id()) {
                    Some(bound) if !full && !Mutation::NoBound.is_on() => *bound,
                    _ => Bound::START,
                },
            })
            .collect();
        // Whoever comes first may take all the room: another one each time.
        self.first = self.first.wrapping_add(1);
        let first = self.first % walks.len().max(1);
        walks.rotate_left(first);
        walks
    }

    /// Whether this walk is one from the beginning.
    fn looks_itself(&mut self, somebody_looks: bool, now: Instant) -> bool {
        if somebody_looks || self.full_at > now || Mutation::NoLookBehind.is_on() {
            return false;
        }
        self.full_at = now + FULL_WALK_EVERY.min(self.poll_floor);
        true
    }

    fn take_back(&mut self, seen: &Seen) {
        if seen.number == self.looks {
            return;
        }
        self.looks = seen.number;
        for (route, bound) in &mut self.bounds {
            if let Some(first) = seen.first(*route)
                && (first.due_at, first.id) < (bound.due_at, bound.id)
            {
                *bound = first;
            }
        }
    }

    /// There was no route to walk.
    pub fn nothing(&mut self, now: Instant, is_told: bool, random: f64) {
        self.finished(&[], 0, usize::MAX, now, is_told, random);
    }

    /// What a claim of up to `limit` lanes that was asked at `asked_at` took.
    pub fn finished(
        &mut self,
        routes: &[RouteState],
        taken: usize,
        limit: usize,
        asked_at: Instant,
        is_told: bool,
        random: f64,
    ) {
        for state in routes {
            self.bounds.insert(state.route, state.bound);
        }
        let now = Instant::now();
        if taken > 0 {
            self.quick_until = now + CALM_LATE;
        }
        if taken == limit {
            self.step = FIRST_STEP;
            // A claim has a cost of its own, however few it takes: room for a few is left to grow.
            self.next_at = if limit < SMALL_CLAIM {
                now + SMALL_CLAIM_PAUSE
            } else {
                now
            };
        } else if taken > 0 {
            self.step = NEXT_STEP;
            self.next_at = now + NEXT_STEP;
        } else {
            let next_due = routes.iter().filter_map(|state| state.next_due_in).min();
            let longest = match is_told {
                true => self.poll_floor,
                false => self.poll_floor.min(CALM_LATE),
            };
            let wait = self.step.mul_f64(0.9 + 0.2 * random).min(longest);
            self.step = if now + wait < self.quick_until {
                (self.step * 2).min(QUICK_STEP)
            } else {
                (self.step * 2).min(self.poll_floor)
            };
            let wait = if Mutation::NoPolls.is_on() {
                Duration::from_secs(3600)
            } else {
                wait
            };
            self.next_at = match next_due {
                // A worker wakes itself when the next lane is due; nothing else has to.
                Some(due) => (now + wait).min((asked_at + due).max(now + Duration::from_millis(1))),
                None => now + wait,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn walks() -> Walks {
        Walks::new(&WorkerSettings::default(), Kind::Adapters)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_looks_at_growing_intervals_up_to_the_poll_floor() {
        let mut walks = walks();
        let mut waits = Vec::new();
        for _ in 0..12 {
            let now = Instant::now();
            walks.nothing(now, true, 0.5);
            waits.push(walks.next_at() - now);
        }
        assert_eq!(waits[0], FIRST_STEP);
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(waits[11], Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_told_of_what_comes_goes_on_looking() {
        let mut walks = walks();
        for _ in 0..12 {
            let now = Instant::now();
            walks.nothing(now, false, 0.5);
            assert!(walks.next_at() - now <= CALM_LATE);
        }
        let now = Instant::now();
        walks.nothing(now, true, 0.5);
        assert_eq!(walks.next_at() - now, Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn looks_are_quick_until_a_worker_that_found_something_is_told_of_what_comes() {
        let mut walks = walks();
        walks.finished(&[], 1, 100, Instant::now(), true, 0.5);
        let mut waits = Vec::new();
        for _ in 0..8 {
            tokio::time::sleep_until(walks.next_at()).await;
            let now = Instant::now();
            walks.finished(&[], 0, 100, now, true, 0.5);
            waits.push((walks.next_at() - now).as_millis());
        }
        assert_eq!(waits, [1, 2, 4, 4, 4, 4, 8, 16]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_seen_behind_a_bound_takes_it_back_once() {
        let bound = |second| Bound {
            due_at: Timestamp::from_second(second).unwrap(),
            id: 1,
        };
        let state = |second| RouteState {
            route: 1,
            bound: bound(second),
            next_due_in: None,
        };
        let mut walks = walks();
        walks.finished(&[state(100)], 1, 10, Instant::now(), true, 0.5);
        walks.take_back(&Seen::of(1, HashMap::from([(1, bound(200))])));
        assert_eq!(walks.bounds[&1], bound(100), "nothing is behind it");
        let behind = Seen::of(2, HashMap::from([(1, bound(50)), (2, bound(1))]));
        walks.take_back(&behind);
        assert_eq!(walks.bounds[&1], bound(50));
        walks.finished(&[state(100)], 1, 10, Instant::now(), true, 0.5);
        walks.take_back(&behind);
        assert_eq!(walks.bounds[&1], bound(100), "that was looked at");
    }

    #[tokio::test(start_paused = true)]
    async fn walks_start_from_the_beginning_only_where_nobody_looks_behind_them() {
        let mut walks = walks();
        let now = Instant::now();
        assert!(!walks.looks_itself(true, now));
        assert!(walks.looks_itself(false, now));
        assert!(!walks.looks_itself(false, now));
        assert!(walks.looks_itself(false, now + FULL_WALK_EVERY));
    }

    #[tokio::test(start_paused = true)]
    async fn it_wakes_itself_when_the_next_token_is_due() {
        let mut walks = walks();
        for _ in 0..12 {
            walks.nothing(Instant::now(), true, 0.5);
        }
        let now = Instant::now();
        let due = Duration::from_millis(300);
        let state = RouteState {
            route: 1,
            bound: Bound::START,
            next_due_in: Some(due),
        };
        walks.finished(&[state], 0, 100, now, true, 0.5);
        assert_eq!(walks.next_at(), now + due);
    }

    #[tokio::test(start_paused = true)]
    async fn it_looks_when_a_token_of_its_own_making_is_due() {
        let mut walks = walks();
        for _ in 0..12 {
            walks.nothing(Instant::now(), true, 0.5);
        }
        let due = Instant::now() + Duration::from_millis(300);
        walks.expect(due);
        walks.expect(due + Duration::from_secs(60));
        assert_eq!(walks.next_at(), due);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_claim_is_followed_by_another_at_once() {
        let mut walks = walks();
        let now = Instant::now();
        walks.finished(&[], 100, 100, now, true, 0.5);
        assert!(walks.due(now));
        walks.finished(&[], 99, 100, now, true, 0.5);
        assert!(!walks.due(now));
    }
}
