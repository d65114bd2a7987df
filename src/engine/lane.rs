//! One held lane: its events to the adapter, one at a time, in order (I2, I3, I12).
//!
//! A lane task lives from the claim until the lane is let go. It decides what happens to each event
//! and asks its lane connection to settle; it never touches Postgres itself, except for a payload
//! that was too large to come with its batch.
//!
//! ```text
//!            ┌──────────── more ────────────┐
//!            ▼                              │
//! claimed ─► deliver the batch ─► finish ───┼─► idle          token deleted, lock released
//!                │                          └─► busy ─► finish again, a little later
//!                ├─ head failed ─► retry        token due later, lock released
//!                ├─ exhausted ───► dead letter or drop: on with the next; or park
//!                ├─ long quantum ► yield        token due now, behind the others
//!                ├─ requeued ────► dead letters whose turn has come are heads before the next event
//!                ├─ limit ───────► waits a little where it is, or: token due at its turn, lock released
//!                ├─ chat's limit ► waits in its line, and looks at the log once more before its turn
//!                ├─ shutting down ► release     token stays
//!                └─ trust lost ──► nothing is settled; whoever holds the lane next goes on
//! ```

mod gist;
mod pacing;
mod read;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

pub(super) use self::read::{Unread, read_letter};

use lanekeeper_core::adapter::{Adapter, Verdict};
use lanekeeper_fault::CrashPoint;

use self::pacing::Turn;
use super::claimer::{Batch, LaneContext, Reply, Request};
use super::coalesce::{Step, plan};
use super::handler::Destination;
use super::pace::Place;
use super::progress::{Judgement, Progress, Stop};
use super::route::Route;
use super::trust::Trust;
#[cfg(feature = "crash-points")]
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::claim::ClaimedLane;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::settle::{Operation, Settled};

/// How long deliveries go on before what they settled is written: bounds what a crash repeats.
const SETTLE_EVERY: Duration = Duration::from_millis(100);
/// Events that a lane may have delivered in one holding before it lets others go first.
const QUANTUM: usize = 1000;
/// Waits between tries to go idle while a producer holds the append lock, then its token waits.
const BUSY_WAITS_MS: [u64; 5] = [1, 2, 4, 8, 16];
/// After those: the producer's own token wakes the lane if anything came of its transaction.
const BUSY_DELAY: Duration = Duration::from_millis(250);
/// Until a payload that could not be read is tried again.
const UNREAD_DELAY: Duration = Duration::from_secs(1);

/// A lane that was claimed.
pub struct Lane {
    pub claimed: ClaimedLane,
    pub route: Arc<Route>,
    /// Where there is a limit.
    pub place: Option<Arc<Place>>,
}

/// How a batch ended.
enum Ending {
    /// Everything in it was passed.
    Passed,
    Stopped(Stop),
    /// Its turn comes then. What is newer by then may go instead of what was fetched.
    Rests(Instant),
    /// The claim is gone.
    Lost,
}

/// Runs lanes of one connection, each with its first events, until each is let go or the claim is lost.
pub async fn run(lanes: Vec<(Lane, Batch)>, context: Arc<LaneContext>) {
    let _guard = PanicGuard(&context.trust);
    let running: FuturesUnordered<_> = lanes
        .into_iter()
        .map(|(lane, batch)| run_one(lane, batch, &context))
        .collect();
    tokio::select! {
        biased;
        // Dropping the other arm is right here: the locks are gone, nothing may be settled.
        () = context.trust.lost().cancelled() => {}
        () = running.collect::<()>() => {}
    }
}

async fn run_one(lane: Lane, batch: Batch, context: &LaneContext) {
    let Lane {
        claimed,
        route,
        place,
    } = lane;
    let Destination::Adapter(adapter) = &route.destination else {
        unreachable!("handlers' routes are walked elsewhere")
    };
    CrashPoint::Held.pass();
    let progress = Progress::of(&claimed);
    let now = Instant::now();
    let mut runner = Runner {
        claimed,
        route: &route,
        adapter: &**adapter,
        context,
        place,
        progress,
        turn: None,
        delivered: 0,
        accepted: 0,
        filtered: 0,
        claimed_at: now,
        settled_at: now,
        sent_at: now,
    };
    runner.drive(batch).await;
}

struct Runner<'a> {
    claimed: ClaimedLane,
    route: &'a Arc<Route>,
    adapter: &'a dyn Adapter,
    context: &'a LaneContext,
    place: Option<Arc<Place>>,
    progress: Progress,
    /// Its place in the line of a limit.
    turn: Option<Turn>,
    /// Events passed in this holding.
    delivered: usize,
    /// What of them was accepted, and what was filtered, since the last settlement.
    accepted: u64,
    filtered: u64,
    claimed_at: Instant,
    settled_at: Instant,
    /// When the last delivery was answered.
    sent_at: Instant,
}

