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
use super::ctid::Ctid;

/// A row of `ready`: the values that find it, and those that a replacement takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyEntry {
    pub route: i32,
    pub priority: i16,
    pub ctid: Ctid,
    pub id: i64,
}

/// A lane whose lock this connection now holds, with its newest progress.
#[derive(Clone, Debug)]
pub struct ClaimedLane {
    pub lane_id: i64,
    pub entry: ReadyEntry,
    pub session_id: i64,
    pub session: Arc<str>,
    /// Version and step in one number, which grows by one with each settlement.
    pub version: i64,
    /// The ctid of its row in `progress`.
    pub progress_ctid: Ctid,
    /// Everything up to this seq is settled.
    pub cursor: i64,
    pub cursor_day: Date,
    /// Failed attempts on the head.
    pub attempts: i32,
    /// Workers that died while they held the head.
    pub crashes: i32,
    /// How long the head must still wait: the lane was claimed by another entry than that of its retry.
    pub retry_in: Duration,
    pub parked: bool,
    /// The lane has requeued dead letters. The first of them is delivered before the first event after this seq.
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

/// The parameters of a claim.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub connection_id: i64,
    pub claim_id: i64,
    pub scans: &'a [RouteScan],
    /// The most lanes that it may take.
    pub limit: i32,
    /// The lanes that this worker holds, ascending: the claim skips them.
    pub held: &'a [i64],
    /// Lanes that were released: the claim unlocks them first, once for each time that a lane is in this list.
    pub released: &'a [i64],
    /// The connection's claims whose lanes are all released.
    pub finished: &'a [i64],
}

/// The scan of one route: where it starts, and how many lanes it may take.
#[derive(Clone, Copy, Debug)]
pub struct RouteScan {
    pub route: i32,
    /// The most lanes that it may take on this route.
    pub room: i32,
    pub start: ScanStart,
}

/// A position in the order of a route's entries. An earlier scan has passed the entries up to it.
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

/// What a claim found out about a route: where its next scan starts, and when its next entry is due.
#[derive(Clone, Copy, Debug)]
pub struct RouteState {
    pub route: i32,
    pub start: ScanStart,
    /// Known only if the claim took no lane at all.
    pub next_due_in: Option<Duration>,
}

#[derive(Debug, Default)]
pub struct Claimed {
    pub lanes: Vec<ClaimedLane>,
    /// Lanes that this connection has locked once more than it holds them, because the scan found two of their
    /// entries or found no progress of them. Each of them must be unlocked once.
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

/// Unlocks the released lanes, then takes the locks of lanes that are due.
///
/// # Errors
/// After any error, the connection may hold locks that this process does not know of: close it.
pub async fn claim(
    client: &Client,
    statement: &Statement,
    claim: Claim<'_>,
) -> Result<Claimed, StoreError> {
    let scans = claim.scans;
    let routes: Vec<i32> = scans.iter().map(|scan| scan.route).collect();
    let rooms: Vec<i32> = scans.iter().map(|scan| scan.room).collect();
    let starts: Vec<Timestamp> = scans.iter().map(|scan| scan.start.due_at).collect();
    let start_ids: Vec<i64> = scans.iter().map(|scan| scan.start.id).collect();
    let row = client
        .query_one(
            statement,
            &[
                &claim.connection_id,
                &claim.claim_id,
                &routes,
                &rooms,
                &starts,
                &start_ids,
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
    let starts: Vec<Timestamp> = row.get(13);
    let start_ids: Vec<i64> = row.get(14);
    let due_in_ms: Option<Vec<Option<i64>>> = row.get(15);
    let due_in_ms = due_in_ms.unwrap_or_else(|| vec![None; routes.len()]);
    routes
        .iter()
        .zip(starts.into_iter().zip(start_ids))
        .zip(due_in_ms)
        .map(|((&route, (due_at, id)), due_in_ms)| RouteState {
            route,
            start: ScanStart { due_at, id },
            next_due_in: due_in_ms.map(millis),
        })
        .collect()
}

/// The lanes that the scans took, in the order of the scans, each with its progress. The arrays that come from the
/// scans have equal lengths, except that routes and priorities have one element if all lanes share them.
fn lanes(row: &Row) -> (Vec<ClaimedLane>, Vec<i64>) {
    let lane_ids: Vec<i64> = row.get(0);
    if lane_ids.is_empty() {
        return Default::default();
    }
    let routes: Vec<i32> = row.get(1);
    let priorities: Vec<i16> = row.get(2);
    let ctids: Vec<Ctid> = row.get(3);
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
                ctid: ctids[at],
                id: entry_ids[at],
            },
            session_id: session_ids[at],
            session: Arc::from(sessions[at]),
            version: progress.version,
            progress_ctid: progress.ctid,
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
    ctid: Ctid,
    cursor: i64,
    day: Date,
    attempts: i32,
    crashes: i32,
    retry_in: Duration,
    parked: bool,
    requeued_after: Option<i64>,
    awaiting: Option<Awaiting>,
}

/// The progress of all lanes, in the order of the result's arrays.
struct AllKnown {
    lanes: Vec<Option<Known>>,
    /// The index of each lane in `lanes`. `None`: the lanes are in the order of the scans, each once.
    at: Option<FxHashMap<i64, usize>>,
}

impl AllKnown {
    /// The progress of the lane that the scans took at this index. Only the first call for a lane returns it.
    fn take(&mut self, index: usize, lane_id: i64) -> Option<Known> {
        let at = match &self.at {
            None => index,
            Some(at) => *at.get(&lane_id)?,
        };
        self.lanes[at].take()
    }
}

fn known(row: &Row, scanned: &[i64]) -> AllKnown {
    let lane_ids: Vec<i64> = row.get(8);
    let versions: Vec<i64> = row.get(9);
    let cursors: Vec<i64> = row.get(10);
    let days: Vec<Date> = row.get(11);
    let ctids: Vec<Ctid> = row.get(12);
    let mut lanes: Vec<Option<Known>> = (0..lane_ids.len())
        .map(|at| {
            Some(Known {
                version: versions[at],
                ctid: ctids[at],
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
    if let Some(indexes) = row.get::<_, Option<Vec<i32>>>(16) {
        add_past(&mut lanes, &indexes, row);
    }
    // Lanes that were created one after the other have progress and entries in the same order.
    let in_order = lane_ids == scanned && lane_ids.is_sorted_by(|one, next| one < next);
    let at = || lane_ids.iter().copied().zip(0..).collect();
    AllKnown {
        lanes,
        at: (!in_order).then(at),
    }
}

/// Adds the columns that the result has only for some lanes: those whose heads have attempts or crashes, that are
/// parked, or that have requeued dead letters. `indexes` counts from 1.
fn add_past(known: &mut [Option<Known>], indexes: &[i32], row: &Row) {
    let attempts: Vec<i32> = row.get(17);
    let crashes: Vec<i32> = row.get(18);
    let waits_ms: Vec<Option<i64>> = row.get(19);
    let parked: Vec<bool> = row.get(20);
    let requeued_after: Vec<Option<i64>> = row.get(21);
    let sents: Vec<Option<i64>> = row.get(22);
    let due_at: Vec<Option<Timestamp>> = row.get(23);
    let left_ms: Vec<Option<i64>> = row.get(24);
    for (at, &index) in indexes.iter().enumerate() {
        let index = usize::try_from(index).expect("an index counts from 1") - 1;
        let progress = known[index].as_mut().expect("nothing is taken yet");
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
