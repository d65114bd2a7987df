//! Closing and interrupting sessions, and barriers.
//!
//! Sources: `close_session`, `interrupt`, `expire_lane` and `finish_closing` in `migrations/functions/session`,
//! `src/engine/waking/listener.rs`, `src/engine/delivering/adapter_lane/interrupted.rs`. Left out: draining, appending again
//! what waited, the cancellation of one message.
//!
//! The caller's transaction is one step: it has the append lock all the time, the lane locks of what it passes, and writes
//! nothing else that anybody reads before its commit.

use crate::producer;
use crate::scenario::{Mutation, Scenario};
use crate::state::{Due, EVENTS, LANES, Phase, SESSIONS, State, Token, Wish, bit, up_to};
use crate::step::Step;

pub fn steps(scenario: &Scenario, state: &State, steps: &mut Vec<Step>) {
    for session in 0..SESSIONS {
        let log = &state.database.log[session];
        let is_closed = state.database.closed & bit(session) != 0;
        if log.len == 0 || is_closed || !append_lock_is_free(scenario, state, session) {
            continue;
        }
        if state.budget.closes > 0 {
            steps.push(Step::Close(session));
        }
        if usize::from(log.len) + appending(scenario, state, session) < EVENTS {
            if state.budget.interrupts > 0 {
                steps.push(Step::Interrupt(session));
            }
            if state.budget.barriers > 0 {
                steps.push(Step::Barrier(session));
            }
        }
    }
    for lane in 0..LANES {
        let row = &state.database.lanes[lane];
        let free = !state.lane_is_locked(lane) || scenario.lacks(Mutation::BarrierDoesNotWait);
        if row.closing > 0 && (row.cuts || free) {
            steps.push(Step::FinishClosing(lane));
        }
        for w in 0..scenario.workers {
            let hold = &state.workers[w].holds[lane];
            let has_lock = crate::lane::has_lock(state, w, lane) && state.workers[w].connected;
            if hold.phase != Phase::Running || hold.wish != Wish::None || hold.late || !has_lock {
                continue;
            }
            if hold.version != row.version {
                steps.push(Step::Cancel(w, lane));
            }
            if row.closing > 0 && !row.cuts && !hold.changed && hold.version == row.version {
                steps.push(Step::LetGo(w, lane));
            }
        }
    }
}

/// Events that producers may still append to the session: the model has room for no more.
fn appending(scenario: &Scenario, state: &State, session: usize) -> usize {
    let producers = scenario.transactions.iter().zip(&state.producers);
    producers
        .filter(|(_, producer)| {
            !matches!(
                producer.stage,
                crate::state::Stage::Committed | crate::state::Stage::RolledBack
            )
        })
        .flat_map(|(transaction, _)| transaction.sessions)
        .filter(|of| usize::from(**of) == session)
        .count()
}

fn append_lock_is_free(scenario: &Scenario, state: &State, session: usize) -> bool {
    let producers = state.producers.iter();
    let of = u8::try_from(session).expect("there are few sessions");
    let holders = scenario.lanes_of(of).any(|lane| {
        state.workers.iter().any(|worker| {
            let hold = &worker.holds[lane];
            matches!(hold.phase, Phase::Looking | Phase::Deciding) && hold.locked
        })
    });
    !holders && producers.clone().all(|it| it.locks & bit(session) == 0)
}

pub fn close(scenario: &Scenario, state: &mut State, session: usize) {
    state.budget.closes -= 1;
    state.database.closed |= bit(session);
    let newest = state.database.log[session].newest();
    pass_session(scenario, state, session, newest, true);
}

/// Appends the event, and has all before it passed.
pub fn interrupt(scenario: &Scenario, state: &mut State, session: usize, cuts: bool) {
    let left = if cuts {
        &mut state.budget.interrupts
    } else {
        &mut state.budget.barriers
    };
    *left -= 1;
    let log = &mut state.database.log[session];
    let before = log.newest();
    log.seqs[usize::from(log.len)] = before + 1;
    log.len += 1;
    let of = u8::try_from(session).expect("there are few sessions");
    for lane in scenario.lanes_of(of) {
        // As an append: the lane is idle.
        let row = &state.database.lanes[lane];
        if !row.parked && row.cursor >= before {
            state.insert_token(lane, Due::Now, 0);
        }
    }
    pass_session(scenario, state, session, before, cuts);
}

fn pass_session(scenario: &Scenario, state: &mut State, session: usize, seq: u8, cuts: bool) {
    let of = u8::try_from(session).expect("there are few sessions");
    for lane in scenario.lanes_of(of) {
        if state.database.lanes[lane].cursor >= seq {
            continue;
        }
        if state.lane_is_locked(lane) {
            let row = &mut state.database.lanes[lane];
            row.closing = row.closing.max(seq);
            row.cuts = cuts;
        } else {
            pass(scenario, state, lane, seq);
        }
    }
    producer::wake_all(state);
}

/// `expire_lane`, and the lane's ready entry.
fn pass(scenario: &Scenario, state: &mut State, lane: usize, seq: u8) {
    let row = &mut state.database.lanes[lane];
    if row.cursor < seq {
        if !scenario.lacks(Mutation::PassedWithoutOutcome) {
            row.outcomes |= up_to(seq) & !up_to(row.cursor);
        }
        row.cursor = seq;
        if !scenario.lacks(Mutation::ClosedLaneKeepsItsVersion) {
            row.version += 1;
        }
        row.waiting = false;
        row.crashes = 0;
        if row.sent <= seq {
            row.sent = 0;
            row.waited = false;
            for token in &mut row.tokens {
                if token.due == Due::Wait {
                    *token = Token::default();
                }
            }
        }
        state.happened.passed |= bit(lane);
    }
    if !scenario.lacks(Mutation::PassedLaneNotWoken) {
        state.insert_token(lane, Due::Now, 0);
    }
}

/// `finish_closing`.
pub fn finish(scenario: &Scenario, state: &mut State, lane: usize) {
    let row = &mut state.database.lanes[lane];
    let (seq, cuts, cursor) = (row.closing, row.cuts, row.cursor);
    row.closing = 0;
    row.cuts = false;
    let passed = up_to(seq) & !up_to(cursor);
    let unsettled = !cuts && state.received[lane].accepted & passed != 0;
    // A holder that died had not settled it.
    state.broken.barrier |= unsettled && !state.happened.fault && !is_acked(scenario);
    pass(scenario, state, lane, seq);
    producer::wake_all(state);
}

/// An acknowledgement that comes before the settlement of its event is accepted, and superseded.
fn is_acked(scenario: &Scenario) -> bool {
    scenario.acks
}

/// The holder hears of it: its delivery is dropped, and it settles nothing.
pub fn cancel(state: &mut State, w: usize, lane: usize) {
    let hold = &mut state.workers[w].holds[lane];
    hold.changed = false;
    hold.outcomes = 0;
    hold.wish = Wish::Release;
}

/// The holder's delivery has ended and is settled: it has the rest passed under its own lock.
pub fn let_go(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    finish(scenario, state, lane);
    cancel(state, w, lane);
}
