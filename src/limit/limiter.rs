//! Decides for all lanes of one process whether a send may go: at Redis, together with the other processes, or alone
//! with a local quota while Redis is away (I10).
//!
//! ```text
//!            an answer is missing, late or an error
//!   shared ───────────────────────────────────────────► alone, silent until no process counts it as present
//!     ▲                                                   │
//!     │ reported its sends and pauses to Redis            ▼
//!   joining ◄── Redis answers steadily for a while ────── alone, with its local quota
//! ```
//!
//! | what goes wrong | what happens |
//! |---|---|
//! | Redis away for one process | it sends nothing for about a second, until the others leave it its local quota; then it sends within that |
//! | Redis away for all, or none configured | each sends within its local quota; if there are more processes than sends in a window, only the first few send |
//! | Redis lost its memory | buckets begin empty; each process reports how long its own last send uses up the bucket |
//! | Redis' answer comes late | the permission is not used: a pause may have begun meanwhile |
//! | heartbeats do not reach Postgres | nothing is sent under a limit: the number of processes that share it is unknown |
//!
//! A process that joins the fleet without Redis sends nothing until all others must have seen it.

mod alone;
mod circuits;
mod presence;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use self::alone::Known;
pub use self::circuits::Admission;
use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::fleet::Fleet;

use super::breaker::{BreakerSettings, Breakers};
use super::link::{Decision, Link, Report};
use super::meter::Micros;
use super::settings::RedisSettings;

/// The default horizon: how far ahead slots are given. A lane waits in memory for up to this time.
pub const HORIZON: Duration = Duration::from_secs(1);
/// The greatest age of a permission that is still used. So a pause that Redis has known for this long is kept.
const FRESH: Duration = Duration::from_millis(45);
/// How long a worker that starts waits for Redis.
const CONNECTING: Duration = Duration::from_secs(2);
/// How long to wait before asking again while the fleet is unknown.
const UNKNOWN: Duration = Duration::from_millis(100);

/// May a send go?
#[derive(Clone, Debug)]
pub enum Answer {
    /// Now, at once.
    Go,
    /// Ask again at that instant, with this slot.
    Wait { until: Instant, slot: Option<Slot> },
    /// Not within the horizon. `bucket` is the index of the requested bucket that becomes free last.
    Later { after: Duration, bucket: usize },
    /// Other processes use up this bucket's limit; this process must not send.
    Elsewhere { again: Duration },
}

/// A position in a bucket's queue.
#[derive(Clone, Copy, Debug)]
pub struct Slot(Place);

#[derive(Clone, Copy, Debug)]
enum Place {
    Shared(i64),
    Alone(Micros),
}

/// Where limits are decided at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// At Redis, together with the other processes.
    pub shared: bool,
    /// How often this process lost Redis and continued alone.
    pub times_alone: u64,
}

enum Mode {
    Shared(Arc<Link>),
    /// Sends within its local quota, from that instant on.
    Alone {
        from: Instant,
    },
    /// Sends nothing, and reports to Redis what it sent while alone.
    Joining,
}

struct Seen {
    fleet: Fleet,
    at: Instant,
    since: Instant,
}

