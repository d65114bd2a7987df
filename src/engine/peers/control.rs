//! The control connection: heartbeat, routes, reports of them, takeover, and the start of maintenance.
//!
//! It holds the worker's liveness lock. Twice a second every worker checks for lane connections whose own lock is
//! free, wakes their lanes, and charges crashes if the whole worker is gone. With every heartbeat it ends the
//! connections of peers whose heartbeat stopped. Any number of workers may do each of these at once: the locks in
//! the SQL functions make each happen once.
//!
//! It also ends the connections that this worker abandoned, its own predecessor among them (I13). Whether they are
//! gone is checked with the next tick: a backend that never ends delays no heartbeat, even if it is the
//! predecessor's, whose liveness lock stands for the same worker.
//!
//! # Takeover and crash charges
//!
//! An event can kill the worker that delivers it without ever returning an error. So claims are recorded, and
//! survivors charge a crash to the heads that a dead worker held.
//!
//! - A worker wakes the lanes of its own lost connections, without a charge. Survivors act only if the worker is
//!   gone as a whole, or frozen; otherwise they would race with the owner and charge what was merely cut. The server
//!   may run a worker's last call after its death: the call names the connections that were in use (see
//!   [`crate::peers::live`]), and leaves them to survivors.
//! - For another worker's connection, that worker's liveness lock is tried too. If it is free, the worker is gone
//!   as a whole, and its unsettled heads are charged. If not, the worker lives and takes care of its own
//!   connections. A frozen worker, whose heartbeat is older than the limit, is taken over without a charge.
//! - Connections that were opened before the server started, or in another epoch, are not charged: the server died,
//!   not the worker. The epoch is a row in an unlogged table, which a crash of the server and a promotion empty.
//! - One death is one charge for a head, whichever of the worker's connections had it in their claims. While some
//!   of those connections are not released yet, the next check takes all of them.
//! - A head is charged only if it exists, and if nothing but other charges happened to it since the claim: its
//!   version and step are ahead of the claimed ones by exactly one version for each crash that it gained.
//! - A lane whose lock is not free yet is checked again. Either the server is still releasing locks one by one, or
//!   another worker claimed the lane before it could be charged; then the charge stays recorded. If that worker
//!   dies too, both charges count; if it settles, neither does.
//! - Nothing keeps a worker from claiming a dead worker's lanes before anybody has charged them: they are free at
//!   once. So an event that kills can kill worker after worker within a second. For all those deaths its
//!   neighbours, which were in the same claims, become suspected poison events and no more: beyond two charges, a
//!   head is charged only for a worker that delivered it alone.
//! - One crash is no ground for suspicion: it charges everything that the worker held, and that must continue at
//!   once. A head with two charges is a suspected poison event: it is delivered alone in its process, under a claim
//!   row of its own, and is excluded from the charges of its batch. Otherwise everything that shares a worker with
//!   a poison event would be charged with it, and innocent events would be exhausted.
//! - A lane that was released without a change stays in its claim until all lanes of that claim are released. If
//!   its holder dies meanwhile, its head is charged too, which makes it a suspect at most. The same holds while the
//!   claim that releases its lock has not committed that the old claim is finished, if holder and server process
//!   end in that moment.
//! - At `worker.max_crashes` the head is exhausted, by the subscription's policy. Acceptance and a failed attempt
//!   clear the charges: the worker survived them.
//! - A worker takes over from the dead before its first claim. Otherwise an event that kills every worker at once
//!   would be claimed again before it is charged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use lanekeeper_postgres::subscription::{self, Subscription};
use lanekeeper_postgres::{StoreError, host_route, lane_connection, maintenance, worker};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_postgres::Client;

use crate::delivering::handler::Destination;
use crate::delivering::pauses;
use crate::maintenance::lifecycle::{self, LifecycleEvent};
use crate::maintenance::{replays, rounds};
use crate::peers::foreign_lock::{self, ForeignLocks};
use crate::peers::lock_table::Division;
use crate::peers::reports::{Refusals, Reports};
use crate::settings::TICK;
use crate::shared::Shared;

