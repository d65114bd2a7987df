//! Claiming: which lanes a connection takes, and how it settles them (I2, I5, I9).
//!
//! A lane with something to deliver has a row in `ready`, its ready entry. A claim scans due entries and tries the
//! advisory lock of each entry's lane. Whoever has the lock holds the lane: it fetches events, delivers them,
//! settles what became of them, and releases the lock. No transaction stays open meanwhile, except a handler's.
//!
//! ```text
//!           claim                fetch                 settle
//!   ready ────────► held ──────────────► delivering ──────────► idle       entry deleted, lock released
//!     ▲                                      │  ▲         │
//!     │                                      └──┘ more    ├───► ready      entry kept, due now or later
//!     └───────────────────────────────────────────────────┘
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`claimer`] | a lane connection and its loop: claim, fetch, hand lanes to tasks, settle |
//! | [`scan`] | when a connection scans next, and where each route's scan starts |
//! | [`backstop`], [`backstop_result`] | finds entries that became visible behind the scan starts |
//! | [`poll_floor`] | how long an idle worker may go without a scan |
//! | [`kind`] | connections of adapters, and of handlers |
//! | [`request`] | what held lanes and their connection send each other |
//! | [`route`] | the subscriptions that this worker delivers |
//! | [`slots`] | how many lanes the worker holds, and which |
//! | [`rate_control`] | how many lanes of a route under a rate limit are claimed |
//!
//! # Which lanes, and how many
//!
//! - Lanes that the worker already holds, on any of its connections, are skipped before their lock is tried. Lanes
//!   of the same connection must be: session locks are re-entrant. A lane of which one scan meets two entries is
//!   locked twice; the caller unlocks it once for the second.
//! - A claim has a fixed cost. If there is room for only a few lanes, the connection waits a millisecond for more
//!   room.
//! - A claim takes as many lanes as its connection released in 20 ms of late, from 256 up to its share of the lanes
//!   that the worker may hold, 1,024 at most. If deliveries take microseconds, larger groups share the costs of
//!   claims, settlements and wake-ups. If they take longer, a larger claim would only make lanes wait that other
//!   workers could deliver.
//! - Only routes that this worker can deliver and has slots for are scanned. A paused subscription costs nothing.
//! - A ready entry whose lane turns out to be parked, or not due, is a spare entry and is deleted.
//! - Lanes of a route under a rate limit are claimed no faster than the limit allows: see limits.
//!
//! # Failures
//!
//! | failure | what happens |
//! |---|---|
//! | the connection is lost during a claim | the server releases its locks; the ready entries are still there |
//! | the connection is lost during a settlement | its outcome is unknown; the next holder reads which version counts |
//! | another process settled the lane | the compare-and-set misses, the task ends, nothing is written |
//! | a ready entry was replaced between scan and lock | the entry is not at its ctid: the lane is looked up by key or released |

pub mod backstop;
pub mod backstop_result;
pub mod claimer;
pub mod kind;
pub mod poll_floor;
pub mod rate_control;
pub mod request;
mod reserve;
pub mod route;
pub mod scan;
pub mod slots;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lanekeeper_limit::Limiter;
use tokio::sync::watch;

use self::backstop_result::Backstop;
use self::kind::Kind;
use self::poll_floor::PollFloors;
use self::rate_control::Counts;
use self::reserve::reserve;
use self::route::{Route, RouteTable};
use self::slots::{HeldLanes, Slots};
use crate::waking::Waking;

/// Beside the lanes of adapters a worker with handlers holds one for so many of theirs, at most `HANDLER_LANES_MOST`,
/// of which a connection takes a few at a time. The two kinds do not take each other's: a handler connection that waited
/// for room of adapters would be woken by each of their deliveries, and find nothing; and the registry, which is a
/// handler, must not take from webhooks what `worker.max_lanes` promises them.
const HANDLER_LANES: usize = 8;
const HANDLER_LANES_MOST: usize = 64;

/// How many lanes handlers may hold beside `max_lanes` of adapters.
pub fn handler_lanes(max_lanes: usize) -> usize {
    (max_lanes / HANDLER_LANES).clamp(1, HANDLER_LANES_MOST)
}

/// A delivery's connection and one that was opened in vain beside it, or the pipes of a program while it starts.
const DESCRIPTORS_PER_DELIVERY: usize = 4;

