//! A lane's progress while it is held: what a verdict does to it, and what is settled. No I/O.
//!
//! # Requeued dead letters
//!
//! An operator has a dead letter delivered again, at its place or at the end. It is not appended again: its seq
//! stays, and other subscriptions are not affected. So a lane has a second source of heads beside the log.
//!
//! - **The row in `dead` says where.** `after_seq` is the seq behind which the requeued dead letter comes: its own
//!   seq less one for its place, the session's newest seq for the end. Several are ordered by `after_seq`, then by
//!   seq.
//! - **`progress.requeued_after` is the smallest of them**, and NULL in all other lanes. A claim reads it with
//!   progress, and a settlement carries it over, so a lane without requeued dead letters pays for a NULL column. An
//!   array in `progress` would be copied by every settlement.
//! - **The lane delivers it as its head** before the first event behind `after_seq`, or when the log has nothing
//!   more: one at a time, read from `dead`, retried and charged like any head, with the same counters. The head
//!   that it displaces begins anew. A lane with requeued dead letters is not settled idle; it yields and is fetched
//!   anew.
//! - **Its settlement records the result**: resolved, and the event's outcome is deleted, since it is delivered
//!   now; or a dead letter again, flushed like a new one. In the same transaction `requeued_after` moves to the
//!   next. For handlers that is the handler's transaction.
//! - **Requeueing, dropping and skipping take the lane's lock.** So what a holder knows stays true, and progress
//!   has one writer at a time. A parked lane and a removed subscription are refused: nothing would happen that the
//!   operator can see.
//! - **Retention:** unresolved dead letters stay, and a session that has any keeps its lanes.
//!
//! A replay is a third source: see `replaying`.

mod replaying;

use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::subscription::Exhaustion;
use lanekeeper_postgres::claim::{Awaiting, ClaimedLane};
use lanekeeper_postgres::ctid::Ctid;
use lanekeeper_postgres::fetch::Position;
use lanekeeper_postgres::settle::{Acks, Operation, Outcome, OutcomeKind, Settlement};
use lanekeeper_postgres::subscription::Subscription;
use lanekeeper_postgres::surplus::Surplus;
use uuid::Uuid;

use self::replaying::Replaying;
use crate::delivering::retry;

/// How long a subscription's lanes wait after its destination answered 410 and the subscription was paused.
const GONE_DELAY: Duration = Duration::from_secs(1);
/// How long a lane waits on average after a delivery that the worker could not send.
const NOT_SENT_DELAY: Duration = Duration::from_secs(1);
/// From so many crash charges on, a head is a suspected poison event. `lanekeeper.claim` uses the same number.
const SUSPECTED_POISON_AFTER: i32 = 2;

/// Why a lane stops before it has delivered all its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub operation: Operation,
    /// For [`Operation::Retry`].
    pub delay: Duration,
    pub error: Option<String>,
    /// Whether this worker scans when the delay is over, and does not wait for its next scan.
    pub punctual: bool,
}

impl Stop {
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            delay: Duration::ZERO,
            error: None,
            punctual: false,
        }
    }

    pub fn retry(delay: Duration, error: Option<String>) -> Self {
        Self {
            operation: Operation::Retry,
            delay,
            // A lane that an open append keeps busy is not urgent; a failed head is.
            punctual: error.is_some(),
            error,
        }
    }

    /// Other lanes go first, and then this one again.
    pub fn yields() -> Self {
        Self {
            punctual: true,
            ..Self::new(Operation::Yield)
        }
    }

    /// The lane waits for acknowledgements, at most for so long.
    pub fn awaits(left: Duration) -> Self {
        Self {
            delay: left,
            ..Self::new(Operation::Await)
        }
    }

    /// The lane is due at its reservation. Not an attempt: the destination never saw the event.
    pub fn at_reservation(after: Duration) -> Self {
        Self {
            punctual: true,
            ..Self::retry(after, None)
        }
    }
}

/// The result of a verdict on the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The cursor passed it.
    Passed,
    /// It was sent, and waits for its acknowledgement.
    Sent,
    /// The head stays; the lane is released.
    Stopped(Stop),
    /// As `Stopped`, and the subscription must be paused for this reason.
    Gone { reason: String, stop: Stop },
}

/// A lane's progress.
#[derive(Clone, Debug)]
pub struct Progress {
    lane_id: i64,
    session_id: i64,
    /// For log lines only, as the head's message id.
    session: Arc<str>,
    head: Uuid,
    pub version: i64,
    /// The ctid of that version when it was claimed.
    ctid: Option<Ctid>,
    cursor: i64,
    cursor_day: Date,
    /// Failed attempts on the head.
    pub attempts: i32,
    /// Workers that died while they held the head.
    pub crashes: i32,
    changed: bool,
    settled_cursor: i64,
    outcomes: Vec<Outcome>,
    /// The lane has requeued dead letters; none comes before the first event behind this seq.
    requeued_after: Option<i64>,
    /// The head is this requeued dead letter.
    dead_letter: Option<i64>,
    /// The head is an event of a replay.
    replaying: Option<Replaying>,
    /// Where the subscription requires acknowledgements.
    acks: Option<AckProgress>,
}

