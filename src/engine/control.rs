//! The worker's connection to itself and its peers: heartbeat, routes, takeover, housekeeping.
//!
//! One direct connection holds the worker's liveness lock. Once a second every worker looks for lane
//! connections whose own lock is free, wakes their lanes, and charges crashes where the whole worker
//! is gone; every heartbeat it ends the connections of peers whose heartbeat stopped. Each of these
//! may be done by any number of workers at once: the locks in the SQL functions make it once.
//!
//! What this worker's other tasks gave up, and its own predecessor, it tells the server to end (I13).
//! Whether they are gone is seen with the next tick: a backend that never ends holds up no heartbeat,
//! even where it is the predecessor's, which has the liveness lock, to everybody else this worker's own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use lanekeeper_postgres::subscription::{self, Subscription};
use lanekeeper_postgres::{StoreError, housekeeping as chores, lane_connection, worker};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_postgres::Client;

use super::handler::Destination;
use super::housekeeping;
use super::lifecycle::{self, Happening};
use super::lock_table::Division;
use super::shared::Shared;

/// Between two looks for dead connections; half of what recovery may take.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// How long the control connection may take to answer before it is given up.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a tick waits for the liveness lock: as it becomes free it is to be taken at once.
const LIVENESS_WITHIN: Duration = TICK;
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// Between two log lines on a subscription that this worker cannot deliver.
const REFUSED_AGAIN: Duration = Duration::from_secs(60);
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(600);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Makes the destination of a subscription, or says why it cannot.
pub trait DestinationSource: Send + Sync + 'static {
    /// Told once, before anything is built: the worker's connections for what is no lane work, for
    /// destinations that keep something in Postgres.
    fn connected(&self, _pool: &Pool) {}

    /// # Errors
    /// The subscription is then not delivered by this worker; the others are.
    fn build(&self, subscription: &Subscription) -> Result<Destination, Failure>;
}

/// Runs until `ended`: beyond `stopping`, so that a draining worker still counts as alive.
pub async fn run(
    shared: Arc<Shared>,
    source: Arc<dyn DestinationSource>,
    ended: tokio_util::sync::CancellationToken,
) {
    loop {
        let result = tokio::select! {
            () = ended.cancelled() => return,
            result = run_once(&shared, &*source) => result,
        };
        if let Err(error) = result {
            tracing::warn!(error = &*error, "control connection lost; deliveries go on");
        }
        tokio::select! {
            () = ended.cancelled() => return,
            () = sleep(RECONNECT_DELAY) => {}
        }
    }
}

async fn run_once(shared: &Arc<Shared>, source: &dyn DestinationSource) -> Result<(), Failure> {
    let opened = lane_connection::open(&shared.database, "control").await?;
    let ended = control(&opened.client, shared, source).await;
    if ended.is_err() {
        // It may still have the liveness lock, for which the next one would wait in vain.
        shared.given_up.enter(opened.backend);
    }
    ended
}

async fn control(
    client: &Client,
    shared: &Arc<Shared>,
    source: &dyn DestinationSource,
) -> Result<(), Failure> {
    // The predecessor's backend has the lock that this one needs.
    timeout(ANSWER_WITHIN, end_given_up(client, shared)).await?;
    let worker_id = shared.identity.worker_id;
    let mut holds_liveness = false;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut beat_at = Instant::now();
    let mut housekeeping_at = Instant::now();
    let mut changes_at = Instant::now();
    let mut finishing: Option<JoinHandle<()>> = None;
    let mut refusals = Refusals::default();
    let mut division = Division::default();
    loop {
        ticks.tick().await;
        let now = Instant::now();
        timeout(ANSWER_WITHIN, async {
            if !holds_liveness {
                holds_liveness = worker::hold_liveness(client, worker_id, LIVENESS_WITHIN).await?;
            }
            if beat_at <= now {
                beat_at = now + shared.settings.heartbeat;
                worker::beat(client, &shared.identity, shared.stopping.is_cancelled()).await?;
                let frozen_after_ms = millis(shared.settings.frozen_after);
                let fleet = worker::fleet(client, worker_id, frozen_after_ms).await?;
                shared.limiter.set_fleet(fleet);
                divide_lock_table(client, shared, &mut division, fleet.replicas).await?;
                end_frozen(client, shared).await;
            }
            reload(client, shared, source, &mut refusals).await?;
            end_given_up(client, shared).await;
            take_over(client, shared).await
        })
        .await??;
        if housekeeping_at <= now {
            housekeeping_at = now + HOUSEKEEPING_EVERY;
            tokio::spawn(housekeeping::keep_house(Arc::clone(shared)));
        }
        if changes_at <= now && finishing.as_ref().is_none_or(JoinHandle::is_finished) {
            changes_at = now + shared.settings.poll_floor;
            if timeout(ANSWER_WITHIN, chores::change_pending(client)).await?? {
                finishing = Some(tokio::spawn(housekeeping::finish_changes(Arc::clone(
                    shared,
                ))));
            }
        }
    }
}

