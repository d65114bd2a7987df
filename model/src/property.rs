//! What must hold in every state: I1, I2, I4, I5, I13, and the order at the destination.

use stateright::Property;

use crate::letter;
use crate::scenario::Scenario;
use crate::state::{Database, Due, LANES, State, up_to};

pub const GAPLESS: &str = "I1 seqs are committed without a gap and in order";
pub const ONE_HOLDER: &str = "I2 one live worker delivers a lane";
pub const IN_ORDER: &str = "first deliveries are in order and leave nothing out";
pub const CONTIGUOUS: &str = "redelivered stretches have no hole";
pub const NO_DUPLICATE: &str = "nothing is delivered twice where nothing failed";
pub const CURSOR: &str = "I4 the cursor passes only what was accepted or has an outcome";
pub const UNDER_LOCK: &str = "I5 only the holder of the lane's lock settles";
pub const NEWEST_VERSION: &str = "I5 a settlement is taken on the newest version only";
pub const NOT_ROBBED: &str = "I5 nobody else settles a lane while its holder has the lock";
pub const NO_REVERT: &str = "I5 settled progress does not go back";
pub const OUTCOMES_STAY: &str = "an outcome on record stays, whatever happens to the server";
pub const LETTERS: &str = "a requeued dead letter comes at the place that it was given";
pub const HAS_TOKEN: &str = "I13 a lane with undelivered events has a token";
pub const FEW_TOKENS: &str = "I9 spare tokens do not multiply";
pub const SENT_ONCE: &str =
    "a message is sent again only if its acknowledgement is late or something failed";
pub const BARRIER: &str = "a barrier supersedes nothing that was accepted before";
pub const CLOSED: &str = "nothing is appended to a closed session";
pub const CHARGED: &str = "crashes are charged for deaths of workers only";

pub fn all() -> Vec<Property<Scenario>> {
    vec![
        Property::always(GAPLESS, |_, state: &State| !state.broken.seq),
        Property::always(ONE_HOLDER, |_, state: &State| {
            !state.broken.overlap && !state.broken.twice
        }),
        Property::always(IN_ORDER, |_, state: &State| !state.broken.order),
        Property::always(CONTIGUOUS, |_, state: &State| !state.broken.stretch),
        Property::always(NO_DUPLICATE, |_, state: &State| !state.broken.duplicate),
        Property::always(CURSOR, |_, state: &State| {
            passes_only_settled(&state.database, state)
        }),
        Property::always(UNDER_LOCK, |_, state: &State| !state.broken.lockless),
        Property::always(NEWEST_VERSION, |_, state: &State| !state.broken.stale),
        Property::always(NOT_ROBBED, |_, state: &State| !state.broken.robbed),
        Property::always(NO_REVERT, |_, state: &State| !state.broken.reverted),
        Property::always(OUTCOMES_STAY, |_, state: &State| !state.broken.outcome_lost),
        Property::always(LETTERS, |_, state: &State| !state.broken.letter),
        Property::always(HAS_TOKEN, |scenario: &Scenario, state: &State| {
            has_token(scenario, &state.database)
                && (!scenario.has_failovers() || has_token(scenario, &state.durable))
        }),
        Property::always(FEW_TOKENS, |_, state: &State| {
            !state.database.lanes.iter().any(|lane| lane.overflowed)
        }),
        Property::always(SENT_ONCE, |_, state: &State| !state.broken.sent_again),
        Property::always(BARRIER, |_, state: &State| !state.broken.barrier),
        Property::always(CLOSED, |_, state: &State| !state.broken.closed),
        Property::always(CHARGED, |_, state: &State| {
            let charges = state.database.lanes.iter().map(|lane| lane.crashes);
            !state.broken.charged && charges.max() <= Some(state.happened.kills)
        }),
    ]
}

fn passes_only_settled(database: &Database, state: &State) -> bool {
    (0..LANES).all(|lane| {
        let row = &database.lanes[lane];
        up_to(row.cursor) & !(state.received[lane].accepted | row.outcomes) == 0
    })
}

/// Stronger than I13 asks: the token is there even while the lane is held.
fn has_token(scenario: &Scenario, database: &Database) -> bool {
    (0..LANES).all(|lane| {
        let row = &database.lanes[lane];
        let newest = database.log[usize::from(scenario.sessions[lane])].newest();
        let waits = row.tokens.iter().any(|token| token.due != Due::Never);
        row.parked || row.cursor >= newest && !letter::waits(row) || waits
    })
}

/// Everything that is committed or requeued was delivered, or an operator is wanted.
pub fn is_delivered(scenario: &Scenario, state: &State, lane: usize) -> bool {
    let row = &state.database.lanes[lane];
    let newest = state.database.log[usize::from(scenario.sessions[lane])].newest();
    row.parked || row.cursor >= newest && !letter::waits(row)
}

/// Everything is delivered, and nothing is left that anybody would look at.
pub fn is_quiet(scenario: &Scenario, state: &State) -> bool {
    let mut lanes = 0..LANES;
    let connections = state.database.connections.iter();
    lanes.all(|lane| {
        let mut tokens = state.database.lanes[lane].tokens.iter();
        is_delivered(scenario, state, lane) && tokens.all(|token| token.due == Due::Never)
    }) && state.holds_nothing()
        && connections.flatten().all(crate::takeover::has_no_claims)
}
