//! When a connection scans for ready entries next, and where each route's scan starts (I8, I9).
//!
//! A scan begins at its scan start, a position in the order of ready entries (due time, id). After a scan that
//! reached its limit, the next one continues where it ended, so that entries of held lanes and deleted entries are
//! passed once and not by every claim. After a scan that saw everything due, the next begins at the first entry
//! that exists, whoever holds its lane. The scan start stays 50 ms behind now.
//!
//! An entry can still become visible behind a scan start. The backstop scan (see [`super::backstop`]) finds it
//! about once a second, and moves the scan start back. If the backstop scan fails or takes long, one scan a second
//! starts from the beginning instead.
//!
//! An idle connection scans at growing intervals, up to the poll floor. That finds entries of which no notification
//! arrives, and is all that is left when notifications fail. While no producer notifies this worker the intervals
//! stay short (see [`crate::waking::idle`]). A handler connection that finds nothing while adapters keep the worker busy
//! would scan in vain for as long as they do: its intervals grow with the time since it last found something.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_fault::Mutation;
use lanekeeper_postgres::claim::{RouteScan, RouteState, ScanStart};
use tokio::time::Instant;

use crate::claiming::backstop_result::BackstopResult;
use crate::claiming::kind::Kind;
use crate::claiming::poll_floor::PollFloors;
use crate::claiming::route::Route;
use crate::claiming::slots::Slots;
use crate::waking::idle::QUIET_PERIOD_CONTENDED;

/// Between scans from the beginning if the backstop scan fails; the poll floor if that is shorter.
const FULL_SCAN_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_STEP: Duration = Duration::from_millis(2);
/// The first interval after a scan that took lanes.
const NEXT_STEP: Duration = Duration::from_millis(1);
/// The longest interval soon after a scan that took lanes: nobody is notified meanwhile (see `waking::idle`).
const QUICK_STEP: Duration = Duration::from_millis(4);
/// While the worker is not notified, a handler connection waits for one in so many parts of the time since it last took a
/// lane, and no longer than `HANDLER_STEP_MAX`.
const HANDLER_IDLE_PARTS: u32 = 20;
const HANDLER_STEP_MAX: Duration = Duration::from_millis(250);
/// A full claim of fewer lanes than this is followed by a pause; a larger one by the next claim at once.
const SMALL_CLAIM: usize = 64;
const SMALL_CLAIM_PAUSE: Duration = Duration::from_millis(1);

/// The scans of one connection.
pub struct Scans {
    kind: Kind,
    starts: HashMap<i32, ScanStart>,
    /// The last backstop scan that was applied to the scan starts.
    backstop_number: u64,
    full_scan_at: Instant,
    next_at: Instant,
    step: Duration,
    /// When a scan last took lanes.
    found_at: Instant,
    /// Until then the intervals stay at `QUICK_STEP`.
    quick_until: Instant,
    poll_floors: Arc<PollFloors>,
    /// Which route is scanned first.
    first: usize,
    /// The last plan left out a route for want of slots.
    left_out: bool,
}

impl Scans {
    pub fn new(poll_floors: &Arc<PollFloors>, kind: Kind) -> Self {
        let now = Instant::now();
        Self {
            kind,
            starts: HashMap::new(),
            backstop_number: 0,
            full_scan_at: now,
            next_at: now,
            step: FIRST_STEP,
            found_at: now,
            quick_until: now,
            poll_floors: Arc::clone(poll_floors),
            first: 0,
            left_out: false,
        }
    }

    pub fn due(&self, now: Instant) -> bool {
        self.next_at <= now
    }

    pub fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Something may be due: scan now.
    pub fn wake(&mut self) {
        self.next_at = Instant::now();
        self.step = FIRST_STEP;
    }

    /// An entry that this connection itself made is due at that time.
    pub fn schedule(&mut self, at: Instant) {
        self.next_at = self.next_at.min(at);
    }