/// How long the control connection may take to answer before it is abandoned.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a tick waits for the liveness lock, so that it is taken as soon as it is free.
const LIVENESS_WITHIN: Duration = TICK;
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
const RETENTION_INTERVAL: Duration = Duration::from_secs(600);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Makes the destination of a subscription, or says why it cannot.
pub trait DestinationSource: Send + Sync + 'static {
    /// Called once, before anything is built, with the pool for work other than lanes: for destinations that store
    /// something in Postgres.
    fn connected(&self, _pool: &Pool) {}

    /// # Errors
    /// The subscription is then not delivered by this worker; the others are.
    fn build(&self, subscription: &Subscription) -> Result<Destination, Failure>;
}

/// Runs until `ended`, which is later than `stopping`: a draining worker still counts as alive.
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
            tracing::warn!(
                error = &*error,
                "control connection lost; deliveries continue"
            );
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
        // It may still have the liveness lock, and the next connection would wait for it in vain.
        shared.peers.abandoned.enter(opened.backend);
    }
    ended
}

async fn control(
    client: &Client,
    shared: &Arc<Shared>,
    source: &dyn DestinationSource,
) -> Result<(), Failure> {
    // The predecessor's backend has the lock that this one needs.
    timeout(ANSWER_WITHIN, end_abandoned(client, shared)).await?;
    let worker_id = shared.peers.worker_id();
    let mut holds_liveness = false;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heartbeat_at = Instant::now();
    let mut retention_at = Instant::now();
    let mut changes_at = Instant::now();
    let mut finishing: Option<JoinHandle<()>> = None;
    let mut replaying: Option<JoinHandle<()>> = None;
    let (mut refusals, mut reports) = (Refusals::default(), Reports::default());
    let mut division = Division::default();
    let mut foreign_locks = ForeignLocks::default();
    loop {
        ticks.tick().await;
        let now = Instant::now();
        timeout(ANSWER_WITHIN, async {
            if !holds_liveness {
                holds_liveness = worker::hold_liveness(client, worker_id, LIVENESS_WITHIN).await?;
                foreign_lock::note_liveness(client, shared, holds_liveness).await?;
            }
            let is_heartbeat_due = heartbeat_at <= now;
            if is_heartbeat_due {
                heartbeat_at = now + shared.settings.heartbeat;
                worker::heartbeat(
                    client,
                    &shared.peers.identity,
                    shared.stopping.is_cancelled(),
                )
                .await?;
                let frozen_after_ms = millis(shared.settings.frozen_after);
                let fleet = worker::fleet(client, worker_id, frozen_after_ms).await?;
                shared.delivering.limiter.set_fleet(fleet);
                let asked = Instant::now();
                let shown = worker::clock(client).await?;
                shared.peers.clock.set(asked, shown, Instant::now());
                divide_lock_table(client, shared, &mut division, fleet.replicas).await?;
                end_frozen(client, shared).await;
            }
            reload(client, shared, source, &mut refusals).await?;
            let limiter = &shared.delivering.limiter;
            let told = reports.now(&shared.claiming.routes(), &refusals, limiter);
            end_abandoned(client, shared).await;
            pauses::read(client, shared).await?;
            take_over(client, shared).await?;
            // For people: a failure is logged and costs no heartbeat and no takeover.
            let reported = reports
                .write(client, worker_id, told, is_heartbeat_due)
                .await;
            let looked = foreign_locks.look(client).await;
            for error in [reported, looked].into_iter().filter_map(Result::err) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "what people are told of this worker may be out of date"
                );
            }
            Ok::<_, StoreError>(())
        })
        .await??;
        if retention_at <= now {
            retention_at = now + RETENTION_INTERVAL;
            tokio::spawn(rounds::run(Arc::clone(shared)));
        }
        if changes_at <= now && finishing.as_ref().is_none_or(JoinHandle::is_finished) {
            changes_at = now + shared.settings.poll_floor;
            let pending = timeout(ANSWER_WITHIN, maintenance::change_pending(client)).await??;
            shared.waking.interruptions.read(&pending.interruptions);
            let has_replays = pending.replays;
            if pending.changes || pending.closes || pending.moves {
                finishing = Some(tokio::spawn(rounds::finish(Arc::clone(shared), pending)));
            }
            if has_replays && replaying.as_ref().is_none_or(JoinHandle::is_finished) {
                replaying = Some(tokio::spawn(replays::run(Arc::clone(shared))));
            }
        }
    }
}

