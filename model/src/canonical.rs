//! States that nobody could tell apart are made one state.
//!
//! Places of tokens and of claims mean nothing; of versions only the differences do. None of this
//! changes what can happen: it only renames.

use crate::scenario::Scenario;
use crate::state::{
    CURRENT, Claim, Database, GONE, Hold, LANES, Phase, State, TOKENS, Token, WORKERS,
};

pub fn form(scenario: &Scenario, state: &mut State) {
    for lane in 0..LANES {
        order_tokens(state, lane);
        rebase_versions(state, lane);
    }
    for w in 0..WORKERS {
        order_claims(state, w);
    }
    if scenario.alike && scenario.workers == WORKERS {
        let swapped = swap_workers(state);
        if swapped < *state {
            *state = swapped;
        }
    }
}

/// The same state with the workers' names exchanged.
fn swap_workers(state: &State) -> State {
    let mut state = *state;
    state.workers.swap(0, 1);
    state.locks.swap(0, 1);
    for database in [&mut state.database, &mut state.durable] {
        database.connections.swap(0, 1);
        for lane in 0..LANES {
            for token in &mut database.lanes[lane].tokens {
                token.behind = swap_bits(token.behind);
            }
        }
    }
    for producer in &mut state.producers {
        producer.behind = swap_bits(producer.behind);
    }
    for lane in 0..LANES {
        order_tokens(&mut state, lane);
    }
    state
}

fn swap_bits(workers: u8) -> u8 {
    (workers & 1) << 1 | workers >> 1
}

fn remembers(hold: &Hold) -> bool {
    hold.phase != Phase::None || hold.stale
}

fn order_tokens(state: &mut State, lane: usize) {
    let mut keys = [(Token::default(), 0_u8, 0_u8); TOKENS];
    for ((key, token), place) in keys
        .iter_mut()
        .zip(&state.database.lanes[lane].tokens)
        .zip(0..)
    {
        let mut holders = 0;
        for (w, worker) in state.workers.iter().enumerate() {
            let hold = &worker.holds[lane];
            if remembers(hold) && hold.token == place {
                holders |= crate::state::bit(w);
            }
        }
        *key = (*token, holders, place);
    }
    // Those that are there first.
    keys.sort_unstable_by_key(|(token, holders, place)| {
        (
            std::cmp::Reverse(token.due as u8),
            token.behind,
            *holders,
            *place,
        )
    });
    let mut places = [GONE; TOKENS];
    for ((token, _, before), after) in keys.iter().zip(0..) {
        places[usize::from(*before)] = after;
        state.database.lanes[lane].tokens[usize::from(after)] = *token;
    }
    for worker in &mut state.workers {
        let hold = &mut worker.holds[lane];
        if remembers(hold) && hold.token != GONE {
            hold.token = places[usize::from(hold.token)];
        }
    }
    state.durable.lanes[lane]
        .tokens
        .sort_unstable_by_key(|token| std::cmp::Reverse(token.due as u8));
}

/// The oldest version of a lane that anybody remembers becomes 0.
fn rebase_versions(state: &mut State, lane: usize) {
    let mut oldest = u8::MAX;
    versions(state, lane, &mut |version| oldest = oldest.min(*version));
    if oldest > 0 {
        versions(state, lane, &mut |version| *version -= oldest);
    }
}

fn versions(state: &mut State, lane: usize, each: &mut impl FnMut(&mut u8)) {
    // Where nothing fails over, nothing is on disk: its versions stay 0 and must not count.
    let on_disk = state.durable != Database::default();
    for (database, counts) in [(&mut state.database, true), (&mut state.durable, on_disk)] {
        if !counts {
            continue;
        }
        each(&mut database.lanes[lane].version);
        let claims = database.connections.iter_mut().flatten();
        for claim in claims.flat_map(|connection| &mut connection.claims) {
            if let Some((version, _)) = &mut claim.lanes[lane] {
                each(version);
            }
        }
    }
    for worker in &mut state.workers {
        let hold = &mut worker.holds[lane];
        if remembers(hold) && !hold.late && hold.phase < Phase::Unlocking {
            each(&mut hold.version);
        }
    }
}

fn order_claims(state: &mut State, w: usize) {
    let [first, second] = state.database.connections[w][CURRENT].claims;
    if key(&second) > key(&first) {
        state.database.connections[w][CURRENT].claims = [second, first];
        for hold in &mut state.workers[w].holds {
            if remembers(hold) && !hold.late {
                hold.claim = 1 - hold.claim;
            }
        }
    }
    for connection in state.durable.connections.iter_mut().flatten() {
        connection
            .claims
            .sort_unstable_by_key(|claim| std::cmp::Reverse(key(claim)));
    }
}

fn key(claim: &Claim) -> [Option<(u8, u8)>; LANES] {
    claim.lanes
}