/// Where nobody said how many lanes this worker may hold.
async fn divide_lock_table(
    client: &Client,
    shared: &Shared,
    division: &mut Division,
    replicas: u32,
) -> Result<(), StoreError> {
    if shared.settings.max_lanes.is_none() {
        let entries = worker::lock_table(client).await?;
        let (heartbeat, most) = (shared.settings.heartbeat + TICK, shared.most_held());
        shared.set_most_held(division.look(Instant::now(), heartbeat, entries, replicas, most));
    }
    Ok(())
}

async fn end_given_up(client: &Client, shared: &Shared) {
    if let Err(error) = shared.given_up.end(client).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "a connection that was given up could not be ended at the server; this is tried again"
        );
    }
}

async fn end_frozen(client: &Client, shared: &Shared) {
    match worker::terminate_frozen(client, millis(shared.settings.frozen_after)).await {
        Ok(terminated) => {
            for peer in terminated {
                tracing::warn!(
                    worker_id = peer.worker_id,
                    backend_pid = peer.backend_pid,
                    silent_ms = peer.silent_ms,
                    "ended a connection of a worker without heartbeat; its lanes go on elsewhere"
                );
            }
        }
        // Another role's backends may not be ended: say so, and go on with the rest.
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "a frozen worker's connections could not be ended: run all workers as one role, or grant pg_signal_backend"
        ),
    }
}

async fn take_over(client: &Client, shared: &Arc<Shared>) -> Result<(), StoreError> {
    let frozen_after_ms = millis(shared.settings.frozen_after);
    let own_worker_id = shared.identity.worker_id;
    for dead in worker::take_over(client, own_worker_id, frozen_after_ms).await? {
        tracing::warn!(
            worker_id = dead.worker_id,
            connections = dead.connections,
            lanes = dead.lanes,
            charged = dead.charged,
            "took over from lane connections that are gone"
        );
        lifecycle::tell(
            shared,
            Happening::TakenOver {
                lost_worker_id: dead.worker_id,
                lanes: dead.lanes,
                charged: dead.charged,
            },
        );
        let count = |number| u64::try_from(number).unwrap_or(0);
        shared.instruments.taken_over.add(count(dead.lanes), &[]);
        shared.instruments.charged.add(count(dead.charged), &[]);
    }
    Ok(())
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// When it was last said of which version of a subscription that it cannot be delivered here. It is tried
/// again at every tick, for what it lacks may come.
type Refusals = HashMap<(i32, i64), Instant>;

async fn reload(
    client: &Client,
    shared: &Shared,
    source: &dyn DestinationSource,
    refusals: &mut Refusals,
) -> Result<(), StoreError> {
    let subscriptions = subscription::load(client).await?;
    shared.set_feed(
        subscriptions
            .iter()
            .any(|one| !one.removed && &*one.stream == lifecycle::STREAM),
    );
    let current = shared.routes();
    let next = current.next(subscriptions, &shared.instruments, |subscription| {
        source
            .build(subscription)
            .inspect_err(|error| {
                let version = (subscription.id, subscription.version);
                let said_at = refusals.get(&version);
                if said_at.is_none_or(|at| at.elapsed() > REFUSED_AGAIN) {
                    refusals.insert(version, Instant::now());
                    tracing::error!(
                        subscription = %subscription.name, error = &**error,
                        "this worker cannot deliver the subscription; its events wait"
                    );
                }
            })
            .ok()
    });
    if !next.same(&current) {
        shared.set_routes(next);
    }
    Ok(())
}
