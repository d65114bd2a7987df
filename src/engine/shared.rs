//! What the tasks of one worker share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::Pool;
use lanekeeper_limit::Limiter;
use lanekeeper_postgres::Database;
use lanekeeper_postgres::letter::RequeuedLetter;
use lanekeeper_postgres::operate;
use lanekeeper_postgres::subscription::Subscription;
use lanekeeper_postgres::worker::Identity;
use lanekeeper_telemetry::instruments::Instruments;
use lanekeeper_telemetry::names;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::timeout;

use super::behind::Behind;
use super::budget::{Allowance, Budget, Share};
use super::claimer::Request;
use super::control;
use super::given_up::GivenUp;
use super::idle::Idle;
use super::lane;
use super::lifecycle::{self, Happening};
use super::pace::Counts;
use super::places::{HeldLanes, Places};
use super::reserve::reserve;
use super::route::{Route, RouteTable};
use super::settings::WorkerSettings;
use super::signal::Signal;
use super::survey::Survey;
use super::trust::Trust;
use super::vital_signs::VitalSigns;
use super::wanted::Wanted;

/// How long a lane waits for its subscription to be paused; else the next refusal pauses it.
const PAUSE_WITHIN: Duration = Duration::from_secs(10);

/// One worker's state, as all its tasks see it.
pub struct Shared {
    pub database: Database,
    pub pool: Pool,
    pub settings: Arc<WorkerSettings>,
    pub identity: Identity,
    pub budget: Arc<Budget>,
    /// For payloads that are read when their turn comes.
    pub allowance: Arc<Allowance>,
    /// A hint that tokens are due; one waiter takes it. See [`Shared::wake_all`].
    pub wake: Notify,
    /// The same for the connections of handlers.
    pub wake_handlers: Notify,
    pub idle: Idle,
    /// What walks that start at their bounds would miss.
    pub behind: Behind,
    pub given_up: GivenUp,
    pub wanted: Wanted,
    pub vital_signs: VitalSigns,
    /// No more claims; held lanes finish the event that they deliver.
    pub stopping: Arc<Signal>,
    /// Running deliveries are dropped and their lanes handed back.
    pub aborting: Arc<Signal>,
    routes: watch::Sender<Arc<RouteTable>>,
    counts: Arc<Counts>,
    lanes: Arc<HeldLanes>,
    /// How fast destinations may be sent to.
    pub limiter: Limiter,
    pub instruments: Instruments,
    /// How subscriptions stand, where this worker is the one that looks.
    pub survey: Survey,
    /// Held by the round of retention that waits or is at work.
    pub housekeeping: tokio::sync::Mutex<()>,
    /// Whether there is a subscription of the lifecycle feed.
    feed: AtomicBool,
    /// A connection would have claimed, but a bound left it no room.
    lacks_room: AtomicBool,
    suspects: Arc<Semaphore>,
}

impl Shared {
    pub fn new(
        database: Database,
        pool: Pool,
        settings: WorkerSettings,
        identity: Identity,
        most_held: usize,
    ) -> Self {
        let limiter = Limiter::new(
            settings.redis.clone(),
            settings.breaker,
            identity.worker_id,
            // As far apart as two heartbeats may be.
            settings.heartbeat + control::TICK,
        );
        let counts = Arc::new(Counts::new(most_held));
        Self {
            database,
            pool,
            budget: Budget::new(settings.prefetch_bytes),
            allowance: Arc::new(Allowance::new(settings.prefetch_bytes)),
            settings: Arc::new(settings),
            identity,
            wake: Notify::new(),
            wake_handlers: Notify::new(),
            idle: Idle::default(),
            behind: Behind::default(),
            given_up: GivenUp::default(),
            wanted: Wanted::default(),
            vital_signs: VitalSigns::default(),
            stopping: Arc::default(),
            aborting: Arc::default(),
            routes: watch::Sender::default(),
            counts,
            limiter,
            instruments: Instruments::new(&opentelemetry::global::meter(names::SCOPE)),
            survey: Survey::default(),
            housekeeping: tokio::sync::Mutex::default(),
            feed: AtomicBool::new(false),
            lanes: Arc::default(),
            lacks_room: AtomicBool::new(false),
            suspects: Arc::new(Semaphore::new(1)),
        }
    }

    pub fn routes(&self) -> Arc<RouteTable> {
        Arc::clone(&self.routes.borrow())
    }

    /// Replaces the routes. A lane that is held on one that is there no more, or in another version,
    /// finishes the delivery that is under way and lets go.
    pub fn set_routes(&self, routes: RouteTable) {
        let routes = Arc::new(routes);
        let before = self.routes.send_replace(Arc::clone(&routes));
        before.give_way(&routes);
        self.wake_all();
    }

    pub fn set_feed(&self, there_is: bool) {
        self.feed.store(there_is, Ordering::Relaxed);
    }

    pub fn has_feed(&self) -> bool {
        self.feed.load(Ordering::Relaxed)
    }

    /// Something may be due, and whose it is is not known.
    pub fn wake_all(&self) {
        self.wake.notify_one();
        self.wake_handlers.notify_one();
    }

    /// Lanes held over all connections, without those that wait for a limit.
    pub fn held(&self) -> usize {
        self.counts.held.load(Ordering::Relaxed)
    }

