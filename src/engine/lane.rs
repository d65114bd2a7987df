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
//!                ├─ shutting down ► release     token stays
//!                └─ trust lost ──► nothing is settled; whoever holds the lane next goes on
//! ```

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::budget::Share;
use super::claimer::{LaneContext, Reply, Request};
use super::coalesce::{Step, plan};
use super::retry;
use super::route::Route;
use crate::adapter::{Delivery, Verdict};
use crate::event::Event;
use crate::store::claim::ClaimedLane;
use crate::store::fetch::{self, FetchedEvent};
use crate::store::settle::{Operation, Outcome, OutcomeKind, Settled, Settlement};
use crate::subscription::Exhaustion;

/// How long deliveries go on before what they settled is written: bounds what a crash repeats.
const SETTLE_EVERY: Duration = Duration::from_millis(100);
/// Events that a lane may have delivered in one holding before it lets others go first.
const QUANTUM: usize = 1000;
/// Waits between tries to go idle while a producer holds the append lock, then its token waits.
const BUSY_WAITS_MS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// After those: the producer's own token wakes the lane if anything came of its transaction.
const BUSY_DELAY: Duration = Duration::from_millis(250);
/// How long a subscription's lanes wait after its destination said 410 and paused it.
const GONE_DELAY: Duration = Duration::from_secs(1);

/// A lane that was claimed, with its first events.
pub struct Lane {
    pub claimed: ClaimedLane,
    pub route: Arc<Route>,
    pub events: Vec<FetchedEvent>,
    pub share: Share,
    pub context: Arc<LaneContext>,
}

/// How a batch ended.
enum Ending {
    /// Everything in it was passed.
    Passed,
    /// Let go with this operation.
    Stop {
        operation: Operation,
        delay: Duration,
        error: Option<String>,
    },
    /// The claim is gone.
    Lost,
}

/// Progress that is not settled yet.
struct Progress {
    version: i64,
    cursor: i64,
    cursor_day: jiff::civil::Date,
    attempts: i32,
    crashes: i32,
    changed: bool,
    settled_cursor: i64,
    outcomes: Vec<Outcome>,
}

/// Runs a lane until it is let go or the claim is lost.
pub async fn run(lane: Lane) {
    let Lane {
        claimed,
        route,
        events,
        share,
        context,
    } = lane;
    let progress = Progress {
        version: claimed.version,
        cursor: claimed.cursor,
        cursor_day: claimed.cursor_day,
        attempts: claimed.attempts,
        crashes: claimed.crashes,
        changed: false,
        settled_cursor: claimed.cursor,
        outcomes: Vec::new(),
    };
    let session = Arc::from(claimed.session.as_str());
    let trust = Arc::clone(&context.trust);
    let mut runner = Runner {
        claimed,
        session,
        route,
        context,
        progress,
        delivered: 0,
        settled_at: Instant::now(),
        aborted: None,
    };
    tokio::select! {
        biased;
        // Dropping the other arm is right here: the locks are gone, nothing may be settled.
        () = trust.lost().cancelled() => {}
        () = runner.drive(events, share) => {}
    }
}

