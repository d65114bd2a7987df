//! Settling, going idle, letting go (I4, I5, I13).
//!
//! Sources: `migrations/functions/settle/settle.sql`, `migrations/functions/claim/record_in_flight.sql`, `src/engine/claiming/claimer/settle_lanes.rs`,
//! `src/postgres/sql/unlock.sql`. One
//! settlement may carry many lanes; here each goes alone, in any order.

use crate::ack;
use crate::claim::fetch;
use crate::lane::{has_lock, has_session};
use crate::letter::{self, Done};
use crate::producer;
use crate::scenario::{Mutation, Scenario};
use crate::state::{CURRENT, Claim, Due, GONE, Hold, Phase, State, Wish, bit};

/// Whether the compare-and-set hits; a settlement without a new version needs none.
fn hits(scenario: &Scenario, state: &State, w: usize, lane: usize) -> bool {
    let hold = &state.workers[w].holds[lane];
    let version = state.database.lanes[lane].version;
    if !hold.changed || hold.version == version {
        return true;
    }
    // The primary key is in the way only where that very version is there.
    scenario.lacks(Mutation::PlainInsert) && hold.version + 1 != version
}

/// Writes the next version, if there is one to write.
fn write(scenario: &Scenario, state: &mut State, w: usize, lane: usize) -> bool {
    let hit = hits(scenario, state, w, lane);
    let own = has_lock(state, w, lane);
    let hold = &mut state.workers[w].holds[lane];
    let row = &mut state.database.lanes[lane];
    if !hit {
        // Trust that is broken, or a connection that is gone, explains a miss.
        let passed = state.happened.passed & bit(lane) != 0;
        state.broken.robbed |= own && !passed;
        return false;
    }
    state.broken.lockless |= !own;
    if !hold.changed {
        return true;
    }
    state.broken.stale |= hold.version != row.version;
    if hold.version >= row.version {
        state.broken.reverted |= hold.cursor < row.cursor;
        row.version = hold.version + 1;
        row.cursor = hold.cursor;
        row.crashes = 0;
        row.waiting = hold.wish == Wish::Retry;
        row.parked = hold.wish == Wish::Park;
        ack::settle(row, hold);
    }
    row.outcomes |= hold.outcomes;
    if hold.outcomes != 0 && scenario.budget.requeues > 0 {
        row.letter.seq = newest_seq(hold.outcomes);
    }
    letter::settle(row, hold.done);
    let flush = (hold.outcomes != 0 || hold.done == Done::DeadAgain)
        && scenario.has_failovers()
        && !scenario.lacks(Mutation::OutcomesAreNotFlushed);
    hold.version += 1;
    hold.changed = false;
    hold.outcomes = 0;
    hold.done = Done::No;
    hold.after = row.letter.after;
    if flush {
        state.durable = producer::on_disk(state);
    }
    true
}

/// The last of these seqs.
fn newest_seq(seqs: u8) -> u8 {
    u8::try_from(u8::BITS - seqs.leading_zeros()).expect("a byte has 8 bits")
}

pub fn keep(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    if !write(scenario, state, w, lane) {
        let_go(state, w, lane);
    }
}

pub fn finish(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    if scenario.lacks(Mutation::LookBeforeLock) {
        look_at_log(scenario, state, w, lane);
    } else {
        try_append_lock(scenario, state, w, lane);
    }
    let hold = &mut state.workers[w].holds[lane];
    hold.busy = false;
    hold.phase = Phase::Looking;
}

/// Shared, without waiting: against producers only.
fn try_append_lock(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    let session = usize::from(scenario.sessions[lane]);
    let free = !state
        .producers
        .iter()
        .any(|producer| producer.locks & bit(session) != 0);
    let hold = &mut state.workers[w].holds[lane];
    hold.locked = free || scenario.lacks(Mutation::IdleWithoutLock);
}

fn look_at_log(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    let newest = state.database.log[usize::from(scenario.sessions[lane])].newest();
    let requeued = letter::waits(&state.database.lanes[lane]);
    let hold = &mut state.workers[w].holds[lane];
    hold.empty = newest <= hold.cursor && !requeued;
}

