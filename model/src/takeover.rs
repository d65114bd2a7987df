//! Takeover from connections that are gone, and what operators do (I5, I13).
//!
//! Sources: `migrations/functions/takeover/take_over.sql` and `migrations/functions/operate/change_lane.sql`.
//! Each is one step: what it reads and writes is under locks that it holds until its commit.

use crate::letter::{self, Expected};
use crate::producer;
use crate::scenario::{Mutation, Scenario};
use crate::state::{Claim, Connection, Due, LANES, LOST, State, bit};
use crate::step::{Action, Step};

pub fn take_over(scenario: &Scenario, state: &mut State, by: usize, of: usize) {
    let connection = state.database.connections[of][LOST];
    let free = connection.of_dead || state.workers[of].unseen && by != of;
    let charge = free || scenario.lacks(Mutation::TakeoverChargesTheLiving);
    let charge =
        charge && (!connection.of_old_epoch || scenario.lacks(Mutation::TakeoverIgnoresEpoch));
    let mut busy = 0;
    let mut woken = false;
    for lane in 0..LANES {
        let claims = connection
            .claims
            .iter()
            .filter_map(|claim| claim.lanes[lane]);
        let taken: Vec<(u8, u8)> = claims.collect();
        if taken.is_empty() {
            continue;
        }
        let without = scenario.lacks(Mutation::TakeoverWithoutLaneLock);
        if state.lane_is_locked(lane) && !without {
            busy |= bit(lane);
            continue;
        }
        let newest = state.database.log[usize::from(scenario.sessions[lane])].newest();
        let row = &mut state.database.lanes[lane];
        let only_charges = taken.iter().any(|(version, crashes)| {
            i16::from(row.version) - i16::from(*version)
                == i16::from(row.crashes) - i16::from(*crashes)
        });
        let has_head = newest > row.cursor || letter::waits(row);
        if charge && only_charges && !row.parked && has_head {
            row.version += 1;
            row.crashes += 1;
            state.broken.charged |= !connection.of_dead || connection.of_old_epoch;
        }
        if !scenario.lacks(Mutation::NoTokenAtTakeover) {
            state.insert_token(lane, Due::Now, 0);
            woken = true;
        }
    }
    let connection = &mut state.database.connections[of][LOST];
    if busy == 0 || scenario.lacks(Mutation::TakeoverForgetsBusyLanes) {
        *connection = Connection::default();
    } else {
        for claim in &mut connection.claims {
            for lane in (0..LANES).filter(|lane| busy & bit(*lane) == 0) {
                claim.lanes[lane] = None;
            }
        }
    }
    if woken && !scenario.lacks(Mutation::NoNotifications) {
        producer::wake_all(state);
    }
}

pub fn operations(scenario: &Scenario, state: &State, steps: &mut Vec<Step>) {
    for lane in 0..LANES {
        // Waits for the lane's lock.
        if state.lane_is_locked(lane) {
            continue;
        }
        let row = &state.database.lanes[lane];
        let newest = state.database.log[usize::from(scenario.sessions[lane])].newest();
        if row.parked {
            steps.push(Step::Operate(lane, Action::Unpark));
        }
        if (row.parked || row.waiting) && (newest > row.cursor || letter::waits(row)) {
            steps.push(Step::Operate(lane, Action::Skip));
        }
    }
}

pub fn operate(scenario: &Scenario, state: &mut State, lane: usize, action: Action) {
    state.budget.operations -= 1;
    let row = &mut state.database.lanes[lane];
    row.version += 1;
    row.crashes = 0;
    row.parked = false;
    row.waiting = false;
    let in_front = row.letter.after.is_some_and(|after| after <= row.cursor);
    if action == Action::Skip && in_front {
        // It waits for an operator again.
        row.letter.after = None;
        state.received[lane].letter = Expected::Nothing;
    } else if action == Action::Skip {
        row.cursor += 1;
        row.outcomes |= crate::state::seq_bit(row.cursor);
    }
    state.insert_token(lane, Due::Now, 0);
    if scenario.has_failovers() {
        state.durable = producer::on_disk(state);
    }
}

/// Nothing is left of the connection's claims.
pub fn has_no_claims(connection: &Connection) -> bool {
    connection
        .claims
        .iter()
        .all(|claim: &Claim| !claim.is_used())
}
