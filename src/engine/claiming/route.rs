//! The subscriptions that this worker delivers, and how much of each it holds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lanekeeper_core::adapter::Adapter;
use lanekeeper_core::bucket::Bucket;
use lanekeeper_limit::{Limiter, Passage};
use lanekeeper_postgres::preview::Previews;
use lanekeeper_postgres::subscription::Subscription;
use lanekeeper_telemetry::instruments::{Instruments, RouteInstruments};
use tokio::time::Instant;

use crate::claiming::rate_control::Gate;
use crate::claiming::reserve::reserve;
use crate::delivering::coalesce::Merging;
use crate::delivering::handler::Destination;
use crate::maintenance::counts::{Counts, MessageCounts};
use crate::waking::signal::Signal;

/// One version of a subscription, with its destination.
pub struct Route {
    pub subscription: Arc<Subscription>,
    /// The routes of ready entries that this worker scans for it: its own id, or, where its lanes belong to hosts, that
    /// of this worker's host and that of lanes without one.
    pub entry_routes: Vec<i32>,
    pub destination: Destination,
    /// The name under which all senders share the destination's limits and circuit.
    pub destination_name: Arc<str>,
    /// The buckets that every delivery draws on.
    pub buckets: Vec<Bucket>,
    /// The most events of a lane that go in one request.
    pub batch: usize,
    pub gate: Arc<Gate>,
    /// Lanes held over all lane connections; shared by all versions of the subscription.
    held: Arc<AtomicUsize>,
    /// Those of them that wait long for a limit.
    long_waits: AtomicUsize,
    replaced: Signal,
    /// How a delivery failed last, in a way that time may mend.
    last_failure: Mutex<Option<String>>,
    pub instruments: RouteInstruments,
    /// What became of its messages; shared by all versions of the subscription.
    pub counts: Arc<Counts>,
}

impl Route {
    /// Whether its subscription was paused, removed or changed: this version delivers nothing more.
    pub fn is_replaced(&self) -> bool {
        self.replaced.is_cancelled()
    }

    /// Returns when the route is replaced.
    pub async fn until_replaced(&self) {
        self.replaced.cancelled().await;
    }

    pub fn id(&self) -> i32 {
        self.subscription.id
    }

    /// Whether its events are handled in transactions, on handler connections.
    pub fn is_transactional(&self) -> bool {
        !matches!(self.destination, Destination::Adapter(_))
    }

    /// Whether they are handled by a function in SQL.
    pub fn is_projection(&self) -> bool {
        matches!(self.destination, Destination::Projection(_))
    }

    /// Reserves up to `wanted` slots, of at most `fitting` and the subscription's concurrency; those that no lane takes
    /// are given back.
    pub fn reserve(&self, wanted: usize, fitting: usize, limiter: &Limiter) -> usize {
        let room = match limiter.passage(&self.destination_name) {
            Passage::Free if self.is_limited() => {
                let replicas = limiter.replicas();
                self.gate.room(&self.buckets, replicas, Instant::now())
            }
            Passage::Free => usize::MAX,
            Passage::Probe => 1,
            Passage::Shut { .. } => 0,
        };
        let wanted = wanted.min(room);
        let most = match self.is_transactional() {
            true => self.subscription.concurrency,
            false => self.subscription.concurrency.min(fitting),
        };
        reserve(&self.held, most, wanted)
    }

    /// When something may become claimable that is not claimable now.
    pub fn opens_at(&self, limiter: &Limiter) -> Option<Instant> {
        match limiter.passage(&self.destination_name) {
            Passage::Shut { until } => Some(until),
            Passage::Free | Passage::Probe => self.gate.opens_at(),
        }
    }