/// Only if `max_lanes` is not set.
async fn divide_lock_table(
    client: &Client,
    shared: &Shared,
    division: &mut Division,
    replicas: u32,
) -> Result<(), StoreError> {
    if shared.settings.max_lanes.is_none() {
        let entries = worker::lock_table(client).await?;
        let (heartbeat, most) = (
            shared.settings.heartbeat + TICK,
            shared.claiming.max_lanes(),
        );
        shared.claiming.set_max_lanes(division.update(
            Instant::now(),
            heartbeat,
            entries,
            replicas,
            most,
        ));
    }
    Ok(())
}

async fn end_abandoned(client: &Client, shared: &Shared) {
    if let Err(error) = shared.peers.abandoned.end(client).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "an abandoned connection could not be ended at the server; it is tried again"
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
                    "ended a connection of a worker without heartbeat; its lanes continue on other workers"
                );
            }
        }
        // A backend of another role may not be terminated: log it and continue.
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "a frozen worker's connections could not be ended: run all workers as one role, or grant pg_signal_backend"
        ),
    }
}

/// Wakes the lanes of connections that are gone and charges the deaths of their workers; logs and counts what it found.
///
/// # Errors
/// Nothing was taken over.
pub async fn take_over(client: &Client, shared: &Arc<Shared>) -> Result<(), StoreError> {
    let frozen_after_ms = millis(shared.settings.frozen_after);
    let own_worker_id = shared.peers.worker_id();
    let live = shared.peers.live.ids();
    for dead in worker::take_over(client, own_worker_id, frozen_after_ms, &live).await? {
        tracing::warn!(
            worker_id = dead.worker_id,
            connections = dead.connections,
            lanes = dead.lanes,
            charged = dead.charged,
            "took over lanes of connections that are gone"
        );
        lifecycle::publish(
            shared,
            LifecycleEvent::TakenOver {
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

async fn reload(
    client: &Client,
    shared: &Shared,
    source: &dyn DestinationSource,
    refusals: &mut Refusals,
) -> Result<(), StoreError> {
    let subscriptions = subscription::load(client).await?;
    shared.maintenance.set_feed(
        subscriptions
            .iter()
            .any(|one| !one.removed && &*one.stream == lifecycle::STREAM),
    );
    let floor = |one: &Subscription| Some((one.id, one.poll_floor?));
    let poll_floors = subscriptions.iter().filter_map(floor).collect();
    let current = shared.claiming.routes();
    refusals.begin();
    let host_routes = match current.needs_host_routes(&subscriptions) {
        true => host_route::open(client, &shared.settings.host_label).await?,
        false => HashMap::new(),
    };
    let (instruments, counts) = (&shared.instruments, &shared.maintenance.counts);
    let next = current.next(
        subscriptions,
        &host_routes,
        instruments,
        counts,
        |subscription| {
            build(source, subscription)
                .inspect_err(|error| refusals.add(subscription, &**error))
                .ok()
        },
    );
    if !next.same(&current) {
        shared.claiming.set_routes(next);
    }
    shared.claiming.set_poll_floors(&poll_floors);
    Ok(())
}

fn build(
    source: &dyn DestinationSource,
    subscription: &Subscription,
) -> Result<Destination, Failure> {
    let destination = source.build(subscription)?;
    if !matches!(destination, Destination::Adapter(_)) && !subscription.limits.is_empty() {
        return Err("a handler's subscription cannot have a limit: apply it without one".into());
    }
    Ok(destination)
}
