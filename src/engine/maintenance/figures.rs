//! The last statistics of the subscriptions; `statistics` reads them.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_postgres::inspect::SubscriptionStatus;
use tokio::time::Instant;

/// Between two reads.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// Each subscription, and which of them are stalled.
type Figures = (Vec<SubscriptionStatus>, HashSet<i32>);

/// The last figures.
#[derive(Debug, Default)]
pub struct Statistics {
    seen: Mutex<Option<(Instant, Figures)>>,
}

impl Statistics {
    /// Calls `each` with the last figures, unless they are old or another worker reads them now.
    pub fn with(&self, mut each: impl FnMut(&SubscriptionStatus)) {
        self.with_stalled(|seen, _| each(seen));
    }

    /// The same, with whether it is stalled.
    pub fn with_stalled(&self, mut each: impl FnMut(&SubscriptionStatus, bool)) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, (subscriptions, stalled))) = &*seen
            && at.elapsed() < INTERVAL * 3
        {
            for seen in subscriptions {
                each(seen, stalled.contains(&seen.subscription_id));
            }
        }
    }

    pub fn set(&self, figures: Option<Figures>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) =
            figures.map(|figures| (Instant::now(), figures));
    }
}