/// What the connections of one worker that claim have in common: routes, slots and the backstop scan.
pub struct Claiming {
    routes: watch::Sender<Arc<RouteTable>>,
    counts: Arc<Counts>,
    /// Some route is a handler's.
    has_handlers: AtomicBool,
    lanes: Arc<HeldLanes>,
    /// Some connection of the kind had no slot for a claim. The next release of a lane wakes one of that kind.
    lanes_lack_room: AtomicBool,
    handlers_lack_room: AtomicBool,
    /// File descriptors that deliveries may use, over all routes.
    descriptors: Option<usize>,
    pub backstop: Backstop,
    pub poll_floors: Arc<PollFloors>,
    waking: Arc<Waking>,
}

impl Claiming {
    pub fn new(
        max_lanes: usize,
        descriptors: Option<usize>,
        poll_floor: Duration,
        waking: Arc<Waking>,
    ) -> Self {
        Self {
            routes: watch::Sender::default(),
            counts: Arc::new(Counts::new(max_lanes)),
            has_handlers: AtomicBool::new(false),
            lanes: Arc::default(),
            lanes_lack_room: AtomicBool::new(false),
            handlers_lack_room: AtomicBool::new(false),
            descriptors,
            backstop: Backstop::default(),
            poll_floors: Arc::new(PollFloors::new(poll_floor)),
            waking,
        }
    }

    pub fn routes(&self) -> Arc<RouteTable> {
        Arc::clone(&self.routes.borrow())
    }

    /// Replaces the routes. A lane that is held on a route that is gone, or has a new version, finishes the
    /// delivery that is under way and is released.
    pub fn set_routes(&self, routes: RouteTable) {
        let routes = Arc::new(routes);
        let has_handlers = routes.iter().any(|route| route.is_transactional());
        self.has_handlers.store(has_handlers, Ordering::Relaxed);
        self.warn_of_descriptors(&routes);
        let before = self.routes.send_replace(Arc::clone(&routes));
        before.mark_replaced(&routes);
        self.waking.wake_all();
    }

    /// Takes the poll floors of the streams by their subscriptions' ids. Idle connections that are to scan sooner now do.
    pub fn set_poll_floors(&self, floors: &HashMap<i32, Duration>) {
        let routes = self.routes();
        let of = |route: &Arc<Route>| {
            let kind = match route.is_transactional() {
                true => Kind::Handlers,
                false => Kind::Adapters,
            };
            (kind, floors.get(&route.id()).copied())
        };
        if self.poll_floors.set(routes.iter().map(of)) {
            self.waking.wake_all();
        }
    }

    /// Lanes held over all connections, without those that wait for a limit and lent their slot.
    pub fn held(&self) -> usize {
        let held = |kind| self.counts.of(kind).load(Ordering::Relaxed);
        held(Kind::Adapters) + held(Kind::Handlers)
    }

    /// How many more lanes connections of this kind may hold.
    pub fn room(&self, kind: Kind) -> usize {
        let held = self.counts.of(kind).load(Ordering::Relaxed);
        self.most_of(kind).saturating_sub(held)
    }

    /// How many lanes connections of this kind may hold.
    fn most_of(&self, kind: Kind) -> usize {
        let most = self.max_lanes();
        match kind {
            Kind::Adapters => most,
            Kind::Handlers if self.has_handlers.load(Ordering::Relaxed) => handler_lanes(most),
            Kind::Handlers => 0,
        }
    }

    /// How many lanes adapters may hold, over all connections.
    pub fn max_lanes(&self) -> usize {
        self.counts.most.load(Ordering::Relaxed)
    }

    pub fn set_max_lanes(&self, most: usize) {
        let before = self.counts.most.swap(most, Ordering::Relaxed);
        if before != most {
            tracing::info!(max_lanes = most, "lanes that this worker may hold at once");
            self.made_room(Kind::Adapters);
            self.made_room(Kind::Handlers);
        }
    }

    /// The lanes that this worker holds, over all its connections, ascending. A claim skips their ready entries
    /// without trying their locks.
    pub fn held_lanes(&self) -> Vec<i64> {
        self.lanes.ascending()
    }

    /// Asks to have a connection of this kind woken when the next lane is released.
    pub fn wait_for_room(&self, kind: Kind) {
        self.lacks_room(kind).store(true, Ordering::SeqCst);
    }

    /// Some connection of this kind released lanes, or a waiting lane lent its slot. Wakes one of the kind if it asked,
    /// and no other: a claim that finds nothing costs Postgres as much as one that does.
    pub fn made_room(&self, kind: Kind) {
        if self.lacks_room(kind).swap(false, Ordering::SeqCst) {
            match kind {
                Kind::Adapters => self.waking.lane_connections.notify_one(),
                Kind::Handlers => self.waking.wake_handlers(),
            }
        }
    }

