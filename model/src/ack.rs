//! Lanes whose subscription requires acknowledgements, with a window of one event.
//!
//! Sources: `src/engine/delivering/adapter_lane/acknowledged.rs`, `migrations/functions/ack/ack_many.sql`,
//! `migrations/functions/ack/settle_sent.sql`. Left out: larger windows, exhaustion at the last attempt.
//!
//! What was sent is in flight until the settlement that marks it: a worker that dies in between sends it again.

use crate::producer;
use crate::scenario::{Mutation, Scenario};
use crate::state::{Due, Hold, LANES, Lane, State, Token, Wish, bit, seq_bit, up_to};
use crate::step::Step;

pub fn steps(scenario: &Scenario, state: &State, steps: &mut Vec<Step>) {
    if !scenario.acks {
        return;
    }
    for lane in 0..LANES {
        if acknowledgeable(state, lane).is_some() {
            steps.push(Step::Acknowledge(lane));
        }
        let row = &state.database.lanes[lane];
        let waits = row.tokens.iter().any(|token| token.due == Due::Wait);
        if waits && state.budget.time_outs > 0 {
            steps.push(Step::WaitOver(lane));
        }
    }
}

/// What a held lane does with its head. The caller has seen that there is one.
pub fn running(state: &State, w: usize, lane: usize, steps: &mut Vec<Step>) {
    let hold = &state.workers[w].holds[lane];
    let head = hold.cursor + 1;
    if hold.acked & seq_bit(head) != 0 {
        steps.push(Step::PassAcked(w, lane));
    } else if hold.sent < head {
        steps.push(Step::Send(w, lane));
    } else if hold.waited {
        steps.push(Step::SendAgain(w, lane));
    } else {
        steps.push(Step::Await(w, lane));
    }
}

/// The first message that arrived, and that its lane still waits for or has not marked.
fn acknowledgeable(state: &State, lane: usize) -> Option<u8> {
    let row = &state.database.lanes[lane];
    let open = state.received[lane].tried & !row.acked & !row.outcomes & !up_to(row.cursor);
    (1..=8).find(|seq| open & seq_bit(*seq) != 0)
}

/// `lanekeeper.ack_many`: the message's row, and a ready entry.
pub fn acknowledge(scenario: &Scenario, state: &mut State, lane: usize) {
    let Some(seq) = acknowledgeable(state, lane) else {
        return;
    };
    state.database.lanes[lane].acked |= seq_bit(seq);
    state.received[lane].accepted |= seq_bit(seq);
    if !scenario.lacks(Mutation::AckInsertsNoToken) {
        state.insert_token(lane, Due::Now, 0);
        producer::wake_all(state);
    }
}

/// `ack_due_at` has passed.
pub fn wait_over(state: &mut State, lane: usize) {
    state.budget.time_outs -= 1;
    let row = &mut state.database.lanes[lane];
    row.waited = true;
    for token in &mut row.tokens {
        if token.due == Due::Wait {
            token.due = Due::Now;
        }
    }
}

pub fn pass_acked(state: &mut State, w: usize, lane: usize) {
    let hold = &mut state.workers[w].holds[lane];
    hold.cursor += 1;
    hold.changed = true;
}

/// The head was not acknowledged in time: with it everything behind it is sent again.
pub fn send_again(state: &mut State, w: usize, lane: usize) {
    state.happened.timed_out |= bit(lane);
    let hold = &mut state.workers[w].holds[lane];
    hold.sent = 0;
    hold.waited = false;
    hold.changed = true;
}

/// `Runner::send_once`: the message is entered, unless it is acknowledged by now, and sent.
pub fn send(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    let seq = state.workers[w].holds[lane].cursor + 1;
    if state.database.lanes[lane].acked & seq_bit(seq) != 0 {
        pass_acked(state, w, lane);
        return;
    }
    if scenario.lacks(Mutation::MarkedBeforeSent) {
        let row = &mut state.database.lanes[lane];
        row.sent = seq;
        row.version += 1;
        state.workers[w].holds[lane].version = row.version;
    } else {
        arrive(state, lane, seq);
    }
    let hold = &mut state.workers[w].holds[lane];
    hold.unsent = scenario.lacks(Mutation::MarkedBeforeSent);
    hold.changed = !hold.unsent;
    if scenario.lacks(Mutation::SentCountsAsAcknowledged) {
        hold.cursor = seq;
    } else {
        hold.sent = seq;
        hold.wish = Wish::Await;
    }
}

fn arrive(state: &mut State, lane: usize, seq: u8) {
    let outcomes = state.database.lanes[lane].outcomes;
    let received = &mut state.received[lane];
    let broken = &mut state.broken;
    let before = up_to(seq - 1);
    // Whatever comes before it was acknowledged or has an outcome.
    broken.order |= before & !(received.accepted | outcomes) != 0;
    if received.tried & seq_bit(seq) == 0 {
        broken.order |= received.tried & !up_to(seq) != 0;
    } else {
        // A holder whose lane was passed under it may have sent what it could not mark any more.
        let happened = &state.happened;
        let excused = happened.fault || (happened.timed_out | happened.passed) & bit(lane) != 0;
        broken.sent_again |= !excused;
    }
    received.tried |= seq_bit(seq);
    received.last = seq;
}

/// Within a settlement: what is written of the wait, and the entries of waits that ended.
pub fn settle(row: &mut Lane, hold: &Hold) {
    row.sent = if hold.sent > hold.cursor {
        hold.sent
    } else {
        0
    };
    if row.sent == 0 || hold.wish == Wish::Await {
        row.waited = false;
        for token in &mut row.tokens {
            if token.due == Due::Wait {
                *token = Token::default();
            }
        }
    }
}

/// The settlement of a lane that waits. With the mutation, only now is the message sent.
pub fn awaited(scenario: &Scenario, state: &mut State, lane: usize, hold: &Hold) {
    if hold.unsent {
        arrive(state, lane, hold.sent);
    }
    if !scenario.lacks(Mutation::WaitInsertsNoToken) {
        state.insert_token(lane, Due::Wait, 0);
    }
}
