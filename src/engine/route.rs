//! The subscriptions that this worker delivers, and how much of each it holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lanekeeper_core::adapter::Adapter;
use lanekeeper_core::bucket::Bucket;
use lanekeeper_limit::{Limiter, Passage};
use lanekeeper_postgres::gist::Gists;
use lanekeeper_postgres::subscription::Subscription;
use lanekeeper_telemetry::instruments::{Instruments, RouteInstruments};
use tokio::time::Instant;

use super::coalesce::Merging;
use super::handler::Destination;
use super::pace::Gate;
use super::reserve::reserve;
use super::signal::Signal;

/// One subscription with its destination, as of one version of the subscription.
pub struct Route {
    pub subscription: Arc<Subscription>,
    pub destination: Destination,
    /// Where its events go, as all who send there call it.
    pub place: Arc<str>,
    /// What every delivery draws on.
    pub buckets: Vec<Bucket>,
    pub gate: Arc<Gate>,
    /// Lanes held over all lane connections; shared by all versions of the subscription.
    held: Arc<AtomicUsize>,
    /// Those of them that wait long for their turn.
    patient: AtomicUsize,
    replaced: Signal,
    pub instruments: RouteInstruments,
}

impl Route {
    /// Its subscription was paused, removed or changed: nothing more is delivered by this version of it.
    pub fn is_replaced(&self) -> bool {
        self.replaced.is_cancelled()
    }

    /// Returns when it is.
    pub async fn replacement(&self) {
        self.replaced.cancelled().await;
    }

    pub fn id(&self) -> i32 {
        self.subscription.id
    }

    /// Whether its events are handled in transactions, on connections of their own.
    pub fn is_transactional(&self) -> bool {
        matches!(self.destination, Destination::Handler(_))
    }

    /// Takes up to `wanted` places for lanes; those that no lane gets are given back.
    pub fn reserve(&self, wanted: usize, limiter: &Limiter) -> usize {
        let room = match limiter.passage(&self.place) {
            Passage::Free if self.is_limited() => {
                let replicas = limiter.replicas();
                self.gate.room(&self.buckets, replicas, Instant::now())
            }
            Passage::Free => usize::MAX,
            Passage::Probe => 1,
            Passage::Shut { .. } => 0,
        };
        let wanted = wanted.min(room);
        reserve(&self.held, self.subscription.concurrency, wanted)
    }

    /// When there may be something to claim that is not claimed now.
    pub fn opens_at(&self, limiter: &Limiter) -> Option<Instant> {
        match limiter.passage(&self.place) {
            Passage::Shut { until } => Some(until),
            Passage::Free | Passage::Probe => self.gate.opens_at(),
        }
    }

    /// Whether its subscription has a limit.
    pub fn is_limited(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Whether its deliveries may have to wait for a turn.
    pub fn is_paced(&self) -> bool {
        let adapter = match &self.destination {
            Destination::Adapter(adapter) => adapter.is_paced(),
            Destination::Handler(_) => false,
        };
        adapter || self.is_limited()
    }

    pub fn give_back(&self, places: usize) {
        self.held.fetch_sub(places, Ordering::Relaxed);
    }

    /// Which of the events that wait together may be left out.
    pub fn merging<'a>(&'a self, gists: &'a Gists) -> Merging<'a> {
        if !self.subscription.coalesce {
            return Merging::Nothing;
        }
        if let Some(adapter) = self.merges_messages() {
            return Merging::Messages { adapter, gists };
        }
        match &self.subscription.critical {
            Some(critical) => Merging::Types { critical },
            None => Merging::Nothing,
        }
    }

    /// The adapter, where of the versions of a message that wait together one may be enough.
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

    /// A place among the lanes that wait long for their turn, held while they do. Half of those that may be
    /// delivered at once: what waits for one chat must not keep others from theirs.
    pub fn patience(self: &Arc<Self>) -> Option<Patience> {
        let most = self.subscription.concurrency.div_ceil(2);
        (reserve(&self.patient, most, 1) == 1).then(|| Patience {
            route: Arc::clone(self),
        })
    }

    /// A lane takes one of the reserved places; it is free again when the hold is dropped.
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

/// A lane that may wait long.
pub struct Patience {
    route: Arc<Route>,
}

impl Drop for Patience {
    fn drop(&mut self) {
        self.route.patient.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The routes that are active on this worker, by id. Replaced as a whole when they change.
#[derive(Default)]
pub struct RouteTable {
    routes: HashMap<i32, Arc<Route>>,
    /// Lanes still held of subscriptions that are not delivered now. They count when one comes back.
    parted: HashMap<i32, Arc<AtomicUsize>>,
}

impl RouteTable {
    pub fn get(&self, id: i32) -> Option<&Arc<Route>> {
        self.routes.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.values()
    }

    /// The table for `subscriptions`. What did not change keeps its adapter, and with it its
    /// connections; `build` makes the destinations of the others, and a subscription for which it
    /// returns none is not delivered here.
    pub fn next(
        &self,
        subscriptions: Vec<Subscription>,
        instruments: &Instruments,
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
            let Some(destination) = build(&subscription) else {
                continue;
            };
            if matches!(destination, Destination::Handler(_)) && !subscription.limits.is_empty() {
                tracing::error!(
                    subscription = %subscription.name,
                    "a handler's subscription cannot have a limit, and is not delivered; its events wait: apply it \
                     without one"
                );
                continue;
            }
            let held = known
                .map(|route| &route.held)
                .or_else(|| self.parted.get(&subscription.id))
                .map_or_else(Arc::default, Arc::clone);
            // Another limit has another gate: what the old one kept back may go.
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
                    place: subscription.place().into(),
                    buckets,
                    subscription,
                    destination,
                    gate,
                    held,
                    patient: AtomicUsize::new(0),
                    replaced: Signal::default(),
                    instruments,
                }),
            );
        }
        let held = self.routes.iter().map(|(id, route)| (id, &route.held));
        let parted = held
            .chain(&self.parted)
            .filter(|(id, held)| !routes.contains_key(id) && held.load(Ordering::Relaxed) > 0)
            .map(|(id, held)| (*id, Arc::clone(held)))
            .collect();
        Self { routes, parted }
    }

    /// Marks the routes that `next` has no more, or in another version.
    pub fn give_way(&self, next: &Self) {
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