    /// Whether this connection delivers the route's events.
    pub fn serves(&self, route: &Route) -> bool {
        route.is_transactional() == (self.kind == Kind::Handlers)
    }

    /// The routes that have slots, each with its scan start. `seen` is the last result of the backstop scan.
    pub fn plan(
        &mut self,
        slots: &Slots,
        seen: Option<Arc<BackstopResult>>,
        now: Instant,
    ) -> Vec<RouteScan> {
        let full = self.scans_everything(seen.is_some(), now);
        if let Some(seen) = seen {
            self.move_back(&seen);
        }
        // The route that comes first may take all slots, so another one is first each time.
        self.first = self.first.wrapping_add(1);
        let left_out_before = std::mem::take(&mut self.left_out);
        let mut scans = Vec::new();
        for (route, slots) in slots.routes() {
            let rooms = shares(slots, route.entry_routes.len(), self.first);
            for (&route, room) in route.entry_routes.iter().zip(rooms) {
                if room == 0 {
                    // Its turn comes with the next scan, which is not put off.
                    self.left_out = !left_out_before;
                    continue;
                }
                scans.push(RouteScan {
                    route,
                    room: i32::try_from(room).unwrap_or(i32::MAX),
                    start: match self.starts.get(&route) {
                        Some(start) if !full && !Mutation::NoBound.is_on() => *start,
                        _ => ScanStart::START,
                    },
                });
            }
        }
        let first = self.first % scans.len().max(1);
        scans.rotate_left(first);
        scans
    }

    /// Whether this scan starts from the beginning.
    fn scans_everything(&mut self, has_backstop: bool, now: Instant) -> bool {
        if has_backstop || self.full_scan_at > now || Mutation::NoLookBehind.is_on() {
            return false;
        }
        self.full_scan_at = now + FULL_SCAN_INTERVAL.min(self.poll_floors.of(self.kind));
        true
    }

    fn move_back(&mut self, seen: &BackstopResult) {
        if seen.number == self.backstop_number {
            return;
        }
        self.backstop_number = seen.number;
        for (route, start) in &mut self.starts {
            if let Some(first) = seen.first(*route)
                && (first.due_at, first.id) < (start.due_at, start.id)
            {
                *start = first;
            }
        }
    }

    /// No route had slots.
    pub fn no_route(&mut self, now: Instant, is_notified: bool, random: f64) {
        self.finished(&[], 0, usize::MAX, now, is_notified, random);
    }

    /// A claim of up to `limit` lanes, sent at `asked_at`, took `taken`.
    pub fn finished(
        &mut self,
        routes: &[RouteState],
        taken: usize,
        limit: usize,
        asked_at: Instant,
        is_notified: bool,
        random: f64,
    ) {
        for state in routes {
            self.starts.insert(state.route, state.start);
        }
        let now = Instant::now();
        if taken > 0 {
            self.found_at = now;
            self.quick_until = now + QUIET_PERIOD_CONTENDED;
        }
        if taken == limit {
            self.step = FIRST_STEP;
            // A claim has a fixed cost: if there is room for only a few lanes, wait for more room.
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
            let poll_floor = self.poll_floors.of(self.kind);
            let longest = match is_notified {
                true => poll_floor,
                false => poll_floor.min(self.longest_unnotified(now)),
            };
            let wait = self.step.mul_f64(0.9 + 0.2 * random).min(longest);
            self.step = if now + wait < self.quick_until {
                (self.step * 2).min(QUICK_STEP)
            } else {
                (self.step * 2).min(poll_floor)
            };
            let wait = if Mutation::NoPolls.is_on() {
                Duration::from_secs(3600)
            } else {
                wait
            };
            if std::mem::take(&mut self.left_out) {
                self.next_at = now;
                return;
            }
            self.next_at = match next_due {
                // The connection wakes itself when the next entry is due.
                Some(due) => (now + wait).min((asked_at + due).max(now + Duration::from_millis(1))),
                None => now + wait,
            };
        }
    }
}

