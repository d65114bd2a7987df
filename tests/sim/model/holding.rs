//! A held lane as the model has it: what its holder would settle, by rules of the model's own.

use std::collections::BTreeSet;

use super::{Lane, MAX_ATTEMPTS, Model, SCHEDULE_MS};
use crate::operation::{Answer, POLICIES};

pub const MAX_CRASHES: i32 = 3;

#[derive(Clone, Debug)]
pub struct Shadow {
    pub lane: usize,
    pub version: i64,
    pub cursor: i64,
    pub attempts: i32,
    pub crashes: i32,
    pub changed: bool,
    pub outcomes: Vec<(i64, &'static str)>,
    /// Attempts and crashes of what is to become a dead letter.
    pub died: Vec<(i64, i32, i32)>,
    /// The head is this dead letter.
    pub letter: Option<i64>,
    /// Accepted since the last settlement.
    pub unsettled: BTreeSet<i64>,
    /// Passed as outside the filter since then.
    pub filtered: BTreeSet<i64>,
}

/// What an answer comes to, as far as the lane is concerned.
#[derive(Clone, Debug, PartialEq)]
pub enum Judged {
    Passed,
    Retry { delay_ms: i64, pauses: bool },
    Parked,
}

impl Shadow {
    pub fn of(at: usize, lane: &Lane) -> Self {
        Self {
            lane: at,
            version: lane.version,
            cursor: lane.cursor,
            attempts: lane.attempts,
            crashes: lane.crashes,
            changed: false,
            outcomes: Vec::new(),
            died: Vec::new(),
            letter: None,
            unsettled: BTreeSet::new(),
            filtered: BTreeSet::new(),
        }
    }

    pub fn judge(
        &mut self,
        seq: i64,
        answer: Answer,
        subscription: usize,
        policy: usize,
    ) -> Judged {
        self.changed = true;
        match answer {
            Answer::Accepted => {
                self.outcomes
                    .extend(self.letter.map(|_| (seq, "redelivered")));
                self.unsettled.insert(seq);
                self.pass(seq);
                Judged::Passed
            }
            Answer::Retry | Answer::RetryAfter(_) => {
                self.attempts += 1;
                self.crashes = 0;
                if MAX_ATTEMPTS[subscription] > 0 && self.attempts >= MAX_ATTEMPTS[subscription] {
                    return self.exhaust(seq, policy);
                }
                let last = SCHEDULE_MS.len() - 1;
                let delay_ms = match answer {
                    Answer::RetryAfter(ms) => ms as i64,
                    _ => SCHEDULE_MS[(self.attempts as usize - 1).min(last)],
                };
                Judged::Retry {
                    delay_ms,
                    pauses: false,
                }
            }
            Answer::Throttled(ms) => Judged::Retry {
                delay_ms: ms as i64,
                pauses: false,
            },
            Answer::Gone => Judged::Retry {
                delay_ms: 1_000,
                pauses: true,
            },
            Answer::Rejected => {
                self.attempts += 1;
                self.crashes = 0;
                self.exhaust(seq, policy)
            }
        }
    }

    pub fn exhaust(&mut self, seq: i64, policy: usize) -> Judged {
        self.changed = true;
        let kind = match (self.letter, POLICIES[policy]) {
            (Some(_), _) => "dead_lettered_again",
            (None, "park") => return Judged::Parked,
            (None, "drop") => "dropped",
            (None, _) => "dead_lettered",
        };
        if kind != "dropped" {
            self.died.push((seq, self.attempts, self.crashes));
        }
        self.outcomes.push((seq, kind));
        self.pass(seq);
        Judged::Passed
    }

    pub fn coalesce(&mut self, seq: i64) {
        self.outcomes.push((seq, "coalesced"));
        self.pass(seq);
    }

    pub fn leave_out(&mut self, seq: i64) {
        self.filtered.insert(seq);
        self.pass(seq);
    }

    fn pass(&mut self, seq: i64) {
        if self.letter.take().is_none() {
            self.cursor = seq;
        }
        self.attempts = 0;
        self.crashes = 0;
        self.changed = true;
    }
}

impl Model {
    /// The destination accepted an event. Nothing comes twice without a cause, and first in order.
    pub fn accepted(&mut self, lane: usize, seq: i64, letter: bool) -> Result<(), String> {
        let lane = &mut self.lanes[lane];
        if letter {
            if !lane.redelivered.insert(seq) && !lane.repeatable.contains(&seq) {
                return Err(format!(
                    "dead letter {seq} was accepted twice without a cause"
                ));
            }
            return Ok(());
        }
        if lane.accepted.contains(&seq) {
            if lane.repeatable.contains(&seq) {
                return Ok(());
            }
            return Err(format!("{seq} was accepted twice without a cause"));
        }
        if let Some(last) = lane.accepted.iter().max().filter(|last| **last > seq) {
            return Err(format!("{seq} was first accepted behind {last}"));
        }
        lane.accepted.push(seq);
        Ok(())
    }

    /// What a holder had not settled may come again.
    pub fn forget(&mut self, shadow: &Shadow) {
        self.lanes[shadow.lane].repeatable.extend(&shadow.unsettled);
    }
}