    fn lacks_room(&self, kind: Kind) -> &AtomicBool {
        match kind {
            Kind::Adapters => &self.lanes_lack_room,
            Kind::Handlers => &self.handlers_lack_room,
        }
    }

    /// How many deliveries of one route there may be, so that no route takes the file descriptors of another.
    fn fitting(&self, routes: &RouteTable) -> usize {
        let Some(descriptors) = self.descriptors else {
            return usize::MAX;
        };
        let sharing = routes.iter().filter(|route| !route.is_transactional());
        (descriptors / DESCRIPTORS_PER_DELIVERY / sharing.count().max(1)).max(1)
    }

    fn warn_of_descriptors(&self, routes: &RouteTable) {
        let fitting = self.fitting(routes);
        let bounded = routes
            .iter()
            .filter(|route| !route.is_transactional() && route.subscription.concurrency > fitting);
        for route in bounded {
            tracing::warn!(
                subscription = %route.subscription.name,
                concurrency = route.subscription.concurrency,
                bound = fitting,
                "this worker's limit of open files is too low for the subscription's concurrency: raise it (ulimit -n)"
            );
        }
    }

    /// Reserves slots for up to `wanted` lanes, on the worker and on each route, before a claim: all lane
    /// connections wake at once, and without reservations each would count on the same free slots.
    pub fn reserve(
        &self,
        kind: Kind,
        wanted: usize,
        routes: impl Iterator<Item = Arc<Route>>,
        limiter: &Limiter,
    ) -> Slots {
        let total = reserve(self.counts.of(kind), self.most_of(kind), wanted);
        let fitting = self.fitting(&self.routes());
        let routes = if total == 0 {
            Vec::new()
        } else {
            routes
                .map(|route| (route.reserve(total, fitting, limiter), route))
                .filter(|(slots, _)| *slots > 0)
                .collect()
        };
        let (counts, lanes) = (Arc::clone(&self.counts), Arc::clone(&self.lanes));
        Slots::new(kind, counts, lanes, total, routes)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::Notify;

    use super::*;

    fn is_woken(connections: &Notify) -> bool {
        connections.notified().now_or_never().is_some()
    }

    #[test]
    fn a_free_slot_wakes_a_connection_of_the_kind_that_lacked_one_and_no_other() {
        let waking = Arc::new(Waking::default());
        let claiming = Claiming::new(4, None, Duration::MAX, Arc::clone(&waking));
        let woken = || {
            [
                is_woken(&waking.lane_connections),
                is_woken(&waking.handler_connections),
            ]
        };
        claiming.made_room(Kind::Adapters);
        claiming.made_room(Kind::Handlers);
        assert_eq!(woken(), [false, false], "nobody asked");
        claiming.wait_for_room(Kind::Adapters);
        claiming.wait_for_room(Kind::Handlers);
        claiming.made_room(Kind::Adapters);
        assert_eq!(woken(), [true, false], "adapters make no room for handlers");
        claiming.made_room(Kind::Adapters);
        assert_eq!(woken(), [false, false], "it was told");
        claiming.made_room(Kind::Handlers);
        assert_eq!(woken(), [false, true]);
    }

    #[test]
    fn adapters_and_handlers_take_no_lanes_of_each_other() {
        for (most, handlers) in [(2_048, 64), (16, 2), (1, 1)] {
            let claiming = Claiming::new(most, None, Duration::MAX, Arc::default());
            let room = |kind| claiming.room(kind);
            assert_eq!((room(Kind::Adapters), room(Kind::Handlers)), (most, 0));
            claiming.has_handlers.store(true, Ordering::Relaxed);
            let mut left = [most, handlers];
            for (at, kind) in [Kind::Handlers, Kind::Adapters].into_iter().enumerate() {
                reserve(claiming.counts.of(kind), claiming.most_of(kind), 4_096);
                left[1 - at] = 0;
                assert_eq!([room(Kind::Adapters), room(Kind::Handlers)], left);
            }
            assert_eq!(claiming.held(), most + handlers);
        }
    }

    #[test]
    fn without_a_limit_of_open_files_a_route_is_bounded_by_its_concurrency_alone() {
        let waking = Arc::new(Waking::default());
        let with = |descriptors| Claiming::new(4, descriptors, Duration::MAX, Arc::clone(&waking));
        let routes = RouteTable::default();
        assert_eq!(with(None).fitting(&routes), usize::MAX);
        assert_eq!(with(Some(160)).fitting(&routes), 40);
        assert_eq!(with(Some(0)).fitting(&routes), 1, "something is delivered");
    }
}
