//! The last statistics of the subscriptions; `statistics` reads them.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_postgres::inspect::SubscriptionStatus;
use lanekeeper_postgres::replay::Replay;
use tokio::time::Instant;

/// Between two reads.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// What is read at once.
#[derive(Debug, Default)]
pub struct Figures {
    pub subscriptions: Vec<SubscriptionStatus>,
    /// Those of them that are stalled, by id.
    pub stalled: HashSet<i32>,
    /// Those that have not ended.
    pub replays: Vec<Replay>,
}

/// The last figures.
#[derive(Debug, Default)]
pub struct Statistics {
    seen: Mutex<Option<(Instant, Figures)>>,
}

impl Statistics {
    /// Calls `each` with the last figures, unless they are old or another worker reads them now.
    pub fn with(&self, each: impl FnMut(&SubscriptionStatus)) {
        self.read(|seen| seen.subscriptions.iter().for_each(each));
    }

    /// The same, with whether it is stalled.
    pub fn with_stalled(&self, mut each: impl FnMut(&SubscriptionStatus, bool)) {
        self.read(|figures| {
            for seen in &figures.subscriptions {
                each(seen, figures.stalled.contains(&seen.subscription_id));
            }
        });
    }

    /// The same with the replays.
    pub fn with_replays(&self, each: impl FnMut(&Replay)) {
        self.read(|seen| seen.replays.iter().for_each(each));
    }

    fn read(&self, read: impl FnOnce(&Figures)) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, figures)) = &*seen
            && at.elapsed() < INTERVAL * 3
        {
            read(figures);
        }
    }

    pub fn set(&self, figures: Option<Figures>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) =
            figures.map(|figures| (Instant::now(), figures));
    }
}
