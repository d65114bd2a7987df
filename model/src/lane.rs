//! What a worker's connection and its lane tasks may do, and what arrives (I2, I3, I4).
//!
//! Sources: `src/engine/delivering/adapter_lane/mod.rs`, `src/engine/delivering/progress.rs`, `src/engine/delivering/handler_lane/mod.rs` as far as it
//! differs in nothing here. Requeued dead letters are in `letter`. Left out: suspects, coalescing, payloads.

use crate::ack;
use crate::claim;
use crate::letter::{self, Done};
use crate::scenario::{Mutation, Scenario};
use crate::state::{CURRENT, LANES, Phase, Process, State, WORKERS, Wish, bit, seq_bit, up_to};
use crate::step::{Step, Verdict, is_free};

pub fn steps(scenario: &Scenario, state: &State, steps: &mut Vec<Step>) {
    for w in 0..scenario.workers {
        let worker = &state.workers[w];
        if worker.process == Process::Running && worker.connected {
            claim::steps(scenario, state, w, steps);
        }
        for lane in 0..LANES {
            match worker.process {
                Process::Running if worker.connected => lane_steps(scenario, state, w, lane, steps),
                // A statement that is under way goes on without its client.
                Process::Frozen if has_session(state, w) => {
                    statement(state.workers[w].holds[lane].phase, w, lane, steps);
                }
                _ => {}
            }
        }
    }
}

/// Whether the worker's connection is there; it may believe so and be wrong.
pub fn has_session(state: &State, w: usize) -> bool {
    state.locks[w][CURRENT].own
}

pub fn has_lock(state: &State, w: usize, lane: usize) -> bool {
    state.locks[w][CURRENT].lanes & bit(lane) != 0
}

fn statement(phase: Phase, w: usize, lane: usize, steps: &mut Vec<Step>) {
    match phase {
        Phase::Looking => steps.push(Step::Look(w, lane)),
        Phase::Deciding => steps.push(Step::Decide(w, lane)),
        _ => {}
    }
}

fn lane_steps(scenario: &Scenario, state: &State, w: usize, lane: usize, steps: &mut Vec<Step>) {
    let hold = &state.workers[w].holds[lane];
    let session = has_session(state, w);
    let reaches = session || scenario.lacks(Mutation::SettleElsewhere);
    match hold.phase {
        Phase::None | Phase::Locked => {}
        Phase::Claimed if session && is_free(state, w) => steps.push(Step::Fetch(w, lane)),
        Phase::Running => {
            let asks = reaches && is_free(state, w);
            running(scenario, state, w, lane, asks, steps);
        }
        Phase::Looking | Phase::Deciding if reaches => statement(hold.phase, w, lane, steps),
        Phase::Unlocking => steps.push(Step::Unlock(w, lane)),
        Phase::Forgetting => steps.push(Step::Forget(w, lane)),
        _ => {}
    }
}

fn running(
    scenario: &Scenario,
    state: &State,
    w: usize,
    lane: usize,
    asks: bool,
    steps: &mut Vec<Step>,
) {
    let hold = &state.workers[w].holds[lane];
    let budget = &state.budget;
    if hold.late {
        return;
    }
    if hold.wish != Wish::None {
        if asks {
            steps.push(Step::Settle(w, lane));
        }
        return;
    }
    // `Progress::must_settle`.
    let must = hold.outcomes != 0 && !scenario.lacks(Mutation::SuccessorBeforeOutcome)
        || hold.done != Done::No && !scenario.lacks(Mutation::SuccessorBeforeLetter);
    let faces_letter = letter::is_faced(hold);
    let through = hold.cursor == hold.fetched && !faces_letter;
    if scenario.acks && !through && !must {
        ack::running(state, w, lane, steps);
    } else if !through && !must {
        steps.push(Step::Deliver(w, lane, Verdict::Accept));
        for (left, verdict) in [
            (budget.failures, Verdict::Fail),
            (budget.exhaustions, Verdict::Exhaust),
            (budget.parks, Verdict::Park),
        ] {
            // A second dead letter, and one that is parked: bounds of the model, and of the code.
            let possible = match verdict {
                Verdict::Exhaust => faces_letter || !has_letter(scenario, state, w, lane),
                Verdict::Park => !faces_letter,
                _ => true,
            };
            if left > 0 && possible {
                steps.push(Step::Deliver(w, lane, verdict));
            }
        }
    }
    if asks && hold.changed && (must || !through) {
        steps.push(Step::Keep(w, lane));
    }
    if must {
        return;
    }
    if asks && through {
        steps.push(Step::Finish(w, lane));
        if budget.yields > 0 {
            steps.push(Step::Yield(w, lane));
        }
        if hold.busy && scenario.gives_up {
            steps.push(Step::GiveUp(w, lane));
        }
    }
    if budget.releases > 0 {
        steps.push(Step::Release(w, lane));
    }
    if asks && budget.marks > 0 && !hold.marked && has_session(state, w) {
        steps.push(Step::Mark(w, lane));
    }
}

