//! Claiming lanes: one call of `lanekeeper.claim`, and its result.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use super::StoreError;

/// The key of a token in `ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub route: i32,
    pub priority: i16,
    pub due_at: Timestamp,
    pub id: i64,
}

/// A lane whose lock this connection now holds, as its newest progress says.
#[derive(Clone, Debug)]
pub struct ClaimedLane {
    pub lane_id: i64,
    pub token: Token,
    pub session_id: i64,
    pub session: String,
    pub version: i64,
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
}

/// A route to walk, and how far.
#[derive(Clone, Copy, Debug)]
pub struct RouteWalk {
    pub route: i32,
    /// Lanes that may be taken on it.
    pub room: i32,
    /// No live token of the route is due earlier, as far as the last walk saw.
    pub bound: Timestamp,
}

/// Where the next walk of a route starts, and when it has something.
#[derive(Clone, Copy, Debug)]
pub struct RouteState {
    pub route: i32,
    pub bound: Timestamp,
    /// Known only where nothing at all was taken.
    pub next_due_in: Option<Duration>,
}

#[derive(Debug, Default)]
pub struct Claimed {
    pub lanes: Vec<ClaimedLane>,
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
        Type::INT4,
        Type::INT8_ARRAY,
    ];
    client
        .prepare_typed(CLAIM, &types)
        .await
        .map_err(StoreError::on("preparing the claim"))
}

/// Takes the locks of up to `limit` lanes that are due. `held` are the connection's lanes, ascending.
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
    let bounds: Vec<Timestamp> = walks.iter().map(|walk| walk.bound).collect();
    let rows = client
        .query(
            statement,
            &[
                &connection_id,
                &claim_id,
                &routes,
                &rooms,
                &bounds,
                &limit,
                &held,
            ],
        )
        .await
        .map_err(StoreError::on("claiming lanes"))?;
    let mut claimed = Claimed::default();
    for row in &rows {
        match row.get::<_, Option<i64>>("lane_id") {
            Some(lane_id) => claimed.lanes.push(lane(row, lane_id)),
            None => claimed.routes.push(RouteState {
                route: row.get("route"),
                bound: row.get("due_at"),
                next_due_in: row.get::<_, Option<i64>>("retry_in_ms").map(millis),
            }),
        }
    }
    Ok(claimed)
}

fn lane(row: &Row, lane_id: i64) -> ClaimedLane {
    ClaimedLane {
        lane_id,
        token: Token {
            route: row.get("route"),
            priority: row.get("priority"),
            due_at: row.get("due_at"),
            id: row.get("token_id"),
        },
        session_id: row.get("session_id"),
        session: row.get("session"),
        version: row.get("version"),
        cursor: row.get("cursor"),
        cursor_day: row.get("cursor_day"),
        attempts: row.get("attempts"),
        crashes: row.get("crashes"),
        retry_in: row
            .get::<_, Option<i64>>("retry_in_ms")
            .map_or(Duration::ZERO, millis),
        parked: row.get("parked"),
    }
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