pub struct Limiter {
    redis: Option<RedisSettings>,
    worker_id: i64,
    heartbeat: Duration,
    origin: Instant,
    mode: Mutex<Mode>,
    known: Mutex<HashMap<Arc<str>, Known>>,
    /// Pauses that other processes kept for this one, by bucket.
    kept_pauses: Mutex<HashMap<String, Instant>>,
    fleet: Mutex<Option<Seen>>,
    times_alone: AtomicU64,
    breaker: BreakerSettings,
    breakers: Mutex<Breakers>,
    /// Whether `breakers` has any circuit. If not, a delivery does not lock it.
    any_circuit: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Limiter {
    pub fn new(
        redis: Option<RedisSettings>,
        breaker: BreakerSettings,
        worker_id: i64,
        heartbeat: Duration,
    ) -> Self {
        let now = Instant::now();
        // Buckets at Redis may be full, and local ones begin empty, so it pays to wait a moment for Redis.
        let from = match redis {
            Some(_) => now + CONNECTING,
            None => now,
        };
        Self {
            redis,
            worker_id,
            heartbeat,
            origin: now,
            mode: Mutex::new(Mode::Alone { from }),
            known: Mutex::default(),
            kept_pauses: Mutex::default(),
            fleet: Mutex::default(),
            times_alone: AtomicU64::new(0),
            breaker,
            breakers: Mutex::default(),
            any_circuit: AtomicBool::new(false),
        }
    }

    /// Stores the fleet that the last heartbeat found.
    pub fn set_fleet(&self, fleet: Fleet) {
        let now = Instant::now();
        let mut seen = locked(&self.fleet);
        let since = seen.as_ref().map_or(now, |seen| seen.since);
        *seen = Some(Seen {
            fleet,
            at: now,
            since,
        });
    }

    /// The number of live workers, as far as this process knows; at least 1.
    pub fn replicas(&self) -> u32 {
        locked(&self.fleet)
            .as_ref()
            .map_or(1, |seen| seen.fleet.replicas.max(1))
    }

    /// How many of the live workers started before this one. `None`: not known yet.
    pub fn rank(&self) -> Option<u32> {
        locked(&self.fleet).as_ref().map(|seen| seen.fleet.rank)
    }

    pub fn view(&self) -> View {
        View {
            shared: matches!(*locked(&self.mode), Mode::Shared(_)),
            times_alone: self.times_alone.load(Ordering::Relaxed),
        }
    }

    /// Asks whether a send that needs all of these buckets may go now. `slot` is the one of the last answer; with a
    /// slot, `horizon` must be the one with which the slot was given.
    pub async fn ask(&self, buckets: &[Bucket], slot: Option<Slot>, horizon: Duration) -> Answer {
        let fleet = match self.fleet(false) {
            Ok(fleet) => fleet,
            Err(after) => return unknown(after),
        };
        let link = match &*locked(&self.mode) {
            Mode::Shared(link) => Some(Arc::clone(link)),
            Mode::Alone { .. } | Mode::Joining => None,
        };
        let Some(link) = link else {
            return self.ask_alone(buckets, slot, horizon);
        };
        let place = match slot {
            Some(Slot(Place::Shared(slot))) => Some(slot),
            _ => None,
        };
        let asked_at = Instant::now();
        let asking = link.take(self.worker_id, fleet.replicas, buckets, place, horizon);
        let taken = match asking.await {
            Ok(taken) => taken,
            Err(error) => {
                self.lose(&link, &error);
                return self.ask_alone(buckets, None, horizon);
            }
        };
        let now = Instant::now();
        self.learn(buckets, &taken.silences, now);
        match taken.decision {
            Decision::Go if now - asked_at > FRESH => Answer::Wait {
                until: now,
                slot: None,
            },
            Decision::Go => {
                self.sent(buckets, now, |_| None);
                Answer::Go
            }
            Decision::Wait { slot, after } => Answer::Wait {
                until: now + after,
                slot: Some(Slot(Place::Shared(slot))),
            },
            Decision::Later { after, bucket } => Answer::Later { after, bucket },
        }
    }

    /// Records that the destination asked for a pause. All processes that reach Redis send nothing during it. Returns
    /// true if only this process knows of it and has not been told before: somebody must keep it for the others.
    pub async fn pause(&self, buckets: &[Bucket], pause: Duration) -> bool {
        let now = Instant::now();
        let is_news = self.learn(buckets, &vec![pause; buckets.len()], now);
        let link = match &*locked(&self.mode) {
            Mode::Shared(link) => Arc::clone(link),
            // Redis is told when this process joins again.
            Mode::Alone { .. } | Mode::Joining => return is_news,
        };
        let reports: Vec<Report> = buckets
            .iter()
            .map(|bucket| Report {
                bucket: bucket.clone(),
                owed: 0,
                used_up: Duration::ZERO,
                silent: pause,
            })
            .collect();
        match link.report(&reports).await {
            Ok(()) => false,
            Err(error) => {
                self.lose(&link, &error);
                is_news
            }
        }
    }

    /// Takes the pauses that processes without Redis kept, by bucket: how long each still lasts. They replace those of
    /// the last call.
    pub fn set_kept_pauses(&self, pauses: HashMap<String, Duration>) {
        let now = Instant::now();
        let until = |(bucket, left)| (bucket, now + left);
        *locked(&self.kept_pauses) = pauses.into_iter().map(until).collect();
    }

    /// Returns the fleet if it is known well enough to send, else how long to wait before asking again. A send without
    /// Redis (`alone`) also requires that all other workers have seen this one.
    pub(super) fn fleet(&self, alone: bool) -> Result<Fleet, Duration> {
        let seen = locked(&self.fleet);
        let Some(seen) = &*seen else {
            return Err(UNKNOWN);
        };
        // A worker that joins sends nothing for three heartbeats. A worker that sends has read the fleet within the
        // last two, so it counts the one that joined.
        if seen.at.elapsed() > self.heartbeat * 2 {
            return Err(self.heartbeat);
        }
        let silent = (self.heartbeat * 3).saturating_sub(seen.since.elapsed());
        if alone && seen.fleet.replicas > 1 && !silent.is_zero() {
            return Err(silent);
        }
        Ok(seen.fleet)
    }
}

/// The answer while the fleet is unknown: ask again after this time.
fn unknown(after: Duration) -> Answer {
    if after > HORIZON {
        return Answer::Later { after, bucket: 0 };
    }
    Answer::Wait {
        until: Instant::now() + after,
        slot: None,
    }
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}
