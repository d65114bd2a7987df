//! Whether a send may go, for all lanes of one process: over Redis together with the others, or alone
//! with a share while Redis is away (I10).
//!
//! ```text
//!            an answer is missing, late or an error
//!   shared ───────────────────────────────────────────► alone, silent until nobody counts it as present
//!     ▲                                                   │
//!     │ told Redis of its sends and pauses                ▼
//!   joining ◄── answers steadily for a while ──────────── alone, with its share
//! ```
//!
//! | what goes wrong | what happens |
//! |---|---|
//! | Redis away for one process | it is silent for about a second, by then the others leave it its share; then it sends at that |
//! | Redis away for all, or none configured | each its share; where there are more processes than sends in a window, the first few only |
//! | Redis lost its memory | buckets are empty; each process tells how far its own last send reaches |
//! | Redis' answer comes late | the permission is not used: a pause may have come meanwhile |
//! | heartbeats do not get through | nothing is sent under a limit: how many share it is not known |
//!
//! A process that joins the fleet is silent while it is alone until all others must have seen it.

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

/// How far ahead slots are given where nothing else is asked for: waits up to this are spent in memory.
pub const HORIZON: Duration = Duration::from_secs(1);
/// What a permission may have aged when it is used: a pause that Redis knew of this long ago is kept.
const FRESH: Duration = Duration::from_millis(45);
/// How long a worker that starts waits for Redis.
const CONNECTING: Duration = Duration::from_secs(2);
/// While the fleet is not known.
const UNKNOWN: Duration = Duration::from_millis(100);

/// May a send go?
#[derive(Clone, Debug)]
pub enum Answer {
    /// Now, at once.
    Go,
    /// Ask again then, with this slot.
    Wait { until: Instant, slot: Option<Slot> },
    /// Not within the horizon; the bucket that is furthest from free is this one of those asked for.
    Later { after: Duration, bucket: usize },
    /// Other processes send what this bucket lets through.
    Elsewhere { again: Duration },
}

/// A place in the line of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Slot(Place);

#[derive(Clone, Copy, Debug)]
enum Place {
    Shared(i64),
    Alone(Micros),
}

/// Where the limits are decided at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// At Redis, together with the other processes.
    pub shared: bool,
    /// How often this process had to go on alone.
    pub times_alone: u64,
}

enum Mode {
    Shared(Arc<Link>),
    /// With its share, from then on.
    Alone {
        from: Instant,
    },
    /// Sends nothing: it tells Redis what it sent.
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
    fleet: Mutex<Option<Seen>>,
    times_alone: AtomicU64,
    breaker: BreakerSettings,
    breakers: Mutex<Breakers>,
    /// Whether there is anything in them: nothing of it is on the way of a delivery to a sound place.
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
        // At Redis buckets may be full, here they begin empty: it is worth a moment.
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
            fleet: Mutex::default(),
            times_alone: AtomicU64::new(0),
            breaker,
            breakers: Mutex::default(),
            any_circuit: AtomicBool::new(false),
        }
    }

    /// What the last heartbeat found.
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

    /// Workers that live, as far as is known.
    pub fn replicas(&self) -> u32 {
        locked(&self.fleet)
            .as_ref()
            .map_or(1, |seen| seen.fleet.replicas.max(1))
    }

    /// How many of the workers that live started before this one; `None`: not known yet.
    pub fn rank(&self) -> Option<u32> {
        locked(&self.fleet).as_ref().map(|seen| seen.fleet.rank)
    }

    pub fn view(&self) -> View {
        View {
            shared: matches!(*locked(&self.mode), Mode::Shared(_)),
            times_alone: self.times_alone.load(Ordering::Relaxed),
        }
    }

    /// Asks for a send that needs all of these buckets; `slot` is what it was told to come back with. Who has
    /// a slot asks with the horizon under which it was given.
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

    /// The destination wants nothing for so long: no process sends, as far as Redis reaches.
    pub async fn pause(&self, buckets: &[Bucket], pause: Duration) {
        let now = Instant::now();
        self.learn(buckets, &vec![pause; buckets.len()], now);
        let link = match &*locked(&self.mode) {
            Mode::Shared(link) => Arc::clone(link),
            // Told when Redis is back.
            Mode::Alone { .. } | Mode::Joining => return,
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
        if let Err(error) = link.report(&reports).await {
            self.lose(&link, &error);
        }
    }

    /// The fleet, where it is known well enough to send, which alone takes more; else when to look again.
    pub(super) fn fleet(&self, alone: bool) -> Result<Fleet, Duration> {
        let seen = locked(&self.fleet);
        let Some(seen) = &*seen else {
            return Err(UNKNOWN);
        };
        // Whoever joins is silent for three beats; whoever sends has looked within the last two.
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

/// Nothing may be sent before then, and perhaps not then.
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
