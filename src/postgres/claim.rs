//! Claiming lanes: one call of `lanekeeper.claim`, and its result.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use rustc_hash::FxHashMap;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use super::StoreError;
use super::place::Place;

/// A row of `ready`: how to find it, and what its successor needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyEntry {
    pub route: i32,
    pub priority: i16,
    pub place: Place,
    pub id: i64,
}

/// A lane whose lock this connection now holds, as its newest progress says.
#[derive(Clone, Debug)]
pub struct ClaimedLane {
    pub lane_id: i64,
    pub entry: ReadyEntry,
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
    /// The head must wait this long yet: the entry was a spare one.
    pub retry_in: Duration,
    pub parked: bool,
    /// The lane has requeued dead letters: the first comes before the first event behind this seq.
    pub requeued_after: Option<i64>,
    /// What it waits for, where its subscription requires acknowledgements.
    pub awaiting: Option<Awaiting>,
}

/// A wait for acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaiting {
    /// Events up to this seq were sent.
    pub sent: i64,
    /// When the first of them that has none is sent again. The wait has a ready entry that is due then.
    pub due_at: Timestamp,
    /// How long that is from now; zero where it is over.
    pub left: Duration,
}

/// What a connection asks for.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub connection_id: i64,
    pub claim_id: i64,
    pub walks: &'a [RouteScan],
    /// Lanes at the most.
    pub limit: i32,
    /// The worker's lanes, ascending: they are passed over.
    pub held: &'a [i64],
    /// Lanes that were let go: their locks are given back first, once for each time that a lane is here.
    pub released: &'a [i64],
    /// The connection's claims of which nothing is held any more.
    pub finished: &'a [i64],
}

/// A route to walk, and how far.
#[derive(Clone, Copy, Debug)]
pub struct RouteScan {
    pub route: i32,
    /// Lanes that may be taken on it.
    pub room: i32,
    pub bound: ScanStart,
}

/// A place in the order of a route's entries: those up to it were passed by an earlier walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanStart {
    pub due_at: Timestamp,
    pub id: i64,
}

impl ScanStart {
    /// Before all entries.
    pub const START: Self = Self {
        due_at: Timestamp::UNIX_EPOCH,
        id: 0,
    };
}

/// Where the next walk of a route starts, and when it has something.
#[derive(Clone, Copy, Debug)]
pub struct RouteState {
    pub route: i32,
    pub bound: ScanStart,
    /// Known only where nothing at all was taken.
    pub next_due_in: Option<Duration>,
}

#[derive(Debug, Default)]
pub struct Claimed {
    pub lanes: Vec<ClaimedLane>,
    /// Lanes that are locked once more than they are held: a walk came by two entries of theirs. Each
    /// must be unlocked once. So must a lane of which nothing else is known.
    pub locked_twice: Vec<i64>,
    pub routes: Vec<RouteState>,
}

pub const CLAIM: &str = include_str!("sql/claim.sql");

/// Prepares `lanekeeper.claim` for a lane connection.
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
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
    ];
    client
        .prepare_typed(CLAIM, &types)
        .await
        .map_err(StoreError::on("preparing the claim"))
}

/// Takes the locks of lanes that are due, after it gave back those of lanes that were let go.
///
/// # Errors
/// After any error locks may be held that nobody knows of: the connection must be closed.
pub async fn claim(
    client: &Client,
    statement: &Statement,
    claim: Claim<'_>,
) -> Result<Claimed, StoreError> {
    let walks = claim.walks;
    let routes: Vec<i32> = walks.iter().map(|walk| walk.route).collect();
    let rooms: Vec<i32> = walks.iter().map(|walk| walk.room).collect();
    let bounds: Vec<Timestamp> = walks.iter().map(|walk| walk.bound.due_at).collect();
    let bound_ids: Vec<i64> = walks.iter().map(|walk| walk.bound.id).collect();
    let row = client
        .query_one(
            statement,
            &[
                &claim.connection_id,
                &claim.claim_id,
                &routes,
                &rooms,
                &bounds,
                &bound_ids,
                &claim.limit,
                &claim.held,
                &claim.released,
                &claim.finished,
            ],
        )
        .await
        .map_err(StoreError::on("claiming lanes"))?;
    let (lanes, locked_twice) = lanes(&row);
    Ok(Claimed {
        lanes,
        locked_twice,
        routes: route_states(&row, &routes),
    })
}

fn route_states(row: &Row, routes: &[i32]) -> Vec<RouteState> {
    let bounds: Vec<Timestamp> = row.get(13);
    let bound_ids: Vec<i64> = row.get(14);
    let due_in_ms: Option<Vec<Option<i64>>> = row.get(15);
    let due_in_ms = due_in_ms.unwrap_or_else(|| vec![None; routes.len()]);
    routes
        .iter()
        .zip(bounds.into_iter().zip(bound_ids))
        .zip(due_in_ms)
        .map(|((&route, (due_at, id)), due_in_ms)| RouteState {
            route,
            bound: ScanStart { due_at, id },
            next_due_in: due_in_ms.map(millis),
        })
        .collect()
}