/// What was sent and is not acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct AckProgress {
    /// Events up to this seq were sent, as far as they are not acknowledged.
    sent: Option<i64>,
    /// The wait in which the lane was claimed.
    claimed: Option<Awaiting>,
}

impl Progress {
    pub fn of(lane: &ClaimedLane) -> Self {
        Self {
            lane_id: lane.lane_id,
            session_id: lane.session_id,
            session: Arc::clone(&lane.session),
            head: Uuid::nil(),
            version: lane.version,
            ctid: Some(lane.progress_ctid),
            cursor: lane.cursor,
            cursor_day: lane.cursor_day,
            attempts: lane.attempts,
            crashes: lane.crashes,
            changed: false,
            settled_cursor: lane.cursor,
            outcomes: Vec::new(),
            requeued_after: lane.requeued_after,
            dead_letter: None,
            replaying: None,
            acks: None,
        }
    }

    /// Makes it the progress of a lane whose subscription requires acknowledgements.
    #[must_use]
    pub fn requiring_acks(self, awaiting: Option<Awaiting>) -> Self {
        let acks = Some(AckProgress {
            sent: awaiting.map(|awaiting| awaiting.sent),
            claimed: awaiting,
        });
        Self { acks, ..self }
    }

    pub fn requires_acks(&self) -> bool {
        self.acks.is_some()
    }

    /// Whether this event was sent and its acknowledgement is awaited.
    pub fn is_sent(&self, seq: i64) -> bool {
        self.sent().is_some_and(|sent| seq <= sent)
    }

    /// Whether some event behind the cursor was sent.
    pub fn awaits_acks(&self) -> bool {
        self.sent().is_some_and(|sent| sent > self.cursor)
    }

    fn sent(&self) -> Option<i64> {
        self.acks.and_then(|acks| acks.sent)
    }

    /// This event was sent; earlier ones may wait for their acknowledgements.
    pub fn send(&mut self, seq: i64) {
        if let Some(acks) = &mut self.acks {
            acks.sent = acks.sent.max(Some(seq));
            self.changed = true;
        }
    }

    /// The head was not acknowledged in time: an attempt failed, and everything from it on is sent again. `None`: send it.
    pub fn time_out(
        &mut self,
        seq: i64,
        day: Date,
        subscription: &Subscription,
    ) -> Option<Judgement> {
        self.fail();
        if let Some(acks) = &mut self.acks {
            acks.sent = None;
        }
        let attempts = u32::try_from(self.attempts).unwrap_or(u32::MAX);
        (subscription.max_attempts > 0 && attempts >= subscription.max_attempts).then(|| {
            let error = format!("not acknowledged within {:?}", subscription.ack_timeout);
            self.exhaust(seq, day, error, subscription)
        })
    }

    /// Makes settlements find the row by its key only. A connection that does not pin its plans might keep one by ctid
    /// that reads the whole table.
    pub fn by_key(self) -> Self {
        Self { ctid: None, ..self }
    }

    /// The seq of the first event that is not settled, if there is one.
    pub fn next_seq(&self) -> i64 {
        self.cursor.saturating_add(1)
    }

    /// Whether a requeued dead letter, or a replay, may come before this event.
    pub fn is_requeued_before(&self, seq: i64) -> bool {
        self.replaying.is_none() && self.requeued_after.is_some_and(|after| after < seq)
    }

    /// Whether there are requeued dead letters, or a replay.
    pub fn has_requeued(&self) -> bool {
        self.requeued_after.is_some()
    }

    /// Sets where the first requeued dead letter is; `None` if there is none any more.
    pub fn set_requeued_after(&mut self, after: Option<i64>) {
        self.requeued_after = after;
    }

    /// Names the event that is tried next.
    pub fn begin_head(&mut self, message_id: Uuid) {
        self.head = message_id;
    }

    /// The event that was tried last.
    pub fn head(&self) -> Uuid {
        self.head
    }

    /// What the next settlement records.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Makes this requeued dead letter the head until it is passed.
    pub fn begin_dead_letter(&mut self, dead_id: i64) {
        self.dead_letter = Some(dead_id);
    }

    /// Whether the head is a requeued dead letter.
    pub fn head_is_dead_letter(&self) -> bool {
        self.dead_letter.is_some()
    }

    /// The requeued dead letter that is the head.
    pub fn head_dead_letter(&self) -> Option<i64> {
        self.dead_letter
    }

