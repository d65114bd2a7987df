//! How the subscriptions stand, for metrics: lag, lanes by state, dead letters.
//!
//! One worker looks for all, the one that started first of those that live; each would else ask the same. Two
//! may do it for a moment, or none: these are gauges. A look is bounded in lanes, so that its cost does not grow
//! with the backlog; beyond the bound the figures are lower bounds, and the oldest age is that of the lanes
//! that have been due longest.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_postgres::inspect::{self, SubscriptionStatus};
use tokio::time::{Instant, sleep, timeout};

use super::shared::Shared;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(10);
/// Lanes with something to do that a look takes in for each subscription: 20 ms at the most.
const LANES: i64 = 1_000;
const SUBSCRIPTIONS: i64 = 1_000;
/// A server that needs longer has other worries.
const WITHIN: Duration = Duration::from_secs(5);

/// What was seen last.
#[derive(Debug, Default)]
pub struct Survey {
    seen: Mutex<Option<(Instant, Vec<SubscriptionStatus>)>>,
}

impl Survey {
    /// What was seen last, unless that is long ago or another worker looks now.
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

/// Looks until the worker stops. The first look waits for a lull, for as long as lies between two: a worker that
/// starts has a backlog to deliver.
pub async fn run(shared: Arc<Shared>) {
    tokio::select! {
        () = shared.stopping.cancelled() => return,
        () = shared.idle.lull() => {}
        () = sleep(EVERY) => {}
    }
    while !shared.stopping.is_cancelled() {
        // Without a fleet it is not known who is first.
        if shared.limiter.rank() == Some(0) {
            match timeout(WITHIN, look(&shared)).await {
                Ok(Ok(subscriptions)) => shared.survey.set(Some(subscriptions)),
                Ok(Err(error)) => tracing::warn!(
                    error = &*error,
                    "the lag could not be looked at; its metrics pause, deliveries go on"
                ),
                Err(_) => tracing::warn!(
                    within_s = WITHIN.as_secs(),
                    "looking at the lag took too long; its metrics pause, deliveries go on"
                ),
            }
        } else {
            shared.survey.set(None);
        }
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(if shared.limiter.rank().is_some() { EVERY } else { Duration::from_secs(1) }) => {}
        }
    }
}

async fn look(
    shared: &Shared,
) -> Result<Vec<SubscriptionStatus>, Box<dyn std::error::Error + Send + Sync>> {
    let mut client = shared.pool.get().await?;
    let reading = inspect::begin(&mut client).await?;
    let seen = shared.behind.seen();
    let floors = seen.iter().flat_map(|seen| seen.floors());
    Ok(inspect::status(&reading, SUBSCRIPTIONS, LANES, floors).await?)
}
