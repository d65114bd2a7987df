//! Dead letters that an operator has delivered again, and what must come of them.
//!
//! Sources: `requeue_dead_letters`, `update_requeued` and `settle_requeued` in `migrations/functions/dead_letter`,
//! `Runner::letters` of `src/engine/delivering/adapter_lane/mod.rs`. Left out: `drop_dead_letter`, and a second dead letter of a lane.
//!
//! A lane reads its letter over another connection than the one that has its lock; the letter changes under that
//! lock only, so reading and delivering it are one step.

use crate::producer;
use crate::scenario::{Mutation, Scenario};
use crate::state::{Due, Hold, LANES, Lane, Received, State, Wish, seq_bit, up_to};
use crate::step::{Place, Step, Verdict};

/// A dead letter that its lane knows, a column of `dead` and one of `progress`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Letter {
    /// 0: there is none.
    pub seq: u8,
    /// The event behind which it is to come: `after_seq`.
    pub after: Option<u8>,
}

/// What a holder made of the letter and has not settled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Done {
    #[default]
    No,
    Redelivered,
    DeadAgain,
}

/// What the receiver may expect of the letter, whatever the database says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Expected {
    #[default]
    Nothing,
    /// Before everything that is new to the lane and behind this event; and not before that.
    Behind(u8),
    /// It was accepted: a fault may repeat it.
    Repeats,
    /// It was refused for good. Until something new has come it may be tried again.
    DeadAgain,
    /// Never, unless an operator asks again.
    Never,
}

/// Whether the letter is a hold's head.
pub fn is_faced(hold: &Hold) -> bool {
    hold.after.is_some_and(|after| after <= hold.cursor)
}

/// Whether a lane has a letter to deliver.
pub fn waits(row: &Lane) -> bool {
    row.letter.after.is_some()
}

pub fn steps(scenario: &Scenario, state: &State, steps: &mut Vec<Step>) {
    if state.budget.requeues == 0 {
        return;
    }
    for lane in 0..LANES {
        let row = &state.database.lanes[lane];
        let free = !state.lane_is_locked(lane) || scenario.lacks(Mutation::RequeueWithoutLaneLock);
        if free && row.letter.seq != 0 && !waits(row) && !row.parked {
            steps.push(Step::Requeue(lane, Place::Own));
            steps.push(Step::Requeue(lane, Place::End));
        }
    }
}

pub fn requeue(scenario: &Scenario, state: &mut State, lane: usize, place: Place) {
    state.budget.requeues -= 1;
    let newest = state.database.log[usize::from(scenario.sessions[lane])].newest();
    let row = &mut state.database.lanes[lane];
    let after = match place {
        Place::Own => row.letter.seq - 1,
        Place::End => newest.max(row.cursor),
    };
    row.letter.after = Some(after);
    row.version += 1;
    // It is in front: the lane starts anew with it.
    if after <= row.cursor {
        row.crashes = 0;
        row.waiting = false;
        if !scenario.lacks(Mutation::RequeueInsertsNoToken) {
            state.insert_token(lane, Due::Now, 0);
            producer::wake_all(state);
        }
    }
    if scenario.has_failovers() {
        state.durable = producer::on_disk(state);
    }
    state.received[lane].letter = Expected::Behind(after);
}

/// The adapter answers to the letter.
pub fn deliver(scenario: &Scenario, state: &mut State, w: usize, lane: usize, verdict: Verdict) {
    let seq = state.database.lanes[lane].letter.seq;
    arrive(state, lane, seq, verdict);
    let hold = &mut state.workers[w].holds[lane];
    hold.changed = true;
    match verdict {
        Verdict::Accept => hold.done = Done::Redelivered,
        Verdict::Exhaust => {
            hold.done = Done::DeadAgain;
            state.budget.exhaustions -= 1;
        }
        Verdict::Fail => {
            hold.wish = Wish::Retry;
            state.budget.failures -= 1;
        }
        // What is a dead letter already is not parked.
        Verdict::Park => {}
    }
    // It is off the lane's mind before it is off the books.
    if hold.done != Done::No && scenario.lacks(Mutation::SuccessorBeforeLetter) {
        hold.after = None;
    }
}

/// The letter reaches the destination.
fn arrive(state: &mut State, lane: usize, seq: u8, verdict: Verdict) {
    let received = &mut state.received[lane];
    let fault = state.happened.fault;
    let broken = &mut state.broken;
    match received.letter {
        Expected::Behind(after) => {
            // Everything up to there was tried, or is a dead letter: those were tried too.
            broken.letter |= up_to(after) & !received.tried != 0;
        }
        Expected::Repeats | Expected::DeadAgain => broken.letter |= !fault,
        Expected::Nothing | Expected::Never => broken.letter = true,
    }
    match verdict {
        Verdict::Accept => {
            received.accepted |= seq_bit(seq);
            received.letter = Expected::Repeats;
        }
        Verdict::Exhaust if received.letter != Expected::Repeats => {
            received.letter = Expected::DeadAgain;
        }
        _ => {}
    }
}

/// An event that is new to the lane arrives, while a letter may be expected.
pub fn is_passed_by(received: &mut Received, seq: u8) -> bool {
    match received.letter {
        Expected::Behind(after) => seq > after,
        Expected::DeadAgain => {
            received.letter = Expected::Never;
            false
        }
        Expected::Nothing | Expected::Repeats | Expected::Never => false,
    }
}

/// A settlement writes what became of the letter.
pub fn settle(row: &mut Lane, done: Done) {
    match done {
        Done::No => {}
        Done::Redelivered => {
            row.outcomes &= !seq_bit(row.letter.seq);
            row.letter = Letter::default();
        }
        Done::DeadAgain => row.letter.after = None,
    }
}