struct Runner {
    claimed: ClaimedLane,
    session: Arc<str>,
    route: Arc<Route>,
    context: Arc<LaneContext>,
    progress: Progress,
    /// Events passed in this holding.
    delivered: usize,
    settled_at: Instant,
    /// Made at the first delivery and kept: it is polled beside every one.
    aborted: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Runner {
    async fn drive(&mut self, events: Vec<FetchedEvent>, share: Share) {
        if self.claimed.parked || !self.claimed.retry_in.is_zero() {
            // The lane's own token is elsewhere: in the future, or with whoever unparks it.
            self.settle(Operation::Discard, Duration::ZERO, None).await;
            return;
        }
        let mut batch = Some((events, share));
        let mut busy = BUSY_WAITS_MS.iter();
        loop {
            let ending = match batch.take() {
                Some((events, _share)) => self.deliver(events).await,
                None => Ending::Passed,
            };
            let reply = match ending {
                Ending::Lost => return,
                Ending::Stop {
                    operation,
                    delay,
                    error,
                } => {
                    self.settle(operation, delay, error).await;
                    return;
                }
                Ending::Passed if self.context.stopping.is_cancelled() => {
                    self.settle(Operation::Release, Duration::ZERO, None).await;
                    return;
                }
                Ending::Passed if self.delivered >= QUANTUM => {
                    self.settle(Operation::Yield, Duration::ZERO, None).await;
                    return;
                }
                Ending::Passed => self.settle(Operation::Finish, Duration::ZERO, None).await,
            };
            match reply {
                Some(Reply {
                    settled: Settled::More,
                    events,
                    share,
                }) => {
                    batch = Some((events, share));
                }
                Some(Reply {
                    settled: Settled::Busy,
                    ..
                }) => match busy.next() {
                    Some(&wait) => sleep(Duration::from_millis(wait)).await,
                    None => {
                        self.settle(Operation::Retry, BUSY_DELAY, None).await;
                        return;
                    }
                },
                _ => return,
            }
        }
    }

    async fn deliver(&mut self, events: Vec<FetchedEvent>) -> Ending {
        let steps = plan(&events, self.route.critical());
        for (event, step) in events.into_iter().zip(steps) {
            match step {
                Step::Filtered => self.pass(event.seq, event.day),
                Step::Coalesced { replaced_by } => {
                    let kind = OutcomeKind::Coalesced { replaced_by };
                    self.progress.outcomes.push(Outcome {
                        seq: event.seq,
                        kind,
                    });
                    self.pass(event.seq, event.day);
                }
                Step::Deliver => {
                    if let Some(ending) = self.attempt(event).await {
                        return ending;
                    }
                }
            }
            self.delivered += 1;
            if self.settled_at.elapsed() > SETTLE_EVERY {
                match self.settle(Operation::Keep, Duration::ZERO, None).await {
                    Some(Reply {
                        settled: Settled::Done,
                        ..
                    }) => {}
                    _ => return Ending::Lost,
                }
            }
        }
        Ending::Passed
    }

    /// Tries the head once. `None`: the cursor passed it.
    async fn attempt(&mut self, fetched: FetchedEvent) -> Option<Ending> {
        if self.context.stopping.is_cancelled() {
            return Some(stop(Operation::Release, Duration::ZERO, None));
        }
        let (seq, day) = (fetched.seq, fetched.day);
        if self.progress.crashes >= self.context.settings.max_crashes {
            let workers = self.progress.crashes;
            return self.exhaust(
                seq,
                day,
                format!("{workers} workers died while they held this event"),
            );
        }
        let _alone = if self.progress.crashes > 0 {
            // One suspect at a time in this process, under a claim of its own: a further crash is
            // charged to it and not to whatever it shares the worker with.
            let permit = Arc::clone(&self.context.suspects).acquire_owned().await;
            if !self.record_suspect().await {
                return Some(Ending::Lost);
            }
            permit.ok()
        } else {
            None
        };
        let Some((event, _large)) = self.event(fetched).await else {
            // Not an attempt: the destination never saw it.
            return Some(stop(Operation::Retry, Duration::from_secs(1), None));
        };
        if !self.context.trust.holds() {
            return Some(Ending::Lost);
        }
        let delivery = Delivery {
            event: &event,
            subscription: &self.route.subscription.name,
            attempt: u32::try_from(self.progress.attempts).unwrap_or(0) + 1,
        };
        let delivering = AssertUnwindSafe(self.route.adapter.deliver(&delivery)).catch_unwind();
        let aborting = &self.context.aborting;
        let aborted = self
            .aborted
            .get_or_insert_with(|| Box::pin(aborting.clone().cancelled_owned()));
        let verdict = tokio::select! {
            biased;
            verdict = delivering => verdict,
            // The adapter's future may be dropped anywhere; what it had sent may be sent again.
            () = aborted => return Some(stop(Operation::Release, Duration::ZERO, None)),
        };
        let verdict = verdict.unwrap_or_else(|_| Verdict::Retry {
            error: "the adapter panicked; see the worker's log".to_owned(),
            after: None,
        });
        self.judge(seq, day, verdict).await
    }

    async fn judge(
        &mut self,
        seq: i64,
        day: jiff::civil::Date,
        verdict: Verdict,
    ) -> Option<Ending> {
        match verdict {
            Verdict::Accepted => {
                self.pass(seq, day);
                None
            }
            Verdict::Rejected { error } => {
                self.fail();
                self.exhaust(seq, day, error)
            }
            Verdict::Retry { error, after } => {
                self.fail();
                let subscription = &self.route.subscription;
                let attempts = u32::try_from(self.progress.attempts).unwrap_or(u32::MAX);
                if subscription.max_attempts > 0 && attempts >= subscription.max_attempts {
                    return self.exhaust(seq, day, error);
                }
                let delay = after.unwrap_or_else(|| {
                    retry::delay(
                        &subscription.retry_schedule,
                        attempts,
                        self.context.random(),
                    )
                });
                tracing::debug!(
                    subscription = %subscription.name, session = %self.session, seq, attempts,
                    delay_ms = delay.as_millis(), error, "delivery failed"
                );
                Some(stop(Operation::Retry, delay, Some(error)))
            }
            Verdict::Throttled { reason, after } => {
                self.progress.changed = true;
                Some(stop(Operation::Retry, after, Some(reason)))
            }
            Verdict::Gone { error } => {
                self.context.pause(&self.route.subscription, &error).await;
                self.progress.changed = true;
                Some(stop(Operation::Retry, GONE_DELAY, Some(error)))
            }
        }
    }

    fn fail(&mut self) {
        self.progress.attempts = self.progress.attempts.saturating_add(1);
        self.progress.crashes = 0;
        self.progress.changed = true;
    }

    /// The head will not be tried again: `None` if the lane goes on with the next event.
    fn exhaust(&mut self, seq: i64, day: jiff::civil::Date, error: String) -> Option<Ending> {
        let subscription = &self.route.subscription;
        tracing::warn!(
            subscription = %subscription.name, session = %self.session, seq,
            attempts = self.progress.attempts, policy = ?subscription.on_exhausted, error,
            "event exhausted"
        );
        let kind = match subscription.on_exhausted {
            Exhaustion::DeadLetter => OutcomeKind::DeadLettered {
                error,
                attempts: self.progress.attempts,
                crashes: self.progress.crashes,
            },
            Exhaustion::Drop => OutcomeKind::Dropped { error },
            Exhaustion::Park => {
                self.progress.changed = true;
                return Some(stop(Operation::Park, Duration::ZERO, Some(error)));
            }
        };
        self.progress.outcomes.push(Outcome { seq, kind });
        self.pass(seq, day);
        None
    }

    fn pass(&mut self, seq: i64, day: jiff::civil::Date) {
        self.progress.cursor = seq;
        self.progress.cursor_day = day;
        self.progress.attempts = 0;
        self.progress.crashes = 0;
        self.progress.changed = true;
    }

    /// The event for the adapter; a payload that stayed behind is read now, within the budget.
    async fn event(&self, fetched: FetchedEvent) -> Option<(Event, Option<Share>)> {
        let (payload, large) = match fetched.payload {
            Some(payload) => (payload, None),
            None => {
                let size = usize::try_from(fetched.size).unwrap_or(0);
                let (payload, share) = self
                    .context
                    .large_payload(self.claimed.session_id, &fetched, size)
                    .await?;
                (payload, Some(share))
            }
        };
        let event = Event {
            message_id: fetched.message_id,
            stream: Arc::clone(&self.route.subscription.stream),
            session: Arc::clone(&self.session),
            seq: fetched.seq,
            event_type: fetched.event_type,
            created_at: fetched.created_at,
            payload,
            headers: fetched.headers,
        };
        Some((event, large))
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
    async fn settle(
        &mut self,
        operation: Operation,
        delay: Duration,
        error: Option<String>,
    ) -> Option<Reply> {
        let progress = &mut self.progress;
        let moved = progress.cursor > progress.settled_cursor;
        let settlement = Settlement {
            lane_id: self.claimed.lane_id,
            session_id: self.claimed.session_id,
            version: progress.version,
            operation,
            changed: progress.changed,
            cursor: progress.cursor,
            cursor_day: progress.cursor_day,
            attempts: progress.attempts,
            crashes: progress.crashes,
            delay,
            error,
            history_from: (moved && self.route.subscription.history)
                .then_some(progress.settled_cursor + 1),
            outcomes: std::mem::take(&mut progress.outcomes),
        };
        let subscription_id = self.route.subscription.id;
        let (reply, settled) = oneshot::channel();
        let request = Request::Settle {
            settlement: Box::new(settlement),
            subscription_id,
            reply,
        };
        self.context.requests.send(request).ok()?;
        let reply = settled.await.ok()?;
        if reply.settled == Settled::Lost {
            tracing::warn!(
                subscription = %self.route.subscription.name, session = %self.session,
                "lane lost: somebody else settled it; what was delivered may be delivered again"
            );
            return Some(reply);
        }
        if progress.changed {
            progress.version += 1;
            progress.changed = false;
            progress.settled_cursor = progress.cursor;
        }
        self.settled_at = Instant::now();
        Some(reply)
    }
}

fn stop(operation: Operation, delay: Duration, error: Option<String>) -> Ending {
    Ending::Stop {
        operation,
        delay,
        error,
    }
}

/// Reads a payload through the pool: no lane connection waits for it.
pub(super) async fn read_large(
    pool: &deadpool_postgres::Pool,
    session_id: i64,
    event: &FetchedEvent,
) -> Option<String> {
    let client = match pool.get().await {
        Ok(client) => client,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "no connection for a large payload"
            );
            return None;
        }
    };
    match fetch::payload(&**client, session_id, event.seq, event.day).await {
        Ok(payload) => Some(payload),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                seq = event.seq,
                "large payload not read"
            );
            None
        }
    }
}
