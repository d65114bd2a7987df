//! Maintenance: work that some worker must do once for all, and what a worker reports of itself.
//!
//! Whatever must be done once is done by one worker at a time, under an advisory lock, in turns of some
//! milliseconds, every ten minutes. A turn that reached its limit is followed by the next. It waits for an idle
//! moment (200 ms without a claim or settlement), a minute at most after a worker starts.
//!
//! | module | what it does |
//! |---|---|
//! | [`rounds`] | retention, and finishing changes of subscriptions |
//! | [`replays`] | gives the lanes of replays their turns |
//! | [`archive`] | writes days of the log to files before they are dropped |
//! | [`figures`] | the last figures of `statistics` |
//! | [`statistics`] | lag and lane states for metrics, read by one worker for all |
//! | [`gauges`] | metrics that are read on request |
//! | [`health`] | what liveness and readiness probes ask |
//! | [`lifecycle`] | the lifecycle feed: what happens to destinations, subscriptions and workers |
//! | [`message_feed`] | … and to messages, for subscriptions that ask |
//! | [`watchdog`] | … and of subscriptions with work that makes no progress |
//! | [`warnings`] | … and when sessions are nearly full, and messages fail |
//! | [`notes`] | what lanes tell of messages until then |
//! | [`counts`], [`message_counts`] | what became of messages, in figures; writing them |
//!
//! # Failures
//!
//! | failure | what happens |
//! |---|---|
//! | a step fails | a warning; the other steps run, and the step is tried again in the next round |
//! | the worker stops or dies | another worker's round continues: each turn commits for itself |
//! | a barrier is held up by an old transaction | passes run before the last one, at growing intervals |
//! | a day cannot be archived | it stays in Postgres and is tried again |

pub mod archive;
pub mod counts;
pub mod figures;
pub mod gauges;
pub mod health;
pub mod lifecycle;
pub mod message_counts;
pub mod message_feed;
pub mod notes;
pub mod replays;
pub mod rounds;
pub mod statistics;
mod warnings;
pub mod watchdog;

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use self::counts::MessageCounts;
use self::figures::Statistics;
use self::health::Health;
use self::notes::MessageFeed;

/// What a worker knows of itself and of the subscriptions, and the lock of its retention rounds.
#[derive(Debug, Default)]
pub struct Maintenance {
    pub health: Health,
    /// Lag and lane states, on the worker that reads them for all.
    pub statistics: Statistics,
    /// Held by the retention round that waits or runs.
    pub retention_round: Mutex<()>,
    pub counts: MessageCounts,
    pub message_feed: MessageFeed,
    /// Whether a subscription of the lifecycle feed exists.
    has_feed: AtomicBool,
}

impl Maintenance {
    pub fn set_feed(&self, exists: bool) {
        self.has_feed.store(exists, Ordering::Relaxed);
    }

    pub fn has_feed(&self) -> bool {
        self.has_feed.load(Ordering::Relaxed)
    }
}
