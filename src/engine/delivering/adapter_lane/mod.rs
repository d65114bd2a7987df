//! The task of one held lane: its events go to the adapter one at a time, in order (I2, I3, I12).
//!
//! A lane task lives from the claim until the lane is released. It decides what happens to each event and asks its
//! lane connection to settle. It reads nothing from Postgres itself, except payloads that were too large to come
//! with their batch and requeued dead letters.
//!
//! ```text
//!            ┌──────────── more ────────────┐
//!            ▼                              │
//! claimed ─► deliver the batch ─► finish ───┼─► idle          entry deleted, lock released
//!                │                          └─► busy ─► finish again, a little later
//!                │     (one by one, or several in one request: `batch`)
//!                ├─ head failed ─► retry        entry due later, lock released
//!                ├─ exhausted ───► dead letter or drop: continue with the next event; or park
//!                ├─ 1,000 events ► yield        entry due now, behind the others
//!                ├─ requeued ────► dead letters are delivered as heads before the next event
//!                ├─ replayed ────► so is a range of past events
//!                ├─ limit ───────► waits while held, or: entry due at its reservation, lock released
//!                ├─ chat's limit ► waits in the queue, and fetches anew before its reservation
//!                ├─ interrupted ─► cancelled; or behind the delivery: what waits is passed, lock released
//!                ├─ shutting down ► release     entry stays
//!                └─ lock validity over ► nothing is settled; the next holder continues
//! ```
//!
//! **Large payloads.** Payloads over 4 KiB are not fetched with the batch. They are read when their turn comes, so
//! a fetch is bounded by rows × 4 KiB and needs no window function to stop at a sum of bytes. Before it is read, a
//! large payload waits for its part of `worker.prefetch_bytes`, in the order of asking, separately from what is
//! fetched ahead: one counter for both would make lanes wait for each other.

mod acknowledged;
mod attempt;
mod batch;
mod context;
mod interrupted;
mod limits;
mod preview;
mod read;
mod replayed;
mod sending;
mod surplus;
mod told;
mod upcoming;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::civil::Date;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

pub use self::context::LaneContext;
use lanekeeper_core::adapter::Adapter;
use lanekeeper_core::subscription::Acknowledge;
use lanekeeper_fault::CrashPoint;

use self::limits::QueuePosition;
use self::told::{Ended, Told};
use self::upcoming::Upcoming;
use crate::claiming::rate_control::LaneSlot;
use crate::claiming::request::{Batch, Reply, Request};
use crate::claiming::route::Route;
use crate::delivering::coalesce::{Step, plan};
use crate::delivering::handler::Destination;
use crate::delivering::progress::{Progress, Stop};
use crate::delivering::surplus::SurplusWatch;
use crate::peers::lock_validity::{LockValidity, Loss};
#[cfg(feature = "crash-points")]
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::claim::ClaimedLane;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::settle::{Operation, Settled};

/// How long deliveries continue before they are settled: bounds what a crash repeats.
const SETTLE_EVERY: Duration = Duration::from_millis(100);
/// How many events a lane may deliver in one holding before others go first.
const EVENTS_PER_HOLDING: usize = 1000;
/// Waits between attempts to go idle while a producer holds the append lock.
const BUSY_WAITS_MS: [u64; 5] = [1, 2, 4, 8, 16];
/// The delay of the entry after those. The producer's own entry wakes the lane if its transaction commits.
const BUSY_DELAY: Duration = Duration::from_millis(250);
/// The delay before a payload that could not be read is tried again.
const UNREAD_DELAY: Duration = Duration::from_secs(1);

/// A lane that was claimed.
pub struct Lane {
    pub claimed: ClaimedLane,
    pub route: Arc<Route>,
    /// Its slot, if the route has a limit.
    pub slot: Option<Arc<LaneSlot>>,
}

/// How a batch ended.
enum Ending {
    /// Everything in it was passed.
    Passed,
    /// The event was sent, and waits for its acknowledgement.
    Sent,
    Stopped(Stop),
    /// Its reservation is at that time. A newer version may be delivered then instead of the fetched one.
    WaitsUntil(Instant),
    /// The claim is gone.
    Lost,
}

/// Runs lanes of one connection, each with its first events, until each is released or the claim is lost.
pub async fn run(lanes: Vec<(Lane, Batch)>, context: Arc<LaneContext>) {
    let _guard = PanicGuard(&context.validity);
    let running: FuturesUnordered<_> = lanes
        .into_iter()
        .map(|(lane, batch)| run_one(lane, batch, &context))
        .collect();
    tokio::select! {
        biased;
        // The other arm may be dropped: the locks are gone, and nothing may be settled.
        () = context.validity.lost().cancelled() => {}
        () = running.collect::<()>() => {}
    }
}

