//! A held lane's progress that is not settled yet, and what a verdict does to it (I3, I4, I12).
//!
//! No I/O: both kinds of lane, those that deliver through an adapter and those that run a handler in
//! a transaction, decide by these same rules.

use std::time::Duration;

use jiff::civil::Date;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::subscription::Exhaustion;
use lanekeeper_postgres::claim::ClaimedLane;
use lanekeeper_postgres::place::Place;
use lanekeeper_postgres::settle::{Operation, Outcome, OutcomeKind, Settlement};
use lanekeeper_postgres::subscription::Subscription;

use super::retry;

/// How long a subscription's lanes wait after its destination said 410 and paused it.
const GONE_DELAY: Duration = Duration::from_secs(1);
/// Crashes from which a head is suspect; `lanekeeper.claim` knows the same number.
const SUSPECT_AFTER: i32 = 2;

/// Why a lane is let go before its events are through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub operation: Operation,
    /// For [`Operation::Retry`].
    pub delay: Duration,
    pub error: Option<String>,
    /// The lane is to be claimed when the delay is over, not at somebody's next look.
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
            // A lane that an open append keeps busy has time; a head that failed has not.
            punctual: error.is_some(),
            error,
        }
    }

    /// Others have their turn, and then this lane again.
    pub fn turn_over() -> Self {
        Self {
            punctual: true,
            ..Self::new(Operation::Yield)
        }
    }

    /// Its turn comes then. Not an attempt: the destination never saw it.
    pub fn turn(after: Duration) -> Self {
        Self {
            punctual: true,
            ..Self::retry(after, None)
        }
    }
}

/// What a verdict on the head comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The cursor passed it.
    Passed,
    /// The head stays; the lane is let go.
    Stopped(Stop),
    /// As stopped, and the subscription is to be paused for this reason.
    Gone { reason: String, stop: Stop },
}

/// Where a lane stands.
#[derive(Clone, Debug)]
pub struct Progress {
    lane_id: i64,
    session_id: i64,
    pub version: i64,
    /// Where that version is: as it was claimed.
    place: Option<Place>,
    cursor: i64,
    cursor_day: Date,
    /// Failed attempts on the head.
    pub attempts: i32,
    /// Workers that died while they held the head.
    pub crashes: i32,
    changed: bool,
    settled_cursor: i64,
    outcomes: Vec<Outcome>,
    /// There are requeued dead letters; none comes before the first event behind this seq.
    requeued_after: Option<i64>,
    /// The head is this requeued dead letter.
    letter: Option<i64>,
}

impl Progress {
    pub fn of(lane: &ClaimedLane) -> Self {
        Self {
            lane_id: lane.lane_id,
            session_id: lane.session_id,
            version: lane.version,
            place: Some(lane.progress_place),
            cursor: lane.cursor,
            cursor_day: lane.cursor_day,
            attempts: lane.attempts,
            crashes: lane.crashes,
            changed: false,
            settled_cursor: lane.cursor,
            outcomes: Vec::new(),
            requeued_after: lane.requeued_after,
            letter: None,
        }
    }

    /// To be settled by its key only: on a connection that does not pin its plans, one by the place may be kept that
    /// reads the whole table.
    pub fn by_key(self) -> Self {
        Self {
            place: None,
            ..self
        }
    }

    /// The seq of the first event that is not settled, if there is one.
    pub fn next_seq(&self) -> i64 {
        self.cursor.saturating_add(1)
    }

    /// Whether a requeued dead letter may come before this event.
    pub fn is_requeued_before(&self, seq: i64) -> bool {
        self.requeued_after.is_some_and(|after| after < seq)
    }

    /// Whether there are requeued dead letters.
    pub fn has_requeued(&self) -> bool {
        self.requeued_after.is_some()
    }

    /// Where the first requeued dead letter is; `None`: there is none any more.
    pub fn requeued(&mut self, after: Option<i64>) {
        self.requeued_after = after;
    }

    /// The head is a requeued dead letter until it is passed.
    pub fn face(&mut self, dead_id: i64) {
        self.letter = Some(dead_id);
    }

    /// Whether the head is a requeued dead letter.
    pub fn faces_letter(&self) -> bool {
        self.letter.is_some()
    }

