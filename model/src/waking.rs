//! What waits for time, for the doorbell, for polls and for bounds (I8, I13).
//!
//! Sources: `src/engine/waking/listener.rs`, `src/engine/claiming/scan.rs`, `src/engine/shared.rs`.

use crate::claim::claimable;
use crate::lane::has_session;
use crate::scenario::{Mutation, Scenario};
use crate::state::{Bell, Due, LANES, Process, Stage, State, bit};
use crate::step::{Step, is_free};

pub fn steps(scenario: &Scenario, state: &State, steps: &mut Vec<Step>) {
    for lane in 0..LANES {
        let row = &state.database.lanes[lane];
        let has = |due| row.tokens.iter().any(|token| token.due == due);
        if row.waiting || has(Due::Retry) {
            steps.push(Step::RetryDue(lane));
        }
        if has(Due::TimeOut) {
            steps.push(Step::TimeOutDue(lane));
        }
    }
    for w in 0..scenario.workers {
        let worker = &state.workers[w];
        if worker.process != Process::Running {
            continue;
        }
        if scenario.doorbell {
            let idle = worker.connected && has_session(state, w) && is_free(state, w);
            if idle && !worker.asleep && claimable(scenario, state, w) == 0 {
                steps.push(Step::Doze(w));
            }
            if worker.asleep && !scenario.lacks(Mutation::NoPoll) {
                steps.push(Step::Poll(w));
            }
            bell_steps(state, w, steps);
        }
        if scenario.bounds {
            let missed = state.producers.iter().any(|producer| {
                let open = matches!(producer.stage, Stage::Open | Stage::Locked | Stage::Ringing);
                open && producer.tokens.iter().any(|count| *count > 0)
                    && producer.behind & bit(w) == 0
            });
            if missed {
                steps.push(Step::WalkPast(w));
            }
            let behind = state.database.lanes.iter().any(|row| {
                let mut tokens = row.tokens.iter();
                tokens.any(|token| token.due != Due::Never && token.behind & bit(w) != 0)
            });
            if behind && !scenario.lacks(Mutation::NoFullWalk) {
                steps.push(Step::FullWalk(w));
            }
        }
    }
}

fn bell_steps(state: &State, w: usize, steps: &mut Vec<Step>) {
    let worker = &state.workers[w];
    let held = state.workers.iter().any(|other| other.bell == Bell::Held)
        || state.producers.iter().any(|producer| producer.bell);
    match worker.bell {
        Bell::Away if worker.asleep => steps.push(Step::QueueForBell(w)),
        Bell::Queued if !held => steps.push(Step::GrantBell(w)),
        Bell::Held if !worker.asleep => steps.push(Step::GiveBell(w)),
        _ => {}
    }
}

pub fn doze(state: &mut State, w: usize) {
    let later = state.database.lanes.iter().any(|row| {
        let mut tokens = row.tokens.iter();
        tokens.any(|token| matches!(token.due, Due::Retry | Due::TimeOut))
    });
    state.workers[w].asleep = true;
    state.workers[w].timer = later;
}

pub fn becomes_due(state: &mut State, lane: usize, due: Due) {
    for database in [&mut state.database, &mut state.durable] {
        let row = &mut database.lanes[lane];
        row.waiting &= due != Due::Retry;
        for token in &mut row.tokens {
            if token.due == due {
                token.due = Due::Now;
            }
        }
    }
    for worker in &mut state.workers {
        if worker.timer {
            worker.timer = false;
            worker.asleep = false;
        }
    }
}

/// Time passes, and the bound with it: what is not committed yet falls behind.
pub fn walk_past(state: &mut State, w: usize) {
    for producer in &mut state.producers {
        if producer.tokens.iter().any(|count| *count > 0) {
            producer.behind |= bit(w);
        }
    }
}

pub fn full_walk(state: &mut State, w: usize) {
    let lanes = state.database.lanes.iter_mut();
    for token in lanes.flat_map(|lane| &mut lane.tokens) {
        token.behind &= !bit(w);
    }
}

pub fn grant_bell(scenario: &Scenario, state: &mut State, w: usize) {
    let worker = &mut state.workers[w];
    worker.bell = Bell::Held;
    worker.asleep &= scenario.lacks(Mutation::NoLookAfterGrant);
}
