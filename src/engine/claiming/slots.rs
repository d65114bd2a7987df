//! The slots of a worker: how many lanes it holds, and which (I2). Slots are reserved before a claim and given back
//! when a lane is released.

use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::claiming::kind::Kind;
use crate::claiming::rate_control::{Counts, LaneSlot};
use crate::claiming::route::{Hold, Route};

/// Slots that are reserved and have no lane yet. Given back when dropped.
pub struct Slots {
    kind: Kind,
    counts: Arc<Counts>,
    lanes: Arc<HeldLanes>,
    total: usize,
    routes: Vec<(usize, Arc<Route>)>,
}

impl Slots {
    /// Up to `total` lanes of a worker, and for each of these routes as many as given.
    pub fn new(
        kind: Kind,
        counts: Arc<Counts>,
        lanes: Arc<HeldLanes>,
        total: usize,
        routes: Vec<(usize, Arc<Route>)>,
    ) -> Self {
        Self {
            kind,
            counts,
            lanes,
            total,
            routes,
        }
    }

    /// How many lanes may be claimed.
    pub fn total(&self) -> usize {
        if self.routes.is_empty() {
            0
        } else {
            self.total
        }
    }

    /// Each route with its slots.
    pub fn routes(&self) -> impl Iterator<Item = (&Route, usize)> {
        self.routes.iter().map(|(slots, route)| (&**route, *slots))
    }

    /// A lane of this route was claimed, and takes one of its slots.
    pub fn hold(&mut self, lane_id: i64, route: &Route) -> LaneHold {
        self.total = self.total.saturating_sub(1);
        for (slots, reserved) in &mut self.routes {
            if reserved.id() == route.id() {
                *slots = slots.saturating_sub(1);
            }
        }
        self.lanes.enter(lane_id);
        let counts = Arc::clone(&self.counts);
        LaneHold {
            lane_id,
            slot: route
                .may_wait()
                .then(|| Arc::new(LaneSlot::new(Arc::clone(&counts), Arc::clone(&route.gate)))),
            kind: self.kind,
            counts,
            lanes: Arc::clone(&self.lanes),
            _route: route.hold(),
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.counts
            .of(self.kind)
            .fetch_sub(self.total, Ordering::Relaxed);
        for (slots, route) in &self.routes {
            route.give_back(*slots);
        }
    }
}

/// Counts a lane as held, on the worker and on its route.
pub struct LaneHold {
    lane_id: i64,
    /// For a lane that may have to wait for a limit: where it is counted changes while it waits.
    pub slot: Option<Arc<LaneSlot>>,
    kind: Kind,
    counts: Arc<Counts>,
    lanes: Arc<HeldLanes>,
    _route: Hold,
}

impl Drop for LaneHold {
    fn drop(&mut self) {
        match &self.slot {
            Some(slot) => slot.leave(),
            None => drop(self.counts.of(self.kind).fetch_sub(1, Ordering::Relaxed)),
        }
        self.lanes.leave(self.lane_id);
    }
}

/// Which lanes a worker holds, and how often: for a moment a lane may be held by a connection that was lost and by the
/// one that has claimed it since.
#[derive(Default)]
pub struct HeldLanes {
    counts: Mutex<FxHashMap<i64, u32>>,
}

impl HeldLanes {
    fn counts(&self) -> MutexGuard<'_, FxHashMap<i64, u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, lane_id: i64) {
        *self.counts().entry(lane_id).or_default() += 1;
    }

    fn leave(&self, lane_id: i64) {
        if let Entry::Occupied(mut count) = self.counts().entry(lane_id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub fn ascending(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = self.counts().keys().copied().collect();
        ids.sort_unstable();
        ids
    }
}
