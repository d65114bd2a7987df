//! Lanes that belong to hosts: the routes that a worker scans, binding sessions, and moving their lanes (E5).

use std::collections::HashMap;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient};

use super::StoreError;

pub const OPEN: &str = include_str!("sql/open_host_routes.sql");
pub const FINISH_MOVING: &str = include_str!("sql/finish_moving.sql");

/// Says on which host a session lives; `None`: on that of the agent registry. Returns whether anything changed.
///
/// # Errors
/// SQLSTATE LK003 where there is no such stream, LK006 for a label that is none. Nothing was changed.
pub async fn bind_session(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
    host: Option<&str>,
) -> Result<bool, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/bind_session.sql"),
            &[
                (&stream, Type::TEXT),
                (&session, Type::TEXT),
                (&host, Type::TEXT),
            ],
        )
        .await
        .and_then(|row| row.try_get("changed"))
        .map_err(StoreError::on("binding a session to a host"))
}

/// The routes that a worker with this label scans, by subscription: that of its host, and that of lanes without one.
/// Makes those that are missing.
///
/// # Errors
/// Nothing was made.
pub async fn open(client: &Client, host: &str) -> Result<HashMap<i32, Vec<i32>>, StoreError> {
    let operation = "opening the routes of this host";
    let rows = client
        .query(OPEN, &[&host])
        .await
        .map_err(StoreError::on(operation))?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Result<_, _>>()
        .map_err(StoreError::on(operation))
}

/// What a turn of [`finish_moving`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Lanes that were moved.
    pub lanes: i64,
    /// Whether another turn would find more to do.
    pub more: bool,
}

/// Moves the lanes of up to so many sessions whose hosts may have changed.
///
/// # Errors
/// Nothing of this turn was done.
pub async fn finish_moving(client: &Client, sessions: i32) -> Result<Moved, StoreError> {
    let operation = "moving lanes to other hosts";
    let row = client
        .query_one(FINISH_MOVING, &[&sessions])
        .await
        .map_err(StoreError::on(operation))?;
    Ok(Moved {
        lanes: row.get("moved"),
        more: row.get("more"),
    })
}
