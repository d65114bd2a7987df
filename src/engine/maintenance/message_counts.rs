//! What became of messages, counted for `status`: each worker adds its figures to the subscription's row every five
//! seconds and when it stops, only where there are any. A worker that is killed loses those of the last seconds; the
//! outcomes, which are rows, it does not lose.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::message_count::{self, MessageCount};
use tokio::time::{sleep, timeout};

use crate::shared::Shared;

const INTERVAL: Duration = Duration::from_secs(5);
/// The time-out of a write.
const WITHIN: Duration = Duration::from_secs(5);

/// Writes until the worker stops.
pub async fn run(shared: Arc<Shared>) {
    loop {
        sleep(INTERVAL).await;
        write(&shared).await;
    }
}

/// Adds what was counted to the subscriptions' rows. Where that fails, it is added with the next.
pub async fn write(shared: &Shared) {
    let taken: Vec<(i32, MessageCount)> = shared
        .maintenance
        .counts
        .all()
        .into_iter()
        .map(|(id, counts)| (id, counts.take()))
        .filter(|(_, count)| *count != MessageCount::default())
        .collect();
    if taken.is_empty() {
        return;
    }
    let writing = async {
        let client = shared.pool.get().await?;
        message_count::add(&**client, &taken).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    // After a time-out it may have been written: figures that are too low are better than such as count twice.
    if let Ok(Err(error)) = timeout(WITHIN, writing).await {
        tracing::warn!(
            error = &*error,
            "the counts of messages could not be written; they are added with the next"
        );
        for (id, count) in &taken {
            shared.maintenance.counts.of(*id).put_back(count);
        }
    }
}
