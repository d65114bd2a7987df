//! Delivering: the events of a held lane go to their destination one at a time, in order (I2, I3, I4, I11, I12).
//!
//! A lane's task delivers its events one at a time, applies each verdict to progress without I/O, and asks its
//! connection to settle. The settlement says what became of the head: accepted, retried at a later time, exhausted
//! (dead letter, drop or park), or unchanged (yield).
//!
//! A delivery that takes longer than `worker.mark_after_ms` gives its lane an in-flight record: the ready entry is
//! replaced by one that is due at the frozen limit, so that other claims need not step over it. Lanes with
//! in-flight records are the ones that survivors must wake.
//!
//! **Large payloads.** Payloads over 4 KiB are not fetched with the batch. They are read when their turn comes, so
//! a fetch is bounded by rows × 4 KiB and needs no window function to stop at a sum of bytes. Before it is read, a
//! large payload waits for its part of `worker.prefetch_bytes`, in the order of asking, separately from what is
//! fetched ahead: one counter for both would make lanes wait for each other.
//!
//! | module | what it does |
//! |---|---|
//! | [`adapter_lane`] | the task of one lane whose destination is outside: at least once |
//! | [`handler_lane`] | a connection that runs lanes whose handler writes to this Postgres: exactly once |
//! | [`progress`] | what a verdict does to a lane's progress; no I/O |
//! | [`coalesce`] | which events of a batch are delivered |
//! | [`event`] | the event that a destination gets |
//! | [`retry`] | when a failed head is tried again |
//! | [`budget`] | how much memory events may take |
//! | [`pauses`] | pauses of limits that outlive the worker that heard them |
//! | [`sent_messages`] | what adapters remember of messages that they sent |
//!
//! # Failures
//!
//! | failure | what happens |
//! |---|---|
//! | the destination fails | the head is retried after the subscription's schedule; its lane is released meanwhile, and no other lane waits |
//! | the head is exhausted | dead letter or drop, and the lane continues; or the lane is parked |
//! | the process dies during a delivery | the head is charged a crash, and delivered again by a survivor |
//! | the lock validity ends | the delivery is cancelled and nothing is settled |
//! | a payload cannot be read | the lane is retried a second later; a payload that Postgres can never return exhausts its event |

pub mod adapter_lane;
pub mod budget;
pub mod coalesce;
pub mod event;
pub mod handler;
pub mod handler_lane;
pub mod pauses;
pub mod progress;
pub mod retry;
pub mod sent_messages;

use std::sync::Arc;

use lanekeeper_limit::Limiter;
use tokio::sync::Semaphore;

use self::budget::{Allowance, Budget};
use crate::settings::{TICK, WorkerSettings};

/// What the lanes of one worker share while they deliver: memory, limits, and the one permit for suspected
/// poison events.
pub struct Delivering {
    /// For events that are fetched ahead.
    pub budget: Arc<Budget>,
    /// For payloads that are read when their turn comes.
    pub allowance: Allowance,
    /// Rate limits and circuits of the destinations.
    pub limiter: Limiter,
    /// One permit: suspected poison events are delivered one at a time.
    pub suspected_poison: Arc<Semaphore>,
}

impl Delivering {
    pub fn new(settings: &WorkerSettings, worker_id: i64) -> Self {
        Self {
            budget: Budget::new(settings.prefetch_bytes),
            allowance: Allowance::new(settings.prefetch_bytes),
            limiter: Limiter::new(
                settings.redis.clone(),
                settings.breaker,
                worker_id,
                // As far apart as two heartbeats may be.
                settings.heartbeat + TICK,
            ),
            suspected_poison: Arc::new(Semaphore::new(1)),
        }
    }
}