    /// Whether its subscription has a limit.
    pub fn is_limited(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Whether its deliveries may have to wait for a limit.
    pub fn may_wait(&self) -> bool {
        let adapter = match &self.destination {
            Destination::Adapter(adapter) => adapter.is_paced(),
            Destination::Handler(_) | Destination::Projection(_) => false,
        };
        adapter || self.is_limited()
    }

    pub fn give_back(&self, slots: usize) {
        self.held.fetch_sub(slots, Ordering::Relaxed);
    }

    /// Which of the events that wait together may be left out.
    pub fn merging<'a>(&'a self, previews: &'a Previews) -> Merging<'a> {
        if !self.subscription.coalesce {
            return Merging::Nothing;
        }
        if let Some(adapter) = self.merges_messages() {
            return Merging::Messages { adapter, previews };
        }
        match &self.subscription.critical {
            Some(critical) => Merging::Types { critical },
            None => Merging::Nothing,
        }
    }

    /// The adapter, if one version of a message is enough among those that wait together.
    pub fn merges_messages(&self) -> Option<&dyn Adapter> {
        match &self.destination {
            Destination::Adapter(adapter)
                if self.subscription.coalesce && adapter.shows_progress() =>
            {
                Some(&**adapter)
            }
            _ => None,
        }
    }

    /// Permission for a lane to wait long for a limit, held while it waits. At most half of the subscription's
    /// concurrency: lanes that wait for one chat must not keep others from theirs.
    pub fn long_wait(self: &Arc<Self>) -> Option<LongWait> {
        let most = self.subscription.concurrency.div_ceil(2);
        (reserve(&self.long_waits, most, 1) == 1).then(|| LongWait {
            route: Arc::clone(self),
        })
    }

    /// A delivery failed in a way that time may mend.
    pub fn failed(&self, error: &str) {
        let mut last = self
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Some(error.to_owned());
    }

    /// How a delivery failed last, in a way that time may mend.
    pub fn last_failure(&self) -> Option<String> {
        let last = self
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// A lane takes one of the reserved slots. It is free again when the hold is dropped.
    pub fn hold(&self) -> Hold {
        Hold {
            held: Arc::clone(&self.held),
        }
    }
}

/// A lane that is counted as held on its route.
pub struct Hold {
    held: Arc<AtomicUsize>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Permission to wait long.
pub struct LongWait {
    route: Arc<Route>,
}

impl Drop for LongWait {
    fn drop(&mut self) {
        self.route.long_waits.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The routes that are active on this worker, by id. Replaced as a whole when they change.
#[derive(Default)]
pub struct RouteTable {
    routes: HashMap<i32, Arc<Route>>,
    /// The subscriptions of routes that are not their ids.
    host_routes: HashMap<i32, i32>,
    /// Lanes still held of subscriptions that are not delivered now. They count again if one returns.
    inactive_held: HashMap<i32, Arc<AtomicUsize>>,
}

impl RouteTable {
    pub fn get(&self, id: i32) -> Option<&Arc<Route>> {
        self.routes.get(&id)
    }

    /// The one that ready entries with this route belong to.
    pub fn of_entry(&self, route: i32) -> Option<&Arc<Route>> {
        self.get(self.host_routes.get(&route).copied().unwrap_or(route))
    }

    /// Whether some of these subscriptions would be built anew, and their lanes belong to hosts: then
    /// [`RouteTable::next`] needs their routes.
    pub fn needs_host_routes(&self, subscriptions: &[Subscription]) -> bool {
        let is_new = |one: &Subscription| {
            let known = self.routes.get(&one.id);
            known.is_none_or(|route| route.subscription.version != one.version)
        };
        let mut bound = subscriptions.iter().filter(|one| one.host_bound);
        bound.any(|one| !one.paused && !one.removed && is_new(one))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.values()
    }

    /// The table for `subscriptions`. A route whose version did not change keeps its adapter, and with it its
    /// connections. `build` makes the destinations of the others; a subscription for which it returns none is not
    /// delivered here.
    pub fn next(
        &self,
        subscriptions: Vec<Subscription>,
        host_routes: &HashMap<i32, Vec<i32>>,
        instruments: &Instruments,
        counts: &MessageCounts,
        mut build: impl FnMut(&Subscription) -> Option<Destination>,
    ) -> Self {
        let mut routes = HashMap::new();
        for subscription in subscriptions {
            if subscription.paused || subscription.removed {
                continue;
            }
            let known = self.routes.get(&subscription.id);
            if let Some(route) =
                known.filter(|route| route.subscription.version == subscription.version)
            {
                routes.insert(subscription.id, Arc::clone(route));
                continue;
            }
            let entry_routes = match subscription.host_bound {
                false => vec![subscription.id],
                // Made by another worker or an apply a moment ago: the next reload has them.
                true => match host_routes.get(&subscription.id) {
                    Some(routes) => routes.clone(),
                    None => continue,
                },
            };
            let Some(destination) = build(&subscription) else {
                continue;
            };
            let held = known
                .map(|route| &route.held)
                .or_else(|| self.inactive_held.get(&subscription.id))
                .map_or_else(Arc::default, Arc::clone);
            // Another limit gets another gate: what the old one kept back may go.
            let buckets = subscription.buckets();
            let gate = known
                .filter(|route| route.buckets == buckets)
                .map_or_else(Arc::default, |route| Arc::clone(&route.gate));
            let id = subscription.id;
            let instruments = instruments.of(&subscription.stream, &subscription.name);
            let subscription = Arc::new(subscription);
            routes.insert(
                id,
                Arc::new(Route {
                    batch: batch(&destination),
                    destination_name: subscription.place().into(),
                    buckets,
                    subscription,
                    entry_routes,
                    destination,
                    gate,
                    held,
                    long_waits: AtomicUsize::new(0),
                    replaced: Signal::default(),
                    last_failure: Mutex::default(),
                    instruments,
                    counts: counts.of(id),
                }),
            );
        }
        let held = self.routes.iter().map(|(id, route)| (id, &route.held));
        let inactive_held = held
            .chain(&self.inactive_held)
            .filter(|(id, held)| !routes.contains_key(id) && held.load(Ordering::Relaxed) > 0)
            .map(|(id, held)| (*id, Arc::clone(held)))
            .collect();
        let host_routes = routes
            .values()
            .flat_map(|route| route.entry_routes.iter().map(|entry| (*entry, route.id())))
            .filter(|(entry, id)| entry != id)
            .collect();
        Self {
            routes,
            host_routes,
            inactive_held,
        }
    }

    /// Marks the routes as replaced that `next` does not have, or has in another version.
    pub fn mark_replaced(&self, next: &Self) {
        for (id, route) in &self.routes {
            let stays = next
                .routes
                .get(id)
                .is_some_and(|next| Arc::ptr_eq(next, route));
            if !stays {
                route.replaced.cancel();
            }
        }
    }

    /// Whether both tables hold the same versions.
    pub fn same(&self, other: &Self) -> bool {
        self.routes.len() == other.routes.len()
            && self.routes.iter().all(|(id, route)| {
                other
                    .routes
                    .get(id)
                    .is_some_and(|other| Arc::ptr_eq(route, other))
            })
    }
}

/// The most events of a lane that the destination takes in one request.
fn batch(destination: &Destination) -> usize {
    match destination {
        // Each event may draw on other buckets.
        Destination::Adapter(adapter) if !adapter.is_paced() => adapter.max_batch().max(1),
        Destination::Adapter(_) | Destination::Handler(_) | Destination::Projection(_) => 1,
    }
}
