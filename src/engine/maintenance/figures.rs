//! The last statistics of the subscriptions; `statistics` reads them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_postgres::inspect::SubscriptionStatus;
use tokio::time::Instant;

/// Between two reads.
pub const INTERVAL: Duration = Duration::from_secs(10);

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
            && at.elapsed() < INTERVAL * 3
        {
            subscriptions.iter().for_each(each);
        }
    }

    pub fn set(&self, subscriptions: Option<Vec<SubscriptionStatus>>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) =
            subscriptions.map(|subscriptions| (Instant::now(), subscriptions));
    }
}
