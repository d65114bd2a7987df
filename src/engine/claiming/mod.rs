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
pub mod rate_control;
pub mod request;
mod reserve;
pub mod route;
pub mod scan;
pub mod slots;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lanekeeper_limit::Limiter;
use tokio::sync::watch;

use self::backstop_result::Backstop;
use self::rate_control::Counts;
use self::reserve::reserve;
use self::route::{Route, RouteTable};
use self::slots::{HeldLanes, Slots};
use crate::waking::Waking;

/// What the connections of one worker that claim have in common: routes, slots and the backstop scan.
pub struct Claiming {
    routes: watch::Sender<Arc<RouteTable>>,
    counts: Arc<Counts>,
    lanes: Arc<HeldLanes>,
    /// Some connection had no slot for a claim. The next release of a lane wakes the connections.
    lacks_room: AtomicBool,
    pub backstop: Backstop,
    waking: Arc<Waking>,
}

impl Claiming {
    pub fn new(max_lanes: usize, waking: Arc<Waking>) -> Self {
        Self {
            routes: watch::Sender::default(),
            counts: Arc::new(Counts::new(max_lanes)),
            lanes: Arc::default(),
            lacks_room: AtomicBool::new(false),
            backstop: Backstop::default(),
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
        let before = self.routes.send_replace(Arc::clone(&routes));
        before.mark_replaced(&routes);
        self.waking.wake_all();
    }

    /// Lanes held over all connections, without those that wait for a limit and lent their slot.
    pub fn held(&self) -> usize {
        self.counts.held.load(Ordering::Relaxed)
    }

    /// How many lanes may be held over all connections.
    pub fn max_lanes(&self) -> usize {
        self.counts.most.load(Ordering::Relaxed)
    }

    pub fn set_max_lanes(&self, most: usize) {
        let before = self.counts.most.swap(most, Ordering::Relaxed);
        if before != most {
            tracing::info!(max_lanes = most, "lanes that this worker may hold at once");
            self.made_room();
        }
    }

    /// The lanes that this worker holds, over all its connections, ascending. A claim skips their ready entries
    /// without trying their locks.
    pub fn held_lanes(&self) -> Vec<i64> {
        self.lanes.ascending()
    }

    /// Asks to be woken when the next lane is released.
    pub fn wait_for_room(&self) {
        self.lacks_room.store(true, Ordering::SeqCst);
    }

    /// Some connection released lanes, or a waiting lane lent its slot.
    pub fn made_room(&self) {
        if self.lacks_room.swap(false, Ordering::SeqCst) {
            self.waking.wake_all();
        }
    }

    /// Reserves slots for up to `wanted` lanes, on the worker and on each route, before a claim: all lane
    /// connections wake at once, and without reservations each would count on the same free slots.
    pub fn reserve(
        &self,
        wanted: usize,
        routes: impl Iterator<Item = Arc<Route>>,
        limiter: &Limiter,
    ) -> Slots {
        let total = reserve(&self.counts.held, self.max_lanes(), wanted);
        let routes = if total == 0 {
            Vec::new()
        } else {
            routes
                .map(|route| (route.reserve(total, limiter), route))
                .filter(|(slots, _)| *slots > 0)
                .collect()
        };
        let (counts, lanes) = (Arc::clone(&self.counts), Arc::clone(&self.lanes));
        Slots::new(counts, lanes, total, routes)
    }
}
