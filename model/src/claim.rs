//! Claiming and fetching (I2, I9).
//!
//! Sources: `src/engine/claiming/claimer/claim_lanes.rs` and `migrations/functions/claim/claim.sql`. A lane's progress is
//! read and written under its lock only, so the two statements of a claim are one step for everybody
//! else; so is the fetch, of which a later one sees what an earlier one missed.
//!
//! A claim that finds its token gone, once it has the lane's lock, gives the lock back: that is no step
//! here, it only delays others. Left out: priorities, places and budgets.

use crate::lane::has_session;
use crate::scenario::{Mutation, Scenario};
use crate::state::{CURRENT, Due, GONE, Hold, LANES, Phase, State, Wish, bit};
use crate::step::{Step, is_free};

/// The first due ready entry that the worker's scan would see.
fn due_token(state: &State, w: usize, lane: usize) -> Option<u8> {
    let tokens = &state.database.lanes[lane].tokens;
    let place = tokens
        .iter()
        .position(|token| token.due == Due::Now && token.behind & bit(w) == 0)?;
    u8::try_from(place).ok()
}

fn walks_before_lock(scenario: &Scenario) -> bool {
    scenario.lacks(Mutation::GoneTokensAreTaken) || scenario.lacks(Mutation::ProgressOfWalkSnapshot)
}

/// Lanes, as bits, that a claim of this worker could take now.
pub fn claimable(scenario: &Scenario, state: &State, w: usize) -> u8 {
    let mut lanes = 0;
    for lane in 0..LANES {
        let hold = &state.workers[w].holds[lane];
        let seen = if walks_before_lock(scenario) {
            hold.stale
        } else {
            due_token(state, w, lane).is_some()
        };
        let again = scenario.lacks(Mutation::HeldLanesAreWalked) && hold.phase == Phase::Running;
        let free = hold.phase == Phase::None && !state.lane_is_locked(lane);
        if seen && (free || again) {
            lanes |= bit(lane);
        }
    }
    lanes
}

pub fn steps(scenario: &Scenario, state: &State, w: usize, steps: &mut Vec<Step>) {
    let worker = &state.workers[w];
    if !has_session(state, w) {
        return;
    }
    if worker.holds.iter().any(|hold| hold.phase == Phase::Locked) {
        steps.push(Step::Read(w));
        return;
    }
    if !is_free(state, w) || worker.asleep {
        return;
    }
    let room = state.database.connections[w][CURRENT]
        .claims
        .iter()
        .any(|claim| !claim.is_used());
    let lanes = claimable(scenario, state, w);
    for wanted in 1..bit(LANES) {
        if wanted & lanes == wanted && room {
            steps.push(Step::Claim(w, wanted));
        }
    }
    if walks_before_lock(scenario) {
        let sees = |lane: &usize| {
            let hold = &worker.holds[*lane];
            hold.phase == Phase::None && !hold.stale && due_token(state, w, *lane).is_some()
        };
        if (0..LANES).any(|lane| sees(&lane)) {
            steps.push(Step::WalkSnapshot(w));
        }
    }
}

pub fn walk_snapshot(state: &mut State, w: usize) {
    for lane in 0..LANES {
        let Some(token) = due_token(state, w, lane) else {
            continue;
        };
        let row = state.database.lanes[lane];
        let hold = &mut state.workers[w].holds[lane];
        if hold.phase == Phase::None && !hold.stale {
            *hold = Hold {
                stale: true,
                token,
                version: row.version,
                crashes: row.crashes,
                cursor: row.cursor,
                after: row.letter.after,
                ..Hold::default()
            };
        }
    }
}

pub fn claim(scenario: &Scenario, state: &mut State, w: usize, lanes: u8) {
    let claims = &state.database.connections[w][CURRENT].claims;
    let claim = claims
        .iter()
        .position(|claim| !claim.is_used())
        .and_then(|place| u8::try_from(place).ok())
        .expect("a claim is only offered where there is room for its row");
    for lane in (0..LANES).filter(|lane| lanes & bit(*lane) != 0) {
        if state.workers[w].holds[lane].phase != Phase::None {
            state.broken.twice = true;
            continue;
        }
        let token = if walks_before_lock(scenario) {
            state.workers[w].holds[lane].token
        } else {
            due_token(state, w, lane).unwrap_or(GONE)
        };
        state.locks[w][CURRENT].lanes |= bit(lane);
        let hold = &mut state.workers[w].holds[lane];
        hold.phase = Phase::Locked;
        hold.claim = claim;
        hold.token = token;
        if scenario.lacks(Mutation::ClaimDeletesToken) {
            state.delete_token(lane, token);
        }
    }
    if !scenario.fine {
        read(scenario, state, w);
    }
}

pub fn read(scenario: &Scenario, state: &mut State, w: usize) {
    for lane in 0..LANES {
        let row = state.database.lanes[lane];
        let hold = &mut state.workers[w].holds[lane];
        if hold.phase != Phase::Locked {
            continue;
        }
        hold.phase = Phase::Claimed;
        if !(hold.stale && scenario.lacks(Mutation::ProgressOfWalkSnapshot)) {
            hold.version = row.version;
            hold.crashes = row.crashes;
            hold.cursor = row.cursor;
            hold.after = row.letter.after;
            hold.sent = row.sent;
            hold.waited = row.waited;
        }
        hold.stale = false;
        if row.waiting || row.parked {
            hold.wish = Wish::Discard;
        }
        let (claim, taken) = (usize::from(hold.claim), (hold.version, hold.crashes));
        if !scenario.lacks(Mutation::ClaimsAreNotRecorded) {
            state.database.connections[w][CURRENT].claims[claim].lanes[lane] = Some(taken);
        }
        if !scenario.fine {
            fetch(scenario, state, w, lane);
        }
    }
}

pub fn fetch(scenario: &Scenario, state: &mut State, w: usize, lane: usize) {
    let newest = state.database.log[usize::from(scenario.sessions[lane])].newest();
    let acked = state.database.lanes[lane].acked;
    let hold = &mut state.workers[w].holds[lane];
    hold.phase = Phase::Running;
    hold.acked = acked;
    if hold.wish == Wish::Discard {
        hold.fetched = hold.cursor;
        return;
    }
    hold.fetched = newest.max(hold.cursor);
    if scenario.lacks(Mutation::SettleBeforeDelivery) && hold.fetched > hold.cursor {
        let row = &mut state.database.lanes[lane];
        row.cursor = hold.fetched;
        row.version += 1;
        hold.version += 1;
    }
}
