//! What settlements and operators' actions do to a lane.

use lanekeeper_postgres::operate::Requeued;
use lanekeeper_postgres::settle::{Operation, Settled};

use super::holding::Shadow;
use super::{Letter, Model};
use crate::operation::Action;

/// Why an operator's action is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    Invalid,
    Busy,
}

impl Refusal {
    pub fn sqlstate(self) -> &'static str {
        match self {
            Self::Invalid => "LK006",
            Self::Busy => "LK007",
        }
    }
}

impl Model {
    /// Writes what a holder settles, if nobody else has settled the lane.
    pub fn settle(&mut self, shadow: &mut Shadow, operation: Operation, delay_ms: i64) -> Settled {
        let at = shadow.lane;
        if shadow.changed && self.lanes[at].version != shadow.version {
            return Settled::Lost;
        }
        let now = self.now;
        if shadow.changed {
            self.write(shadow, operation, delay_ms);
        }
        let lane = &mut self.lanes[at];
        let result = match operation {
            Operation::Finish => {
                let waits = shadow.changed && lane.requeued_after().is_some();
                if waits || self.has_newer(at, shadow.cursor) {
                    Settled::More
                } else if self.append_lock_is_held(Self::session_of(at)) {
                    Settled::Busy
                } else {
                    self.lanes[at].due = None;
                    Settled::Idle
                }
            }
            // No subscription here requires acknowledgements; such a lane is due at its time-out.
            Operation::Retry | Operation::Await => {
                lane.due = Some(now + delay_ms);
                Settled::Done
            }
            Operation::Yield => {
                lane.due = Some(now);
                Settled::Done
            }
            Operation::Park => {
                lane.due = None;
                Settled::Done
            }
            Operation::Discard => {
                // The lane's own entry is elsewhere: with whoever unparks it, or due when the head is.
                lane.due = lane
                    .due
                    .map(|due| lane.retry_at.map_or(due, |at| due.max(at)));
                Settled::Done
            }
            Operation::Keep | Operation::Release => Settled::Done,
        };
        if shadow.changed {
            shadow.version += 1;
            shadow.changed = false;
            shadow.unsettled.clear();
        }
        result
    }

    fn write(&mut self, shadow: &mut Shadow, operation: Operation, delay_ms: i64) {
        let now = self.now;
        let lane = &mut self.lanes[shadow.lane];
        lane.take_step();
        lane.cursor = shadow.cursor;
        lane.attempts = shadow.attempts;
        lane.crashes = shadow.crashes;
        lane.retry_at = (operation == Operation::Retry).then_some(now + delay_ms);
        lane.parked = operation == Operation::Park;
        lane.filtered.append(&mut shadow.filtered);
        for seq in &shadow.unsettled {
            lane.repeatable.remove(seq);
        }
        for (seq, kind) in shadow.outcomes.drain(..) {
            let died = shadow
                .died
                .iter()
                .find(|(other, ..)| *other == seq)
                .copied();
            let (attempts, crashes) =
                died.map_or((0, 0), |(_, attempts, crashes)| (attempts, crashes));
            let letter = lane.letters.iter_mut().find(|letter| letter.seq == seq);
            match (kind, letter) {
                ("redelivered", Some(letter)) => {
                    letter.after = None;
                    letter.resolution = Some("requeued");
                    lane.outcomes.remove(&seq);
                }
                ("dead_lettered_again", Some(letter)) => {
                    (letter.after, letter.attempts, letter.crashes) = (None, attempts, crashes);
                }
                _ => {
                    lane.outcomes.insert(seq, kind);
                    if kind == "dead_lettered" {
                        let (dead_id, after, resolution) = (0, None, None);
                        lane.letters.push(Letter {
                            dead_id,
                            seq,
                            attempts,
                            crashes,
                            after,
                            resolution,
                        });
                    }
                }
            }
        }
        shadow.died.clear();
    }

    /// An operator's action on a lane; its new state.
    pub fn operate(&mut self, at: usize, action: Action) -> Result<&'static str, Refusal> {
        if self.lanes[at].holder.is_some() {
            return Err(Refusal::Busy);
        }
        let front = self.front(at);
        let lane = &mut self.lanes[at];
        match (action, front) {
            (Action::Park, _) => {
                lane.parked = true;
                self.written(at, false);
                return Ok("parked");
            }
            (Action::Skip, None) => return Err(Refusal::Invalid),
            (Action::Skip, Some((_, Some(dead_id)))) => {
                let letter = lane
                    .letters
                    .iter_mut()
                    .find(|letter| letter.dead_id == dead_id);
                letter.expect("the front is one of them").after = None;
            }
            (Action::Skip, Some((seq, None))) => {
                lane.outcomes.insert(seq, "skipped");
                // What lies between is outside the filter.
                lane.filtered.extend(lane.cursor + 1..seq);
                lane.cursor = seq;
            }
            (Action::Retry | Action::Unpark, _) => {}
        }
        lane.parked = false;
        lane.attempts = 0;
        lane.crashes = 0;
        self.written(at, true);
        Ok("ready")
    }

    pub fn requeue(&mut self, at: usize, dead_id: i64, at_end: bool) -> Result<Requeued, Refusal> {
        if self.lanes[at].holder.is_some() {
            return Err(Refusal::Busy);
        }
        if self.lanes[at].parked {
            return Err(Refusal::Invalid);
        }
        let front = self.front(at);
        let newest = self.newest(at);
        let letter = self.lanes[at]
            .letters
            .iter_mut()
            .find(|letter| letter.dead_id == dead_id);
        let letter = letter.expect("the caller has it from there");
        if letter.resolution.is_some() {
            return Ok(Requeued::Resolved);
        }
        if letter.after.is_some() {
            return Ok(Requeued::Before);
        }
        letter.after = Some(if at_end { newest } else { letter.seq - 1 });
        self.replaced(at, front);
        Ok(Requeued::Requeued)
    }

    /// False where it was dealt with before.
    pub fn drop_letter(&mut self, at: usize, dead_id: i64) -> Result<bool, Refusal> {
        let front = self.front(at);
        let held = self.lanes[at].holder.is_some();
        let letter = self.lanes[at]
            .letters
            .iter_mut()
            .find(|letter| letter.dead_id == dead_id);
        let letter = letter.expect("the caller has it from there");
        if letter.resolution.is_some() {
            return Ok(false);
        }
        let requeued = letter.after.is_some();
        if requeued && held {
            return Err(Refusal::Busy);
        }
        letter.after = None;
        letter.resolution = Some("dropped");
        if requeued {
            self.replaced(at, front);
        }
        Ok(true)
    }

    fn newest(&self, at: usize) -> i64 {
        let log = &self.sessions[Self::session_of(at)].log;
        let newest = log
            .iter()
            .rposition(|entry| !entry.gone)
            .map_or(0, |place| place as i64 + 1);
        newest.max(self.lanes[at].cursor)
    }

    /// Other letters are requeued than before: whatever is in front now begins anew.
    fn replaced(&mut self, at: usize, front: Option<(i64, Option<i64>)>) {
        let changed = self.front(at) != front;
        let lane = &mut self.lanes[at];
        lane.begin_version();
        if changed {
            (lane.attempts, lane.crashes, lane.retry_at) = (0, 0, None);
            lane.wake(self.now);
        }
    }
}