/// What the walks took, in their order, with the progress of each lane. The arrays of the walks are of one length, but for
/// routes and priorities that all have in common.
fn lanes(row: &Row) -> (Vec<ClaimedLane>, Vec<i64>) {
    let lane_ids: Vec<i64> = row.get(0);
    if lane_ids.is_empty() {
        return Default::default();
    }
    let routes: Vec<i32> = row.get(1);
    let priorities: Vec<i16> = row.get(2);
    let places: Vec<Place> = row.get(3);
    let entry_ids: Vec<i64> = row.get(4);
    let session_ids: Vec<i64> = row.get(5);
    let sessions: Vec<&str> = row.get(6);
    let days: Vec<Option<Date>> = row.get(7);
    let mut known = known(row, &lane_ids);
    let common = routes.len() == 1;
    let mut lanes = Vec::with_capacity(lane_ids.len());
    let mut locked_twice = Vec::new();
    for (at, lane_id) in lane_ids.into_iter().enumerate() {
        let Some(progress) = known.take(at, lane_id) else {
            locked_twice.push(lane_id);
            continue;
        };
        lanes.push(ClaimedLane {
            lane_id,
            entry: ReadyEntry {
                route: routes[if common { 0 } else { at }],
                priority: priorities[if common { 0 } else { at }],
                place: places[at],
                id: entry_ids[at],
            },
            session_id: session_ids[at],
            session: Arc::from(sessions[at]),
            version: progress.version,
            progress_place: progress.place,
            cursor: progress.cursor,
            cursor_day: days[at].map_or(progress.day, |day| day.max(progress.day)),
            attempts: progress.attempts,
            crashes: progress.crashes,
            retry_in: progress.retry_in,
            parked: progress.parked,
            requeued_after: progress.requeued_after,
            awaiting: progress.awaiting,
        });
    }
    (lanes, locked_twice)
}

/// The newest progress of a lane.
struct Known {
    version: i64,
    place: Place,
    cursor: i64,
    day: Date,
    attempts: i32,
    crashes: i32,
    retry_in: Duration,
    parked: bool,
    requeued_after: Option<i64>,
    awaiting: Option<Awaiting>,
}

/// Progress as it comes: in the order of its places.
struct AllKnown {
    lanes: Vec<Option<Known>>,
    /// Where each lane is; `None` where they are in the order of the walks, each once.
    at: Option<FxHashMap<i64, usize>>,
}

impl AllKnown {
    /// What is known of the lane that is `place`th in the walks: once.
    fn take(&mut self, place: usize, lane_id: i64) -> Option<Known> {
        let at = match &self.at {
            None => place,
            Some(at) => *at.get(&lane_id)?,
        };
        self.lanes[at].take()
    }
}

fn known(row: &Row, walked: &[i64]) -> AllKnown {
    let lane_ids: Vec<i64> = row.get(8);
    let versions: Vec<i64> = row.get(9);
    let cursors: Vec<i64> = row.get(10);
    let days: Vec<Date> = row.get(11);
    let places: Vec<Place> = row.get(12);
    let mut lanes: Vec<Option<Known>> = (0..lane_ids.len())
        .map(|at| {
            Some(Known {
                version: versions[at],
                place: places[at],
                cursor: cursors[at],
                day: days[at],
                attempts: 0,
                crashes: 0,
                retry_in: Duration::ZERO,
                parked: false,
                requeued_after: None,
                awaiting: None,
            })
        })
        .collect();
    if let Some(places) = row.get::<_, Option<Vec<i32>>>(16) {
        tell_of(&mut lanes, &places, row);
    }
    // Lanes that were made in a row have progress and entries in the same order.
    let in_order = lane_ids == walked && lane_ids.is_sorted_by(|one, next| one < next);
    let at = || lane_ids.iter().copied().zip(0..).collect();
    AllKnown {
        lanes,
        at: (!in_order).then(at),
    }
}

/// What is only said of those lanes whose heads have a past, that are parked or have requeued dead letters.
fn tell_of(known: &mut [Option<Known>], places: &[i32], row: &Row) {
    let attempts: Vec<i32> = row.get(17);
    let crashes: Vec<i32> = row.get(18);
    let waits_ms: Vec<Option<i64>> = row.get(19);
    let parked: Vec<bool> = row.get(20);
    let requeued_after: Vec<Option<i64>> = row.get(21);
    let sents: Vec<Option<i64>> = row.get(22);
    let due_at: Vec<Option<Timestamp>> = row.get(23);
    let left_ms: Vec<Option<i64>> = row.get(24);
    for (at, &place) in places.iter().enumerate() {
        let place = usize::try_from(place).expect("a place counts from 1") - 1;
        let progress = known[place].as_mut().expect("nothing is taken yet");
        progress.attempts = attempts[at];
        progress.crashes = crashes[at];
        progress.retry_in = waits_ms[at].map_or(Duration::ZERO, millis);
        progress.parked = parked[at];
        progress.requeued_after = requeued_after[at];
        progress.awaiting = sents[at].zip(due_at[at]).map(|(sent, due_at)| Awaiting {
            sent,
            due_at,
            left: left_ms[at].map_or(Duration::ZERO, millis),
        });
    }
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