/// Where dead letters are requeued, a lane has one at the most.
fn has_letter(scenario: &Scenario, state: &State, w: usize, lane: usize) -> bool {
    let unsettled = state.workers[w].holds[lane].outcomes != 0;
    let settled = state.database.lanes[lane].letter.seq != 0;
    scenario.budget.requeues > 0 && (settled || unsettled)
}

pub fn deliver(scenario: &Scenario, state: &mut State, w: usize, lane: usize, verdict: Verdict) {
    let rival = (0..WORKERS).filter(|other| *other != w).any(|other| {
        let worker = &state.workers[other];
        let hold = &worker.holds[lane];
        let believes = worker.connected && worker.process != Process::Dead && !hold.late;
        believes
            && matches!(
                hold.phase,
                Phase::Claimed | Phase::Running | Phase::Looking | Phase::Deciding
            )
    });
    state.broken.overlap |= rival;
    if letter::is_faced(&state.workers[w].holds[lane]) {
        letter::deliver(scenario, state, w, lane, verdict);
        return;
    }
    let seq = state.workers[w].holds[lane].cursor + 1;
    arrive(state, lane, seq, verdict, false);
    let hold = &mut state.workers[w].holds[lane];
    hold.changed |= !scenario.lacks(Mutation::SettleBeforeDelivery);
    match verdict {
        Verdict::Accept => hold.cursor = seq,
        Verdict::Fail => {
            hold.wish = Wish::Retry;
            state.budget.failures -= 1;
        }
        Verdict::Park => {
            hold.wish = Wish::Park;
            state.budget.parks -= 1;
        }
        Verdict::Exhaust => {
            hold.cursor = seq;
            hold.outcomes |= seq_bit(seq);
            state.budget.exhaustions -= 1;
        }
    }
}

/// An event reaches the destination.
pub fn arrive(state: &mut State, lane: usize, seq: u8, verdict: Verdict, late: bool) {
    let outcomes = state.database.lanes[lane].outcomes;
    let received = &mut state.received[lane];
    let broken = &mut state.broken;
    let before = up_to(seq - 1);
    let after = !up_to(seq);
    if received.tried & seq_bit(seq) == 0 {
        let left_out = before & !(received.tried | outcomes);
        broken.order |= left_out != 0 || received.tried & after != 0;
        broken.letter |= letter::is_passed_by(received, seq);
    }
    let passed = matches!(verdict, Verdict::Accept | Verdict::Exhaust);
    if verdict == Verdict::Accept {
        let first = received.accepted & seq_bit(seq) == 0;
        broken.order |= first && received.accepted & after != 0;
        // A holder whose lane was passed under it may repeat what its settlement would have said.
        let excused = state.happened.fault || state.happened.passed & bit(lane) != 0;
        broken.duplicate |= !first && !excused;
        received.accepted |= seq_bit(seq);
    }
    received.tried |= seq_bit(seq);
    if !late {
        let hole = before & !up_to(received.last) & !outcomes;
        broken.stretch |= hole != 0;
        received.last = if passed { seq } else { seq - 1 };
    }
}