async fn run_one(lane: Lane, batch: Batch, context: &LaneContext) {
    let Lane {
        claimed,
        route,
        slot,
    } = lane;
    let Destination::Adapter(adapter) = &route.destination else {
        unreachable!("routes of handlers are scanned elsewhere")
    };
    CrashPoint::Held.pass();
    let mut progress = Progress::of(&claimed);
    if route.subscription.ack == Acknowledge::Required {
        progress = progress.requiring_acks(claimed.awaiting);
    }
    let now = Instant::now();
    let mut runner = Runner {
        claimed,
        route: &route,
        adapter: &**adapter,
        context,
        slot,
        progress,
        queue_position: None,
        is_ahead: false,
        singly: 0,
        delivered: 0,
        accepted: 0,
        filtered: 0,
        claimed_at: now,
        settled_at: now,
        sent_at: now,
        logged_with: None,
        surplus: SurplusWatch::default(),
        told: Told::default(),
    };
    runner.drive(batch).await;
}

struct Runner<'a> {
    claimed: ClaimedLane,
    route: &'a Arc<Route>,
    adapter: &'a dyn Adapter,
    context: &'a LaneContext,
    slot: Option<Arc<LaneSlot>>,
    progress: Progress,
    /// Its position in the queue of a limit.
    queue_position: Option<QueuePosition>,
    /// The event that is being sent is not the head: earlier ones wait for their acknowledgements.
    is_ahead: bool,
    /// So many events go one at a time though the destination takes batches.
    singly: usize,
    /// Events passed in this holding.
    delivered: usize,
    /// Events that were accepted, and events that were filtered, since the last settlement.
    accepted: u64,
    filtered: u64,
    claimed_at: Instant,
    settled_at: Instant,
    /// When the last delivery was answered.
    sent_at: Instant,
    /// The trace of the last delivery, if there is one: log lines about its event belong to it.
    logged_with: Option<opentelemetry::Context>,
    surplus: SurplusWatch,
    told: Told,
}