    /// How many lanes may be held over all connections.
    pub fn most_held(&self) -> usize {
        self.counts.most.load(Ordering::Relaxed)
    }

    pub fn set_most_held(&self, most: usize) {
        let before = self.counts.most.swap(most, Ordering::Relaxed);
        if before != most {
            tracing::info!(max_lanes = most, "lanes that this worker may hold at once");
            self.made_room();
        }
    }

    /// The lanes that this worker holds, over all its connections, ascending. A claim passes their
    /// tokens by without trying their locks.
    pub fn held_lanes(&self) -> Vec<i64> {
        self.lanes.ascending()
    }

    /// The next lane that is let go will wake a connection.
    pub fn wait_for_room(&self) {
        self.lacks_room.store(true, Ordering::SeqCst);
    }

    /// Lanes were let go, by whichever connection.
    pub fn made_room(&self) {
        if self.lacks_room.swap(false, Ordering::SeqCst) {
            self.wake_all();
        }
    }

    /// Takes places for up to `wanted` lanes, on the worker and on each route, before they are
    /// claimed: all lane connections wake at once and would else take the same room.
    pub fn reserve(&self, wanted: usize, routes: impl Iterator<Item = Arc<Route>>) -> Places {
        let total = reserve(&self.counts.held, self.most_held(), wanted);
        let routes = if total == 0 {
            Vec::new()
        } else {
            routes
                .map(|route| (route.reserve(total, &self.limiter), route))
                .filter(|(places, _)| *places > 0)
                .collect()
        };
        let (counts, lanes) = (Arc::clone(&self.counts), Arc::clone(&self.lanes));
        Places::new(counts, lanes, total, routes)
    }

    /// From 0 to 1; for jitter only.
    pub fn random(&self) -> f64 {
        random()
    }

    pub fn lane_context(
        self: &Arc<Self>,
        trust: Arc<Trust>,
        requests: mpsc::UnboundedSender<Request>,
    ) -> LaneContext {
        LaneContext {
            settings: Arc::clone(&self.settings),
            trust,
            requests,
            stopping: Arc::clone(&self.stopping),
            aborting: Arc::clone(&self.aborting),
            suspects: Arc::clone(&self.suspects),
            budget: Arc::clone(&self.budget),
            allowance: Arc::clone(&self.allowance),
            pool: self.pool.clone(),
            shared: Arc::clone(self),
        }
    }
}

/// What the lanes of one connection share.
pub struct LaneContext {
    pub settings: Arc<WorkerSettings>,
    pub trust: Arc<Trust>,
    pub requests: mpsc::UnboundedSender<Request>,
    pub stopping: Arc<Signal>,
    pub aborting: Arc<Signal>,
    /// One at a time: events that outlived a worker.
    pub suspects: Arc<Semaphore>,
    /// For payloads that are read when their turn comes.
    pub allowance: Arc<Allowance>,
    budget: Arc<Budget>,
    pub pool: Pool,
    shared: Arc<Shared>,
}

impl LaneContext {
    pub fn limiter(&self) -> &Limiter {
        &self.shared.limiter
    }

    pub fn instruments(&self) -> &Instruments {
        &self.shared.instruments
    }

    /// Tells the lifecycle feed.
    pub fn tell(&self, happening: Happening) {
        lifecycle::tell(&self.shared, happening);
    }

    /// Returns when an operator wants this lane.
    pub async fn wanted(&self, lane_id: i64) {
        self.shared.wanted.of(lane_id).await;
    }

    /// A lane waits, or waits no more: others may be claimed.
    pub fn made_room(&self) {
        self.shared.made_room();
    }

    pub fn random(&self) -> f64 {
        random()
    }

    /// Reads the next requeued dead letter of a lane, without its payload if that is large.
    pub async fn letter(
        &self,
        lane_id: i64,
    ) -> Result<Option<(RequeuedLetter, Share)>, lane::Unread> {
        let letter = lane::read_letter(&self.pool, lane_id).await?;
        Ok(letter.map(|letter| {
            let share = self.budget.take(letter.event.memory());
            (letter, share)
        }))
    }

    /// Pauses a subscription whose destination wants nothing more.
    pub async fn pause(&self, subscription: &Subscription, reason: &str) {
        // No longer than a lane may be held for it: a pooled connection may hang.
        let paused = timeout(PAUSE_WITHIN, async {
            let client = self.pool.get().await?;
            let paused = operate::pause_subscription(&**client, &subscription.name, reason).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(paused)
        });
        match paused.await.unwrap_or_else(|silent| Err(silent.into())) {
            Ok(_) => {
                tracing::warn!(
                    subscription = %subscription.name, reason,
                    "subscription paused: its destination answered 410. Resume it when that is mended"
                );
                if &*subscription.stream != lifecycle::STREAM {
                    self.tell(Happening::SubscriptionPaused {
                        subscription: subscription.name.to_string(),
                        reason: reason.to_owned(),
                    });
                }
            }
            Err(error) => tracing::warn!(
                subscription = %subscription.name, error = &*error,
                "subscription could not be paused; the event is tried again"
            ),
        }
    }
}

fn random() -> f64 {
    // The random bits of a UUID; a generator of our own is not worth a dependency.
    f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}
