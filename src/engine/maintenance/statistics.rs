//! Statistics of the subscriptions for metrics: lag, lanes by state, dead letters.
//!
//! Lag and lane states for metrics are read every ten seconds by the worker that started first of those alive, from
//! at most 1,000 lanes with something to do per subscription. Like retention, this waits for an idle moment. Two
//! workers may do so for a moment, or none: these are gauges. Beyond the limit in lanes the figures are lower
//! bounds, and the oldest age is that of the lanes that have been due longest.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_postgres::inspect::{self, SubscriptionStatus};
use tokio::time::{Instant, sleep, timeout};

use crate::shared::Shared;

/// Between two reads.
const EVERY: Duration = Duration::from_secs(10);
/// The most lanes with something to do that are read per subscription: 20 ms.
const LANES: i64 = 1_000;
const SUBSCRIPTIONS: i64 = 1_000;
/// The time-out of a read.
const WITHIN: Duration = Duration::from_secs(5);

/// The last figures.
#[derive(Debug, Default)]
pub struct Statistics {
    seen: Mutex<Option<(Instant, Vec<SubscriptionStatus>)>>,
}

impl Statistics {
    /// Calls `each` with the last figures, unless they are old or another worker reads them now.
    pub fn with(&self, each: impl FnMut(&SubscriptionStatus)) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, subscriptions)) = &*seen
            && at.elapsed() < EVERY * 3
        {
            subscriptions.iter().for_each(each);
        }
    }

    fn set(&self, subscriptions: Option<Vec<SubscriptionStatus>>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) =
            subscriptions.map(|subscriptions| (Instant::now(), subscriptions));
    }
}

/// Reads until the worker stops. The first read waits for an idle moment, for `EVERY` at most: a worker that starts
/// has a backlog to deliver.
pub async fn run(shared: Arc<Shared>) {
    tokio::select! {
        () = shared.stopping.cancelled() => return,
        () = shared.waking.idle.idle_moment() => {}
        () = sleep(EVERY) => {}
    }
    while !shared.stopping.is_cancelled() {
        // Without a count of the fleet it is not known which worker is first.
        if shared.delivering.limiter.rank() == Some(0) {
            match timeout(WITHIN, look(&shared)).await {
                Ok(Ok(subscriptions)) => shared.maintenance.statistics.set(Some(subscriptions)),
                Ok(Err(error)) => tracing::warn!(
                    error = &*error,
                    "the statistics could not be read; their metrics pause, deliveries continue"
                ),
                Err(_) => tracing::warn!(
                    within_s = WITHIN.as_secs(),
                    "reading the statistics took too long; their metrics pause, deliveries continue"
                ),
            }
        } else {
            shared.maintenance.statistics.set(None);
        }
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(if shared.delivering.limiter.rank().is_some() { EVERY } else { Duration::from_secs(1) }) => {}
        }
    }
}

async fn look(
    shared: &Shared,
) -> Result<Vec<SubscriptionStatus>, Box<dyn std::error::Error + Send + Sync>> {
    let mut client = shared.pool.get().await?;
    let reading = inspect::begin(&mut client).await?;
    let seen = shared.claiming.backstop.latest();
    let low_water_marks = seen.iter().flat_map(|seen| seen.low_water_marks());
    Ok(inspect::status(&reading, SUBSCRIPTIONS, LANES, low_water_marks).await?)
}