impl Runner<'_> {
    async fn drive(&mut self, batch: Batch) {
        if self.claimed.parked || !self.claimed.retry_in.is_zero() {
            // The lane's own entry is due in the future, or is inserted by the command that unparks the lane.
            self.settle(Stop::new(Operation::Discard)).await;
            return;
        }
        let mut next = Some(batch);
        let mut busy = BUSY_WAITS_MS.iter();
        loop {
            let ending = match next.take() {
                Some(Batch {
                    events,
                    reservation: _reservation,
                }) => self.deliver(events).await,
                None => Ending::Passed,
            };
            let stop = match ending {
                Ending::Lost => return,
                Ending::Stopped(stop) => stop,
                Ending::WaitsUntil(until) => self.sleep_before(until).await,
                Ending::Passed if self.context.is_stopping() => Stop::new(Operation::Release),
                // A lane with requeued dead letters must not go idle; it is claimed and fetched anew.
                Ending::Passed
                    if self.delivered >= EVENTS_PER_HOLDING || self.progress.has_requeued() =>
                {
                    Stop::new(Operation::Yield)
                }
                Ending::Passed | Ending::Sent => Stop::new(Operation::Finish),
            };
            let stop = self.or_awaits(stop);
            match self.settle(stop).await {
                Some(Reply {
                    settled: Settled::More,
                    batch,
                }) => {
                    next = Some(batch);
                    busy = BUSY_WAITS_MS.iter();
                }
                Some(Reply {
                    settled: Settled::Busy,
                    ..
                }) => match busy.next() {
                    Some(&wait) => sleep(Duration::from_millis(wait)).await,
                    None => {
                        self.settle(Stop::retry(BUSY_DELAY, None)).await;
                        return;
                    }
                },
                _ => return,
            }
        }
    }

    async fn deliver(&mut self, events: Vec<FetchedEvent>) -> Ending {
        self.surplus.begin_batch();
        if self.progress.requires_acks() {
            return Box::pin(self.deliver_acknowledged(events)).await;
        }
        let previews = self.previews(&events).await;
        let steps = plan(&events, self.route.merging(&previews));
        let nothing_left = events.is_empty();
        let mut upcoming = Upcoming::new(events, steps);
        while let Some((event, step)) = upcoming.next() {
            if event.seq < self.progress.next_seq() {
                // It was left out with an earlier one.
                continue;
            }
            if self.progress.is_requeued_before(event.seq) {
                match Box::pin(self.deliver_requeued(event.seq)).await {
                    Ending::Passed => {}
                    ending => return ending,
                }
            }
            let ending = match step {
                Step::Deliver if self.route.batch > 1 => {
                    Box::pin(self.attempt_batch(event, &mut upcoming)).await
                }
                Step::Deliver => self.attempt(event).await,
                step => {
                    self.pass_by(step, event.seq, event.day);
                    Ending::Passed
                }
            };
            match ending {
                Ending::Passed => {}
                ending => return ending,
            }
            self.delivered += 1;
            // Uses the time of the last delivery: passing an event takes no time.
            let due = self.sent_at.saturating_duration_since(self.settled_at) > SETTLE_EVERY;
            let due = due || self.progress.must_settle();
            if due && let Err(ending) = self.settle_and_keep().await {
                return ending;
            }
        }
        // The events that requeued dead letters come behind may be gone from the log, or filtered.
        let behind = if nothing_left {
            i64::MAX
        } else {
            self.progress.next_seq()
        };
        if self.progress.is_requeued_before(behind) {
            return Box::pin(self.deliver_requeued(behind)).await;
        }
        Ending::Passed
    }

    /// The cursor passes an event that is not delivered.
    fn pass_by(&mut self, step: Step, seq: i64, day: Date) {
        match step {
            Step::Coalesced { replaced_by } => self.progress.coalesce(seq, day, replaced_by),
            Step::Cancelled => self.progress.cancel(seq, day),
            Step::Filtered | Step::Deliver => {
                self.filtered += u64::from(step == Step::Filtered);
                self.progress.pass(seq, day);
            }
        }
    }

    /// Delivers what comes before this event: a replay, then requeued dead letters, one at a time.
    async fn deliver_requeued(&mut self, seq: i64) -> Ending {
        while self.progress.is_requeued_before(seq) {
            if self.progress.is_replayed() {
                match Box::pin(self.deliver_replayed()).await {
                    Ending::Passed => continue,
                    ending => return ending,
                }
            }
            let Ok(next) = self.context.next_requeued(self.claimed.lane_id).await else {
                return Ending::Stopped(Stop::retry(UNREAD_DELAY, None));
            };
            self.progress
                .set_requeued_after(next.as_ref().map(|(letter, _)| letter.after_seq));
            let Some((letter, _reservation)) = next else {
                break;
            };
            if letter.after_seq >= seq {
                break;
            }
            if self.delivered >= EVENTS_PER_HOLDING {
                return Ending::Stopped(Stop::new(Operation::Yield));
            }
            self.progress.begin_dead_letter(letter.dead_id);
            match self.attempt(letter.event).await {
                Ending::Passed => self.delivered += 1,
                ending => return ending,
            }
            // Only after the result is recorded is it known which dead letter comes next.
            if let Err(ending) = self.settle_and_keep().await {
                return ending;
            }
        }
        Ending::Passed
    }

    /// Settles and keeps the lane.
    async fn settle_and_keep(&mut self) -> Result<(), Ending> {
        match self.settle(Stop::new(Operation::Keep)).await {
            Some(Reply {
                settled: Settled::Done,
                ..
            }) => Ok(()),
            _ => Err(Ending::Lost),
        }
    }

    /// Returns `None` if the lane connection is gone.
    async fn settle(&mut self, stop: Stop) -> Option<Reply> {
        let subscription = &self.route.subscription;
        let punctual = stop.punctual;
        #[cfg(feature = "crash-points")]
        if Mutation::BackoffWhileHeld.is_on() {
            sleep(stop.delay).await;
        }
        let history = subscription.history;
        self.tell_outcomes(&stop);
        let settlement = Box::new(self.progress.settlement(stop, history));
        let outcomes: Vec<_> = settlement.outcomes.iter().map(Ended::of).collect();
        CrashPoint::Judged.pass();
        let (reply, settled) = oneshot::channel();
        let request = Request::Settle {
            settlement,
            subscription_id: self.route.subscription.id,
            punctual,
            reply,
        };
        self.context.requests.send(request).ok()?;
        let reply = settled.await.ok()?;
        if reply.settled == Settled::Lost {
            tracing::warn!(
                subscription = %self.route.subscription.name, session = %self.claimed.session,
                "lane lost: another process settled it; its last deliveries may be repeated"
            );
            return Some(reply);
        }
        self.progress.settled();
        self.settled_at = Instant::now();
        self.count(&outcomes);
        Some(reply)
    }
}

impl Runner<'_> {
    /// Counts what a settlement recorded.
    fn count(&mut self, outcomes: &[Ended]) {
        let instruments = &self.route.instruments;
        let accepted = std::mem::take(&mut self.accepted);
        instruments.delivered(accepted);
        instruments.ended("filtered", std::mem::take(&mut self.filtered));
        for ended in outcomes {
            instruments.ended(ended.outcome, ended.events);
        }
        self.tell(accepted, outcomes);
    }
}

/// Ends the validity of the locks if a lane's task panics: the lane would otherwise be held for ever.
struct PanicGuard<'a>(&'a LockValidity);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lose(Loss::TaskFailed);
        }
    }
}
