//! Pauses of limits that must outlive this worker (I10).
//!
//! A destination that asks for a pause (429, Retry-After) asks all workers. Over Redis they hear of it at once. A worker
//! without Redis writes the pause to Postgres before its lane goes on, and every worker without Redis reads what is
//! written when it starts and with every tick. So the successor of a worker that died sends nothing before the end.
//!
//! A pause is written only if it outlasts a takeover, and once, however many lanes hear it. What is written says how
//! long it still lasts by Postgres' clock. A worker that dies before it has written a pause takes it with it, and a
//! worker that runs already may send for as long as a tick.

use std::time::Duration;

use lanekeeper_core::bucket::Bucket;
use lanekeeper_postgres::{StoreError, limit_pause};
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::shared::Shared;

/// A shorter pause is over about when survivors have taken over the lanes of whoever heard it.
const KEPT_FROM: Duration = Duration::from_secs(2);
/// How long the lane that heard it waits until it is written.
const WITHIN: Duration = Duration::from_secs(2);

/// Tells the limiter that the destination asked for this pause, and keeps it for other workers where Redis does not.
pub async fn pause(shared: &Shared, buckets: &[Bucket], pause: Duration) {
    let is_news = shared.delivering.limiter.pause(buckets, pause).await;
    if !is_news || pause < KEPT_FROM {
        return;
    }
    let kept = timeout(WITHIN, keep(shared, buckets, pause)).await;
    let kept = kept.unwrap_or_else(|_| Err("Postgres did not answer in time".into()));
    if let Err(error) = kept {
        tracing::warn!(
            error = &*error,
            pause_s = pause.as_secs(),
            "a destination's pause was not written: this worker keeps it, a successor may send before its end"
        );
    }
}

async fn keep(
    shared: &Shared,
    buckets: &[Bucket],
    pause: Duration,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let buckets: Vec<&str> = buckets.iter().map(|bucket| &*bucket.key).collect();
    let client = shared.pool.get().await?;
    Ok(limit_pause::write(&client, &buckets, pause).await?)
}

/// Reads the pauses that others wrote. Where Redis is used it knows them.
///
/// # Errors
/// What was read before stays.
pub async fn read(client: &Client, shared: &Shared) -> Result<(), StoreError> {
    let limiter = &shared.delivering.limiter;
    if !limiter.view().shared {
        limiter.set_kept_pauses(limit_pause::list(client).await?);
    }
    Ok(())
}