    /// The requeued dead letter that is the head.
    pub fn faced_letter(&self) -> Option<i64> {
        self.letter
    }

    /// The attempt that the next delivery of the head is, from 1.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.attempts).unwrap_or(0).saturating_add(1)
    }

    /// Whether the head has outlived so many workers that it is delivered alone. One is no ground
    /// for suspicion: a crash charges everything that the worker held, and that must go on at once.
    pub fn is_suspect(&self) -> bool {
        self.crashes >= SUSPECT_AFTER
    }

    /// The head is done: the cursor passes it, unless it is a dead letter, which is behind the cursor.
    pub fn pass(&mut self, seq: i64, day: Date) {
        if let Some(dead_id) = self.letter {
            let kind = OutcomeKind::Redelivered { dead_id };
            self.outcomes.push(Outcome { seq, kind });
        } else {
            self.cursor = seq;
            self.cursor_day = day;
        }
        self.next_head();
    }

    fn next_head(&mut self) {
        self.letter = None;
        self.attempts = 0;
        self.crashes = 0;
        self.changed = true;
    }

    /// The cursor passes the head, because a newer event goes instead.
    pub fn coalesce(&mut self, seq: i64, day: Date, replaced_by: i64) {
        self.outcomes.push(Outcome {
            seq,
            kind: OutcomeKind::Coalesced { replaced_by },
        });
        self.pass(seq, day);
    }

    /// What the destination made of the head. `random` is from 0 to 1, for jitter.
    pub fn judge(
        &mut self,
        seq: i64,
        day: Date,
        verdict: Verdict,
        subscription: &Subscription,
        random: impl FnOnce() -> f64,
    ) -> Judgement {
        match verdict {
            Verdict::Accepted => {
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
            // Its next step is a turn of its own.
            Verdict::Partial => Judgement::Stopped(Stop::turn_over()),
            Verdict::Throttled { reason, after, .. } => {
                self.changed = true;
                Judgement::Stopped(Stop::retry(after, Some(reason)))
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

    /// The head will not be tried again. A requeued dead letter is a dead letter again, whatever the
    /// subscription does with events: it was kept once, and the log may have it no more.
    pub fn exhaust(
        &mut self,
        seq: i64,
        day: Date,
        error: String,
        subscription: &Subscription,
    ) -> Judgement {
        tracing::warn!(
            subscription = %subscription.name, seq, attempts = self.attempts, crashes = self.crashes,
            policy = ?subscription.on_exhausted, error, "event exhausted"
        );
        if let Some(dead_id) = self.letter {
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
            Exhaustion::DeadLetter => OutcomeKind::DeadLettered {
                error,
                attempts: self.attempts,
                crashes: self.crashes,
            },
            Exhaustion::Drop => OutcomeKind::Dropped { error },
            Exhaustion::Park => {
                self.changed = true;
                let stop = Stop {
                    error: Some(error),
                    ..Stop::new(Operation::Park)
                };
                return Judgement::Stopped(stop);
            }
        };
        self.outcomes.push(Outcome { seq, kind });
        self.pass(seq, day);
        Judgement::Passed
    }

    fn fail(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
        self.crashes = 0;
        self.changed = true;
    }

    /// Whether the next event must wait for a settlement. An exhausted event that is not on record
    /// as such would come again after a lost connection, behind a successor that was accepted.
    pub fn must_settle(&self) -> bool {
        let coalesced = |outcome: &Outcome| matches!(outcome.kind, OutcomeKind::Coalesced { .. });
        !self.outcomes.iter().all(coalesced)
    }

    /// Whether a crash now would repeat what was delivered.
    pub fn is_unsettled(&self) -> bool {
        self.changed
    }

    /// What is to be written now. The outcomes go with it.
    pub fn settlement(&mut self, stop: Stop, history: bool) -> Settlement {
        let moved = self.cursor > self.settled_cursor;
        Settlement {
            lane_id: self.lane_id,
            session_id: self.session_id,
            version: self.version,
            progress_place: self.place,
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
        }
    }

    /// The settlement was written.
    pub fn settled(&mut self) {
        if self.changed {
            self.version += 1;
            self.place = None;
            self.changed = false;
            self.settled_cursor = self.cursor;
        }
    }
}