impl Runner<'_> {
    async fn drive(&mut self, batch: Batch) {
        if self.claimed.parked || !self.claimed.retry_in.is_zero() {
            // The lane's own token is elsewhere: in the future, or with whoever unparks it.
            self.settle(Stop::new(Operation::Discard)).await;
            return;
        }
        let mut next = Some(batch);
        let mut busy = BUSY_WAITS_MS.iter();
        loop {
            let ending = match next.take() {
                Some(Batch {
                    events,
                    share: _share,
                }) => self.deliver(events).await,
                None => Ending::Passed,
            };
            let stop = match ending {
                Ending::Lost => return,
                Ending::Stopped(stop) => stop,
                Ending::Rests(until) => self.sleep_before(until).await,
                Ending::Passed if self.context.stopping.is_cancelled() => {
                    Stop::new(Operation::Release)
                }
                // With requeued dead letters to come it must not go idle; it is fetched anew.
                Ending::Passed if self.delivered >= QUANTUM || self.progress.has_requeued() => {
                    Stop::new(Operation::Yield)
                }
                Ending::Passed => Stop::new(Operation::Finish),
            };
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
        let gists = self.gists(&events).await;
        let steps = plan(&events, self.route.merging(&gists));
        let nothing_left = events.is_empty();
        for (event, step) in events.into_iter().zip(steps) {
            if self.progress.is_requeued_before(event.seq) {
                match Box::pin(self.letters(event.seq)).await {
                    Ending::Passed => {}
                    ending => return ending,
                }
            }
            match step {
                Step::Filtered => {
                    self.filtered += 1;
                    self.progress.pass(event.seq, event.day);
                }
                Step::Coalesced { replaced_by } => {
                    self.progress.coalesce(event.seq, event.day, replaced_by);
                }
                Step::Deliver => match self.attempt(event).await {
                    Ending::Passed => {}
                    ending => return ending,
                },
            }
            self.delivered += 1;
            // By the clock's last reading: what is not sent takes no time.
            let due = self.sent_at.saturating_duration_since(self.settled_at) > SETTLE_EVERY;
            let due = due || self.progress.must_settle();
            if due && let Err(ending) = self.keep().await {
                return ending;
            }
        }
        // What they were to come behind may be gone from the log, or was filtered.
        let behind = if nothing_left {
            i64::MAX
        } else {
            self.progress.next_seq()
        };
        if self.progress.is_requeued_before(behind) {
            return Box::pin(self.letters(behind)).await;
        }
        Ending::Passed
    }

    /// Delivers the requeued dead letters that come before this event, one at a time.
    async fn letters(&mut self, seq: i64) -> Ending {
        while self.progress.is_requeued_before(seq) {
            let Ok(next) = self.context.letter(self.claimed.lane_id).await else {
                return Ending::Stopped(Stop::retry(UNREAD_DELAY, None));
            };
            self.progress
                .requeued(next.as_ref().map(|(letter, _)| letter.after_seq));
            let Some((letter, _share)) = next else {
                break;
            };
            if letter.after_seq >= seq {
                break;
            }
            if self.delivered >= QUANTUM {
                return Ending::Stopped(Stop::new(Operation::Yield));
            }
            self.progress.face(letter.dead_id);
            match self.attempt(letter.event).await {
                Ending::Passed => self.delivered += 1,
                ending => return ending,
            }
            // Which comes next is known when this one is on record.
            if let Err(ending) = self.keep().await {
                return ending;
            }
        }
        Ending::Passed
    }

    /// Tries the head once.
    async fn attempt(&mut self, fetched: FetchedEvent) -> Ending {
        if self.context.stopping.is_cancelled() {
            return Ending::Stopped(Stop::new(Operation::Release));
        }
        if self.route.is_replaced() {
            // Whoever claims it next goes by what is true then.
            return Ending::Stopped(Stop::new(Operation::Yield));
        }
        let (seq, day) = (fetched.seq, fetched.day);
        let crashes = self.progress.crashes;
        if crashes >= self.context.settings.max_crashes {
            let error = format!("{crashes} workers died while they held this event");
            let judgement = self
                .progress
                .exhaust(seq, day, error, &self.route.subscription);
            return self.ending(judgement).await;
        }
        let _alone = if self.progress.is_suspect() {
            // One suspect at a time in this process, under a claim of its own: a further crash is
            // charged to it and not to whatever it shares the worker with.
            let permit = Arc::clone(&self.context.suspects).acquire_owned().await;
            if !self.record_suspect().await {
                return Ending::Lost;
            }
            permit.ok()
        } else {
            None
        };
        // What few deliveries need is boxed here and below: each lane has room for the whole of this future.
        let _part = if fetched.payload.is_none() {
            match Box::pin(self.part(&fetched)).await {
                Ok(part) => Some(part),
                Err(ending) => return ending,
            }
        } else {
            None
        };
        let event = match self.event(fetched).await {
            Ok(event) => event,
            // Not an attempt: the destination never saw it.
            Err(Unread::Later) => return Ending::Stopped(Stop::retry(UNREAD_DELAY, None)),
            Err(Unread::Never(error)) => {
                let judgement = self
                    .progress
                    .exhaust(seq, day, error, &self.route.subscription);
                return self.ending(judgement).await;
            }
        };
        let buckets = self.buckets(&event);
        let probe = if buckets.is_empty() && self.is_free() {
            self.turn = None;
            false
        } else {
            match Box::pin(self.clear(&buckets)).await {
                Ok(probe) => probe,
                Err(ending) => return ending,
            }
        };
        #[cfg(feature = "crash-points")]
        if Mutation::CursorBeforeDelivery.is_on() {
            self.progress.pass(seq, day);
            if let Err(ending) = self.keep().await {
                return ending;
            }
        }
        #[cfg(feature = "crash-points")]
        let _connection = if Mutation::PooledConnectionHeld.is_on() {
            self.context.pool.get().await.ok()
        } else {
            None
        };
        let verdict = match self.send(&event).await {
            Ok(verdict) => verdict,
            Err(ending) => return ending,
        };
        // Before anything else: others are about to send.
        let learned = self.adapter.learned();
        let news = verdict != Verdict::Accepted || !self.context.limiter().all_is_well();
        if news || !learned.is_empty() {
            Box::pin(self.report(learned, &verdict, &buckets, probe)).await;
        }
        let context = self.context;
        self.accepted += u64::from(verdict == Verdict::Accepted);
        let judgement = self
            .progress
            .judge(seq, day, verdict, &self.route.subscription, || {
                context.random()
            });
        self.ending(judgement).await
    }

    /// Settles and goes on.
    async fn keep(&mut self) -> Result<(), Ending> {
        match self.settle(Stop::new(Operation::Keep)).await {
            Some(Reply {
                settled: Settled::Done,
                ..
            }) => Ok(()),
            _ => Err(Ending::Lost),
        }
    }

    async fn ending(&self, judgement: Judgement) -> Ending {
        match judgement {
            Judgement::Passed => Ending::Passed,
            Judgement::Stopped(stop) => Ending::Stopped(stop),
            Judgement::Gone { reason, stop } => {
                Box::pin(self.context.pause(&self.route.subscription, &reason)).await;
                Ending::Stopped(stop)
            }
        }
    }

    async fn record_suspect(&self) -> bool {
        let (reply, recorded) = oneshot::channel();
        let request = Request::Suspect {
            lane_id: self.claimed.lane_id,
            version: self.progress.version,
            crashes: self.progress.crashes,
            reply,
        };
        self.context.requests.send(request).is_ok() && recorded.await.unwrap_or(false)
    }

    /// `None`: the lane connection is gone.
    async fn settle(&mut self, stop: Stop) -> Option<Reply> {
        let subscription = &self.route.subscription;
        let punctual = stop.punctual;
        #[cfg(feature = "crash-points")]
        if Mutation::BackoffWhileHeld.is_on() {
            sleep(stop.delay).await;
        }
        let settlement = Box::new(self.progress.settlement(stop, subscription.history));
        let outcomes: Vec<_> = settlement
            .outcomes
            .iter()
            .map(|outcome| outcome.kind.as_str())
            .collect();
        CrashPoint::Judged.pass();
        let (reply, settled) = oneshot::channel();
        let request = Request::Settle {
            settlement,
            subscription_id: subscription.id,
            punctual,
            reply,
        };
        self.context.requests.send(request).ok()?;
        let reply = settled.await.ok()?;
        if reply.settled == Settled::Lost {
            tracing::warn!(
                subscription = %subscription.name, session = %self.claimed.session,
                "lane lost: somebody else settled it; what was delivered may be delivered again"
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
    /// Counts what a settlement put on record.
    fn count(&mut self, outcomes: &[&'static str]) {
        let instruments = &self.route.instruments;
        instruments.delivered(std::mem::take(&mut self.accepted));
        instruments.ended("filtered", std::mem::take(&mut self.filtered));
        for outcome in outcomes {
            instruments.ended(outcome, 1);
        }
    }
}

/// Ends the trust if a lane's task ends by a panic: what the lane holds would else be held for ever.
struct PanicGuard<'a>(&'a Trust);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lose();
        }
    }
}
