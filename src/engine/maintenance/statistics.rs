//! Statistics of the subscriptions for metrics: lag, lanes by state, dead letters, replays.
//!
//! Lag and lane states for metrics are read every ten seconds by the worker that started first of those alive, from
//! at most 1,000 lanes with something to do per subscription. Like retention, this waits for an idle moment. Two
//! workers may do so for a moment, or none: these are gauges. Beyond the limit in lanes the figures are lower
//! bounds, and the oldest age is that of the lanes that have been due longest.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::inspect::Stalled;
use lanekeeper_postgres::{inspect, replay};
use tokio::time::{Instant, sleep, timeout};

use crate::maintenance::figures::{Figures, INTERVAL};
use crate::maintenance::lifecycle::{self, LifecycleEvent};
use crate::maintenance::warnings::Warnings;
use crate::maintenance::watchdog::Watchdog;
use crate::shared::Shared;

/// The most lanes with something to do that are read per subscription: 20 ms.
const MAX_LANES: i64 = 1_000;
const MAX_SUBSCRIPTIONS: i64 = 1_000;
/// As many as there may be that have not ended.
const MAX_REPLAYS: i64 = 100;
/// The time-out of a read.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads until the worker stops. The first read waits for an idle moment, for `INTERVAL` at most: a worker that starts
/// has a backlog to deliver.
pub async fn run(shared: Arc<Shared>) {
    tokio::select! {
        () = shared.stopping.cancelled() => return,
        () = shared.waking.idle.idle_moment() => {}
        () = sleep(INTERVAL) => {}
    }
    let (mut warnings, mut watchdog) = (Warnings::default(), Watchdog::default());
    while !shared.stopping.is_cancelled() {
        // Without a count of the fleet it is not known which worker is first.
        if shared.delivering.limiter.rank() == Some(0) {
            match timeout(TIMEOUT, read(&shared)).await {
                Ok(Ok((mut figures, stalled))) => {
                    for warning in warnings.of(&figures.subscriptions) {
                        lifecycle::publish(&shared, warning);
                    }
                    let after = shared.settings.stalled_after;
                    let now = Instant::now();
                    for found in watchdog.of(&figures.subscriptions, stalled, after, now) {
                        tell(&found);
                        lifecycle::publish(&shared, found);
                    }
                    figures.stalled = watchdog.reported();
                    shared.maintenance.statistics.set(Some(figures));
                }
                Ok(Err(error)) => tracing::warn!(
                    error = &*error,
                    "the statistics could not be read; their metrics pause, deliveries continue"
                ),
                Err(_) => tracing::warn!(
                    within_s = TIMEOUT.as_secs(),
                    "reading the statistics took too long; their metrics pause, deliveries continue"
                ),
            }
        } else {
            (warnings, watchdog) = (Warnings::default(), Watchdog::default());
            shared.maintenance.statistics.set(None);
        }
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(if shared.delivering.limiter.rank().is_some() { INTERVAL } else { Duration::from_secs(1) }) => {}
        }
    }
}

/// What the watchdog found, for the log.
fn tell(found: &LifecycleEvent) {
    match found {
        LifecycleEvent::SubscriptionStalled {
            subscription,
            state,
            session,
            holder,
            stalled_s,
        } => tracing::error!(
            subscription,
            ?state,
            session,
            holder,
            stalled_s,
            "a subscription has work that is due and makes no progress"
        ),
        LifecycleEvent::SubscriptionMoves { subscription } => {
            tracing::info!(subscription, "a subscription makes progress again");
        }
        _ => {}
    }
}

type Read = (Figures, Vec<Stalled>);

async fn read(shared: &Shared) -> Result<Read, Box<dyn std::error::Error + Send + Sync>> {
    let mut client = shared.pool.get().await?;
    let reading = inspect::begin(&mut client).await?;
    let seen = shared.claiming.backstop.latest();
    let low_water_marks = || seen.iter().flat_map(|seen| seen.low_water_marks());
    let subscriptions =
        inspect::status(&reading, MAX_SUBSCRIPTIONS, MAX_LANES, low_water_marks()).await?;
    let after = shared.settings.stalled_after;
    let stalled = inspect::stalled(&reading, after, MAX_SUBSCRIPTIONS, low_water_marks()).await?;
    let replays = replay::list(&reading, false, MAX_REPLAYS, None).await?;
    let figures = Figures {
        subscriptions,
        replays,
        ..Figures::default()
    };
    Ok((figures, stalled))
}
