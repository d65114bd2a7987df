//! Claiming lanes: one call of `lanekeeper.claim_lanes`, and its result.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use rustc_hash::FxHashSet;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use super::StoreError;
use super::place::Place;

/// A row of `ready`: how to find it, and what its successor needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub route: i32,
    pub priority: i16,
    pub place: Place,
    pub id: i64,
}

/// A lane whose lock this connection now holds, as its newest progress says.
#[derive(Clone, Debug)]
pub struct ClaimedLane {
    pub lane_id: i64,
    pub token: Token,
    pub session_id: i64,
    pub session: Arc<str>,
    /// Version and step in one: one more with each settlement.
    pub version: i64,
    /// Where its row is.
    pub progress_place: Place,
    /// Everything up to this seq is settled.
    pub cursor: i64,
    pub cursor_day: Date,
    /// Failed attempts on the head.
    pub attempts: i32,
    /// Workers that died while they held the head.
    pub crashes: i32,
    /// The head must wait this long yet: the token was a spare one.
    pub retry_in: Duration,
    pub parked: bool,
    /// The lane has requeued dead letters: the first comes before the first event behind this seq.
    pub requeued_after: Option<i64>,
}

/// A route to walk, and how far.
#[derive(Clone, Copy, Debug)]
pub struct RouteWalk {
    pub route: i32,
    /// Lanes that may be taken on it.
    pub room: i32,
    pub bound: Bound,
}

/// A place in the order of a route's tokens: those up to it were passed by an earlier walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub due_at: Timestamp,
    pub id: i64,
}

impl Bound {
    /// Before all tokens.
    pub const START: Self = Self {
        due_at: Timestamp::UNIX_EPOCH,
        id: 0,
    };
}

/// Where the next walk of a route starts, and when it has something.
#[derive(Clone, Copy, Debug)]
pub struct RouteState {
    pub route: i32,
    pub bound: Bound,
    /// Known only where nothing at all was taken.
    pub next_due_in: Option<Duration>,
}

#[derive(Debug, Default)]
pub struct Claimed {
    pub lanes: Vec<ClaimedLane>,
    /// Lanes that are locked once more than they are held: a walk came by two tokens of theirs. Each
    /// must be unlocked once.
    pub locked_twice: Vec<i64>,
    pub routes: Vec<RouteState>,
}

pub const CLAIM: &str = include_str!("sql/claim.sql");

/// Prepares `lanekeeper.claim_lanes` for a lane connection.
///
/// # Errors
/// Where the schema lacks it.
pub async fn prepare(client: &Client) -> Result<Statement, StoreError> {
    let types = [
        Type::INT8,
        Type::INT8,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4,
        Type::INT8_ARRAY,
    ];
    client
        .prepare_typed(CLAIM, &types)
        .await
        .map_err(StoreError::on("preparing the claim"))
}

/// Takes the locks of up to `limit` lanes that are due. `held` are the worker's lanes, ascending.
///
/// # Errors
/// After any error locks may be held that nobody knows of: the connection must be closed.
pub async fn claim(
    client: &Client,
    statement: &Statement,
    connection_id: i64,
    claim_id: i64,
    walks: &[RouteWalk],
    limit: i32,
    held: &[i64],
) -> Result<Claimed, StoreError> {
    let routes: Vec<i32> = walks.iter().map(|walk| walk.route).collect();
    let rooms: Vec<i32> = walks.iter().map(|walk| walk.room).collect();
    let bounds: Vec<Timestamp> = walks.iter().map(|walk| walk.bound.due_at).collect();
    let bound_ids: Vec<i64> = walks.iter().map(|walk| walk.bound.id).collect();
    let row = client
        .query_one(
            statement,
            &[
                &connection_id,
                &claim_id,
                &routes,
                &rooms,
                &bounds,
                &bound_ids,
                &limit,
                &held,
            ],
        )
        .await
        .map_err(StoreError::on("claiming lanes"))?;
    let mut claimed = Claimed {
        lanes: lanes(&row),
        routes: route_states(&row, &routes),
        locked_twice: Vec::new(),
    };
    let mut seen = FxHashSet::with_capacity_and_hasher(claimed.lanes.len(), Default::default());
    claimed.lanes.retain(|lane| {
        let first = seen.insert(lane.lane_id);
        if !first {
            claimed.locked_twice.push(lane.lane_id);
        }
        first
    });
    Ok(claimed)
}

fn route_states(row: &Row, routes: &[i32]) -> Vec<RouteState> {
    let bounds: Vec<Timestamp> = row.get(10);
    let bound_ids: Vec<i64> = row.get(11);
    let due_in_ms: Option<Vec<Option<i64>>> = row.get(12);
    let due_in_ms = due_in_ms.unwrap_or_else(|| vec![None; routes.len()]);
    routes
        .iter()
        .zip(bounds.into_iter().zip(bound_ids))
        .zip(due_in_ms)
        .map(|((&route, (due_at, id)), due_in_ms)| RouteState {
            route,
            bound: Bound { due_at, id },
            next_due_in: due_in_ms.map(millis),
        })
        .collect()
}

/// One per token that was taken: the arrays are of one length, but for routes and priorities that all have
/// in common.
fn lanes(row: &Row) -> Vec<ClaimedLane> {
    let lane_ids: Vec<i64> = row.get(0);
    if lane_ids.is_empty() {
        return Vec::new();
    }
    let routes: Vec<i32> = row.get(1);
    let priorities: Vec<i16> = row.get(2);
    let places: Vec<Place> = row.get(3);
    let token_ids: Vec<i64> = row.get(4);
    let session_ids: Vec<i64> = row.get(5);
    let sessions: Vec<&str> = row.get(6);
    let versions: Vec<i64> = row.get(7);
    let cursors: Vec<i64> = row.get(8);
    let cursor_days: Vec<Date> = row.get(9);
    let progress_places: Vec<Place> = row.get(19);
    let common = routes.len() == 1;
    let mut lanes: Vec<ClaimedLane> = (0..lane_ids.len())
        .map(|at| ClaimedLane {
            lane_id: lane_ids[at],
            token: Token {
                route: routes[if common { 0 } else { at }],
                priority: priorities[if common { 0 } else { at }],
                place: places[at],
                id: token_ids[at],
            },
            session_id: session_ids[at],
            session: Arc::from(sessions[at]),
            version: versions[at],
            progress_place: progress_places[at],
            cursor: cursors[at],
            cursor_day: cursor_days[at],
            attempts: 0,
            crashes: 0,
            retry_in: Duration::ZERO,
            parked: false,
            requeued_after: None,
        })
        .collect();
    if let Some(places) = row.get::<_, Option<Vec<i32>>>(13) {
        tell_of(&mut lanes, &places, row);
    }
    lanes
}

/// What is only said of those lanes whose heads have a past, that are parked or have requeued dead letters.
fn tell_of(lanes: &mut [ClaimedLane], places: &[i32], row: &Row) {
    let attempts: Vec<i32> = row.get(14);
    let crashes: Vec<i32> = row.get(15);
    let waits_ms: Vec<Option<i64>> = row.get(16);
    let parked: Vec<bool> = row.get(17);
    let requeued_after: Vec<Option<i64>> = row.get(18);
    for (at, &place) in places.iter().enumerate() {
        let lane = &mut lanes[usize::try_from(place).expect("a place counts from 1") - 1];
        lane.attempts = attempts[at];
        lane.crashes = crashes[at];
        lane.retry_in = waits_ms[at].map_or(Duration::ZERO, millis);
        lane.parked = parked[at];
        lane.requeued_after = requeued_after[at];
    }
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