pub fn look(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    if scenario.lacks(Mutation::LookBeforeLock) {
        try_append_lock(scenario, state, w, lane);
    } else {
        look_at_log(scenario, state, w, lane);
    }
    if scenario.lacks(Mutation::UnlockBeforeCommit) {
        state.locks[w][CURRENT].lanes &= !bit(lane);
    }
    state.workers[w].holds[lane].phase = Phase::Deciding;
}

pub fn decide(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    let hit = write(scenario, state, w, lane);
    let hold = state.workers[w].holds[lane];
    let own = &mut state.workers[w].holds[lane];
    own.locked = false;
    own.empty = false;
    if !hit {
        let_go(state, w, lane);
    } else if hold.locked && hold.empty {
        state.delete_token(lane, hold.token);
        let_go(state, w, lane);
    } else if !hold.empty {
        own.phase = Phase::Claimed;
        if !scenario.fine {
            fetch(scenario, state, w, lane);
        }
    } else {
        own.phase = Phase::Running;
        own.busy = scenario.gives_up;
    }
}

/// What is left of a lane that was settled for the last time.
fn let_go(state: &mut State, w: usize, lane: usize) {
    let hold = &mut state.workers[w].holds[lane];
    *hold = Hold {
        phase: Phase::Unlocking,
        claim: hold.claim,
        token: GONE,
        ..Hold::default()
    };
}

/// Replaces the hold's token.
fn replace(state: &mut State, w: usize, lane: usize, due: Due) {
    let token = state.workers[w].holds[lane].token;
    state.delete_token(lane, token);
    state.insert_token(lane, due, 0);
}

pub fn settle(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    let changed = state.workers[w].holds[lane].changed;
    let hit = write(scenario, state, w, lane);
    let hold = state.workers[w].holds[lane];
    if hit {
        match hold.wish {
            Wish::Retry => {
                replace(state, w, lane, Due::Retry);
                // The connection scans again when the retry is due, only for a head that failed.
                state.workers[w].timer |= changed;
            }
            Wish::Await => {
                state.delete_token(lane, hold.token);
                ack::awaited(scenario, state, lane, &hold);
            }
            Wish::Park | Wish::Discard => state.delete_token(lane, hold.token),
            Wish::Release if hold.marked && !scenario.lacks(Mutation::ReleaseKeepsMark) => {
                replace(state, w, lane, Due::Now);
            }
            Wish::Release | Wish::None => {}
        }
    }
    let_go(state, w, lane);
}

pub fn yield_lane(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    state.budget.yields -= 1;
    if write(scenario, state, w, lane) {
        replace(state, w, lane, Due::Now);
        // The connection scans again at once.
        state.workers[w].asleep = false;
    }
    let_go(state, w, lane);
}

pub fn unlock(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    state.locks[w][CURRENT].lanes &= !bit(lane);
    if scenario.fine {
        state.workers[w].holds[lane].phase = Phase::Forgetting;
    } else {
        forget(state, w, lane);
    }
}

/// The claim's row goes once nothing of it is held any more.
pub fn forget(state: &mut State, w: usize, lane: usize) {
    let claim = state.workers[w].holds[lane].claim;
    state.workers[w].holds[lane] = Hold::default();
    let others = state.workers[w].holds.iter();
    let left = others
        .filter(|hold| hold.phase != Phase::None && hold.claim == claim)
        .count();
    if left == 0 && has_session(state, w) {
        state.database.connections[w][CURRENT].claims[usize::from(claim)] = Claim::default();
    }
}

pub fn mark(state: &mut State, w: usize, lane: usize) {
    state.budget.marks -= 1;
    let token = state.workers[w].holds[lane].token;
    state.delete_token(lane, token);
    let place = crate::state::insert_token(&mut state.database.lanes[lane], Due::TimeOut, 0);
    let hold = &mut state.workers[w].holds[lane];
    hold.token = place;
    hold.marked = true;
}