    /// Whether the head is behind the cursor: a requeued dead letter, or an event of a replay.
    pub fn head_is_behind(&self) -> bool {
        self.dead_letter.is_some() || self.replaying.is_some()
    }

    /// The attempt that the next delivery of the head is, from 1.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.attempts).unwrap_or(0).saturating_add(1)
    }

    /// Whether the head was charged so many crashes that it is delivered alone. One charge is no ground for suspicion:
    /// a crash charges everything that the worker held, and that must continue at once.
    pub fn is_suspected_poison(&self) -> bool {
        self.crashes >= SUSPECTED_POISON_AFTER
    }

    /// The head is done: the cursor passes it, unless it is a dead letter or an event of a replay, which are behind the
    /// cursor.
    pub fn pass(&mut self, seq: i64, day: Date) {
        if let Some(dead_id) = self.dead_letter {
            let kind = OutcomeKind::Redelivered { dead_id };
            self.outcomes.push(Outcome { seq, kind });
        } else if let Some(replaying) = &mut self.replaying {
            replaying.pass(seq);
        } else {
            self.cursor = seq;
            self.cursor_day = day;
        }
        self.next_head();
    }

    fn next_head(&mut self) {
        self.dead_letter = None;
        self.attempts = 0;
        self.crashes = 0;
        self.changed = true;
    }

    /// The cursor passes the head, because a newer event is delivered instead.
    pub fn coalesce(&mut self, seq: i64, day: Date, replaced_by: i64) {
        self.outcomes.push(Outcome {
            seq,
            kind: OutcomeKind::Coalesced { replaced_by },
        });
        self.pass(seq, day);
    }

    /// Where its next events are.
    pub fn position(&self, subscription_id: i32) -> Position {
        Position {
            session_id: self.session_id,
            cursor: self.cursor,
            cursor_day: self.cursor_day,
            subscription_id,
        }
    }

    /// The cursor passes what the lane leaves out; returns whether that is anything.
    pub fn leave_out(&mut self, surplus: &Surplus, subscription: &Subscription) -> bool {
        let last = surplus.dropped.or(surplus.expired);
        let (Some((_, cursor)), Some(day)) = (last, surplus.day) else {
            return false;
        };
        if let Some((seq, to_seq)) = surplus.expired {
            let limit = subscription.max_age.unwrap_or_default();
            let error = format!("older than max_age, which is {limit:?}");
            let kind = OutcomeKind::Expired { to_seq, error };
            self.outcomes.push(Outcome { seq, kind });
        }
        if let Some((seq, to_seq)) = surplus.dropped {
            let most = subscription.pending.max_pending.unwrap_or_default();
            let error = format!("the oldest of more than max_pending events, which is {most}");
            let kind = OutcomeKind::DroppedOldest { to_seq, error };
            self.outcomes.push(Outcome { seq, kind });
        }
        self.cursor = cursor;
        self.cursor_day = day;
        self.next_head();
        true
    }

    /// The cursor passes the head, because it was cancelled.
    pub fn cancel(&mut self, seq: i64, day: Date) {
        if self.replaying.is_some() {
            // It was settled once. It is not delivered again.
            self.replay_to(seq);
            self.next_head();
            return;
        }
        let kind = OutcomeKind::Cancelled;
        self.outcomes.push(Outcome { seq, kind });
        self.pass(seq, day);
    }

    /// Applies the destination's verdict on the head. `random` is from 0 to 1, for jitter.
    pub fn judge(
        &mut self,
        seq: i64,
        day: Date,
        verdict: Verdict,
        subscription: &Subscription,
        random: impl FnOnce() -> f64,
    ) -> Judgement {
        match verdict {
            // What is behind the cursor waits for nothing.
            Verdict::Sent if self.acks.is_some() && !self.head_is_behind() => {
                self.crashes = 0;
                self.send(seq);
                Judgement::Sent
            }
            Verdict::Accepted | Verdict::Sent => {
                self.pass(seq, day);
                Judgement::Passed
            }
            Verdict::Rejected { error } => {
                self.fail();
                self.exhaust(seq, day, error, subscription)
            }
            Verdict::Retry { error, after } => {
                self.fail();
                let attempts = u32::try_from(self.attempts).unwrap_or(u32::MAX);
                if subscription.max_attempts > 0 && attempts >= subscription.max_attempts {
                    return self.exhaust(seq, day, error, subscription);
                }
                let delay = after.unwrap_or_else(|| {
                    retry::delay(&subscription.retry_schedule, attempts, random())
                });
                Judgement::Stopped(Stop::retry(delay, Some(error)))
            }
            // The next part is delivered in a later holding.
            Verdict::Partial => Judgement::Stopped(Stop::yields()),
            Verdict::Throttled { reason, after, .. } => {
                self.changed = true;
                Judgement::Stopped(Stop::retry(after, Some(reason)))
            }
            Verdict::NotSent { reason } => {
                self.changed = true;
                // Apart from one another: what the worker lacks is what its other lanes use.
                let delay = NOT_SENT_DELAY.mul_f64(0.5 + random());
                Judgement::Stopped(Stop::retry(delay, Some(reason)))
            }
            Verdict::Gone { error } => {
                self.changed = true;
                let stop = Stop::retry(GONE_DELAY, Some(error.clone()));
                Judgement::Gone {
                    reason: error,
                    stop,
                }
            }
        }
    }

    /// Exhausts the head if it was charged `max_crashes` crashes: whatever delivers it seems to die of it.
    pub fn exhaust_if_crashed(
        &mut self,
        max_crashes: i32,
        seq: i64,
        day: Date,
        subscription: &Subscription,
    ) -> Option<Judgement> {
        let crashes = self.crashes;
        (crashes >= max_crashes).then(|| {
            let error = format!("{crashes} workers died while they held this event");
            self.exhaust(seq, day, error, subscription)
        })
    }

    /// The head is not tried again. A requeued dead letter becomes a dead letter again, whatever the subscription's
    /// policy: it was kept once, and the log may no longer have it.
    pub fn exhaust(
        &mut self,
        seq: i64,
        day: Date,
        error: String,
        subscription: &Subscription,
    ) -> Judgement {
        tracing::warn!(
            stream = %subscription.stream, subscription = %subscription.name, session = %self.session,
            lane_id = self.lane_id, seq, message_id = %self.head, attempts = self.attempts, crashes = self.crashes,
            policy = ?subscription.on_exhausted, error, "event exhausted"
        );
        if let Some(dead_id) = self.dead_letter {
            let kind = OutcomeKind::DeadLetteredAgain {
                dead_id,
                error,
                attempts: self.attempts,
                crashes: self.crashes,
            };
            self.outcomes.push(Outcome { seq, kind });
            self.next_head();
            return Judgement::Passed;
        }
        let kind = match subscription.on_exhausted {
            Exhaustion::Drop => OutcomeKind::Dropped { error },
            // A lane is not parked for a head that goes away when its replay is paused or cancelled.
            Exhaustion::Park if self.replaying.is_none() => {
                self.changed = true;
                let stop = Stop {
                    error: Some(error),
                    ..Stop::new(Operation::Park)
                };
                return Judgement::Stopped(stop);
            }
            Exhaustion::DeadLetter | Exhaustion::Park => OutcomeKind::DeadLettered {
                error,
                attempts: self.attempts,
                crashes: self.crashes,
            },
        };
        self.outcomes.push(Outcome { seq, kind });
        self.pass(seq, day);
        if let Some(replaying) = &mut self.replaying {
            replaying.was_exhausted();
        }
        Judgement::Passed
    }

    fn fail(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
        self.crashes = 0;
        self.changed = true;
    }

    /// Whether a settlement must be written before the next event. An exhausted event without a recorded outcome would
    /// be delivered again after a lost connection, behind a successor that was accepted.
    pub fn must_settle(&self) -> bool {
        let coalesced = |outcome: &Outcome| matches!(outcome.kind, OutcomeKind::Coalesced { .. });
        !self.outcomes.iter().all(coalesced)
    }

    /// Whether a crash now would repeat deliveries.
    pub fn is_unsettled(&self) -> bool {
        self.changed
    }

    /// The settlement to write now, with the outcomes so far.
    pub fn settlement(&mut self, stop: Stop, history: bool) -> Settlement {
        let moved = self.cursor > self.settled_cursor;
        let replayed = self.replaying.as_mut().and_then(Replaying::outcome);
        self.outcomes.extend(replayed);
        Settlement {
            lane_id: self.lane_id,
            session_id: self.session_id,
            version: self.version,
            progress_ctid: self.ctid,
            operation: stop.operation,
            changed: self.changed,
            cursor: self.cursor,
            cursor_day: self.cursor_day,
            attempts: self.attempts,
            crashes: self.crashes,
            delay: stop.delay,
            error: stop.error,
            history_from: (moved && history).then_some(self.settled_cursor + 1),
            outcomes: std::mem::take(&mut self.outcomes),
            acks: self.acks.map(|acks| Acks {
                sent: acks.sent.filter(|sent| *sent > self.cursor),
                wait_ended: acks.claimed.map(|awaiting| awaiting.due_at),
            }),
        }
    }

    /// The settlement was written.
    pub fn settled(&mut self) {
        if self.changed {
            self.version += 1;
            self.ctid = None;
            self.changed = false;
            self.settled_cursor = self.cursor;
        }
    }
}