impl Scans {
    /// The longest interval while nobody notifies this worker.
    fn longest_unnotified(&self, now: Instant) -> Duration {
        match self.kind {
            Kind::Adapters => QUIET_PERIOD_CONTENDED,
            Kind::Handlers => {
                let part = (now - self.found_at) / HANDLER_IDLE_PARTS;
                part.clamp(QUIET_PERIOD_CONTENDED, HANDLER_STEP_MAX)
            }
        }
    }
}

/// Divides the slots of a subscription among its routes, so that together they take no more. Which one gets the rest
/// changes from scan to scan.
fn shares(slots: usize, routes: usize, turn: usize) -> impl Iterator<Item = usize> {
    let rest = slots % routes;
    (0..routes).map(move |at| slots / routes + usize::from((at + turn) % routes < rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::WorkerSettings;
    use jiff::Timestamp;

    #[test]
    fn the_routes_of_a_subscription_share_its_slots_and_take_turns_at_the_rest() {
        let shares = |slots, routes, turn| -> Vec<usize> { shares(slots, routes, turn).collect() };
        assert_eq!(shares(64, 1, 7), [64]);
        assert_eq!(shares(64, 2, 7), [32, 32]);
        for routes in 1..4 {
            for slots in 0..10 {
                let mut sums = vec![0; routes];
                for turn in 0..routes {
                    let shares = shares(slots, routes, turn);
                    assert_eq!(shares.iter().sum::<usize>(), slots);
                    sums.iter_mut()
                        .zip(shares)
                        .for_each(|(sum, share)| *sum += share);
                }
                assert_eq!(sums, vec![slots; routes], "as many for each in the end");
            }
        }
    }

    fn scans_of(kind: Kind) -> Scans {
        let floors = PollFloors::new(WorkerSettings::default().poll_floor);
        Scans::new(&Arc::new(floors), kind)
    }

    fn scans() -> Scans {
        scans_of(Kind::Adapters)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_scans_at_growing_intervals_up_to_the_poll_floor() {
        let mut scans = scans();
        let mut waits = Vec::new();
        for _ in 0..12 {
            let now = Instant::now();
            scans.no_route(now, true, 0.5);
            waits.push(scans.next_at() - now);
        }
        assert_eq!(waits[0], FIRST_STEP);
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(waits[11], Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_scans_as_often_as_the_stream_asks_that_asks_for_most() {
        let mut scans = scans();
        let stream = |millis| (Kind::Adapters, Some(Duration::from_millis(millis)));
        let mut longest = |streams: &[(Kind, Option<Duration>)]| {
            scans.poll_floors.set(streams.iter().copied());
            for _ in 0..14 {
                scans.no_route(Instant::now(), true, 0.5);
            }
            scans.next_at() - Instant::now()
        };
        assert_eq!(longest(&[stream(200), stream(5_000)]).as_millis(), 200);
        assert_eq!(longest(&[stream(5_000)]).as_millis(), 5_000);
        let handlers = (Kind::Handlers, Some(Duration::from_millis(10)));
        assert_eq!(longest(&[stream(5_000), handlers]).as_millis(), 5_000);
        assert_eq!(
            longest(&[stream(5_000), (Kind::Adapters, None)]).as_millis(),
            1_000
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_is_not_notified_keeps_scanning() {
        let mut scans = scans();
        for _ in 0..12 {
            let now = Instant::now();
            scans.no_route(now, false, 0.5);
            assert!(scans.next_at() - now <= QUIET_PERIOD_CONTENDED);
        }
        let now = Instant::now();
        scans.no_route(now, true, 0.5);
        assert_eq!(scans.next_at() - now, Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_connection_without_work_scans_less_often_while_adapters_keep_the_worker_busy()
     {
        let mut scans = scans_of(Kind::Handlers);
        let mut scans_in = async |seconds| {
            let until = Instant::now() + Duration::from_secs(seconds);
            let mut count = 0;
            while scans.next_at() < until {
                tokio::time::sleep_until(scans.next_at()).await;
                scans.finished(&[], 0, 8, Instant::now(), false, 0.5);
                count += 1;
            }
            count
        };
        let (first, later) = (scans_in(1).await, scans_in(20).await);
        assert!((30..60).contains(&first), "{first} in the first second");
        assert!((75..120).contains(&later), "{later} in twenty more");
        // It found something.
        scans.finished(&[], 1, 8, Instant::now(), false, 0.5);
        for _ in 0..12 {
            let now = Instant::now();
            scans.no_route(now, false, 0.5);
            assert!(scans.next_at() - now <= QUIET_PERIOD_CONTENDED);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn scans_are_frequent_after_a_claim_until_the_worker_is_notified_again() {
        let mut scans = scans();
        scans.finished(&[], 1, 100, Instant::now(), true, 0.5);
        let mut waits = Vec::new();
        for _ in 0..8 {
            tokio::time::sleep_until(scans.next_at()).await;
            let now = Instant::now();
            scans.finished(&[], 0, 100, now, true, 0.5);
            waits.push((scans.next_at() - now).as_millis());
        }
        assert_eq!(waits, [1, 2, 4, 4, 4, 4, 8, 16]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_behind_a_scan_start_moves_it_back_once() {
        let start = |second| ScanStart {
            due_at: Timestamp::from_second(second).unwrap(),
            id: 1,
        };
        let state = |second| RouteState {
            route: 1,
            start: start(second),
            next_due_in: None,
        };
        let mut scans = scans();
        scans.finished(&[state(100)], 1, 10, Instant::now(), true, 0.5);
        scans.move_back(&BackstopResult::of(1, HashMap::from([(1, start(200))])));
        assert_eq!(scans.starts[&1], start(100), "no entry is behind it");
        let earlier = BackstopResult::of(2, HashMap::from([(1, start(50)), (2, start(1))]));
        scans.move_back(&earlier);
        assert_eq!(scans.starts[&1], start(50));
        scans.finished(&[state(100)], 1, 10, Instant::now(), true, 0.5);
        scans.move_back(&earlier);
        assert_eq!(
            scans.starts[&1],
            start(100),
            "this result was applied before"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn scans_start_from_the_beginning_only_without_a_backstop_scan() {
        let mut scans = scans();
        let now = Instant::now();
        assert!(!scans.scans_everything(true, now));
        assert!(scans.scans_everything(false, now));
        assert!(!scans.scans_everything(false, now));
        assert!(scans.scans_everything(false, now + FULL_SCAN_INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_scans_when_the_next_entry_is_due() {
        let mut scans = scans();
        for _ in 0..12 {
            scans.no_route(Instant::now(), true, 0.5);
        }
        let now = Instant::now();
        let due = Duration::from_millis(300);
        let state = RouteState {
            route: 1,
            start: ScanStart::START,
            next_due_in: Some(due),
        };
        scans.finished(&[state], 0, 100, now, true, 0.5);
        assert_eq!(scans.next_at(), now + due);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_scans_when_an_entry_of_its_own_is_due() {
        let mut scans = scans();
        for _ in 0..12 {
            scans.no_route(Instant::now(), true, 0.5);
        }
        let due = Instant::now() + Duration::from_millis(300);
        scans.schedule(due);
        scans.schedule(due + Duration::from_secs(60));
        assert_eq!(scans.next_at(), due);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_claim_is_followed_by_another_at_once() {
        let mut scans = scans();
        let now = Instant::now();
        scans.finished(&[], 100, 100, now, true, 0.5);
        assert!(scans.due(now));
        scans.finished(&[], 99, 100, now, true, 0.5);
        assert!(!scans.due(now));
    }
}
