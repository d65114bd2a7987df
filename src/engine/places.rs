//! How many lanes a worker holds, and which: taken before a claim, given back when a lane is let go (I2).

use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::pace::{Counts, Place};
use super::route::{Hold, Route};

/// Places that are taken and have no lane yet; given back when dropped.
pub struct Places {
    counts: Arc<Counts>,
    lanes: Arc<HeldLanes>,
    total: usize,
    routes: Vec<(usize, Arc<Route>)>,
}

impl Places {
    /// Up to `total` lanes of a worker, each of one of these routes, which have as many places each.
    pub fn new(
        counts: Arc<Counts>,
        lanes: Arc<HeldLanes>,
        total: usize,
        routes: Vec<(usize, Arc<Route>)>,
    ) -> Self {
        Self {
            counts,
            lanes,
            total,
            routes,
        }
    }

    /// Lanes that may be claimed.
    pub fn total(&self) -> usize {
        if self.routes.is_empty() {
            0
        } else {
            self.total
        }
    }

    /// Each route with its places.
    pub fn routes(&self) -> impl Iterator<Item = (&Route, usize)> {
        self.routes
            .iter()
            .map(|(places, route)| (&**route, *places))
    }

    /// A lane of this route was claimed within its places.
    pub fn hold(&mut self, lane_id: i64, route: &Route) -> LaneHold {
        self.total = self.total.saturating_sub(1);
        for (places, reserved) in &mut self.routes {
            if reserved.id() == route.id() {
                *places = places.saturating_sub(1);
            }
        }
        self.lanes.enter(lane_id);
        let counts = Arc::clone(&self.counts);
        LaneHold {
            lane_id,
            place: route
                .is_paced()
                .then(|| Arc::new(Place::new(Arc::clone(&counts), Arc::clone(&route.gate)))),
            counts,
            lanes: Arc::clone(&self.lanes),
            _route: route.hold(),
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.counts.held.fetch_sub(self.total, Ordering::Relaxed);
        for (places, route) in &self.routes {
            route.give_back(*places);
        }
    }
}

/// Counts a lane as held, on the worker and on its route.
pub struct LaneHold {
    lane_id: i64,
    /// Of a lane that may have to wait for its turn: what it is counted in changes while it waits.
    pub place: Option<Arc<Place>>,
    counts: Arc<Counts>,
    lanes: Arc<HeldLanes>,
    _route: Hold,
}

impl Drop for LaneHold {
    fn drop(&mut self) {
        match &self.place {
            Some(place) => place.leave(),
            None => drop(self.counts.held.fetch_sub(1, Ordering::Relaxed)),
        }
        self.lanes.leave(self.lane_id);
    }
}

/// Which lanes a worker holds, and how often: for a moment a lane may be with a connection that was
/// lost, and with the one that has claimed it since.
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
