//! A worker process' own row, its heartbeats, and the takeover of other workers' lanes.

use std::time::Duration;

use jiff::Timestamp;
use lanekeeper_core::fleet::Fleet;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::StoreError;

/// The identity of a worker process in the table `worker`.
#[derive(Clone, Debug)]
pub struct Identity {
    pub worker_id: i64,
    pub host: String,
    pub pid: i32,
}

/// Draws an id that no worker has had before. A restarted pod of the same name is another worker.
///
/// # Errors
/// The schema lacks the sequence.
pub async fn new_worker_id(client: &Client) -> Result<i64, StoreError> {
    let row = client
        .query_one("SELECT nextval('lanekeeper.worker_id')", &[])
        .await
        .map_err(StoreError::on("drawing a worker id"))?;
    Ok(row.get(0))
}

/// Takes the worker's liveness lock on this connection: while its session lives, no survivor
/// charges a crash to what the worker held. Returns false if an earlier session of this
/// worker did not release it `within` that time.
///
/// # Errors
/// Where the server does not answer.
pub async fn hold_liveness(
    client: &Client,
    worker_id: i64,
    within: Duration,
) -> Result<bool, StoreError> {
    let within = format!("{}ms", within.as_millis());
    match client
        .execute(
            include_str!("sql/hold_liveness.sql"),
            &[&worker_id, &within],
        )
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(false),
        Err(error) => Err(StoreError::on("taking the worker's liveness lock")(error)),
    }
}

/// The backend that holds the worker's liveness lock. `None`: no backend holds it.
///
/// # Errors
/// Where the server does not answer.
pub async fn liveness_holder(
    client: &Client,
    worker_id: i64,
) -> Result<Option<String>, StoreError> {
    let holder = client
        .query_opt(include_str!("sql/liveness_holder.sql"), &[&worker_id])
        .await
        .map_err(StoreError::on("reading who has the worker's liveness lock"))?;
    Ok(holder.map(|row| {
        let text = |column| {
            row.get::<_, Option<&str>>(column)
                .unwrap_or("unknown")
                .to_owned()
        };
        let (pid, role, application) =
            (row.get::<_, i32>("pid"), text("role"), text("application"));
        format!("pid {pid}, role {role}, application {application:?}")
    }))
}

/// Writes the next version of the worker's row.
///
/// # Errors
/// The heartbeat was not written. Peers judge the worker by the one before.
pub async fn heartbeat(
    client: &Client,
    identity: &Identity,
    draining: bool,
) -> Result<(), StoreError> {
    let state = if draining { "draining" } else { "running" };
    client
        .execute(
            include_str!("sql/heartbeat.sql"),
            &[
                &identity.worker_id,
                &identity.host,
                &identity.pid,
                &env!("CARGO_PKG_VERSION"),
                &state,
            ],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("writing the heartbeat"))
}

/// The time by the server's clock.
///
/// # Errors
/// Where the server does not answer.
pub async fn clock(client: &Client) -> Result<Timestamp, StoreError> {
    let row = client
        .query_typed_one("SELECT clock_timestamp()", &[])
        .await
        .map_err(StoreError::on("reading the server's clock"))?;
    Ok(row.get(0))
}

/// The number of live workers, and this worker's rank among them.
///
/// # Errors
/// They cannot be read.
pub async fn fleet(
    client: &Client,
    worker_id: i64,
    frozen_after_ms: i64,
) -> Result<Fleet, StoreError> {
    let row = client
        .query_one(
            include_str!("sql/fleet.sql"),
            &[&worker_id, &frozen_after_ms],
        )
        .await
        .map_err(StoreError::on("counting the workers"))?;
    let count = |column: usize| u32::try_from(row.get::<_, i64>(column)).unwrap_or(u32::MAX);
    Ok(Fleet {
        replicas: count(0),
        rank: count(1),
    })
}

/// Entries of the server's lock table for the workers of this database.
///
/// # Errors
/// Where the server does not answer.
pub async fn lock_table(client: &Client) -> Result<u64, StoreError> {
    let row = client
        .query_one(include_str!("sql/lock_table.sql"), &[])
        .await
        .map_err(StoreError::on("reading the size of the lock table"))?;
    Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
}

/// Removes the worker's row and its reports after a clean stop.
///
/// # Errors
/// They stay until a survivor removes them.
pub async fn leave(client: &Client, worker_id: i64) -> Result<(), StoreError> {
    client
        .execute(include_str!("sql/leave.sql"), &[&worker_id])
        .await
        .map(drop)
        .map_err(StoreError::on("removing the worker's row"))
}

/// Registers a lane connection and takes its liveness lock. Returns the connection's id.
///
/// # Errors
/// Nothing was registered, or the lock was not taken.
pub async fn open_lane_connection(client: &Client, worker_id: i64) -> Result<i64, StoreError> {
    client
        .execute(include_str!("sql/begin_epoch.sql"), &[])
        .await
        .map_err(StoreError::on("beginning the server's epoch"))?;
    let row = client
        .query_one(include_str!("sql/open_lane_connection.sql"), &[&worker_id])
        .await
        .map_err(StoreError::on("registering a lane connection"))?;
    Ok(row.get(0))
}

/// Removes a lane connection that holds no lane any more.
///
/// # Errors
/// The row stays until a survivor removes it.
pub async fn close_lane_connection(client: &Client, connection_id: i64) -> Result<(), StoreError> {
    client
        .execute(
            include_str!("sql/close_lane_connection.sql"),
            &[&connection_id],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("removing a lane connection"))
}

/// A worker with lost lane connections, and the results for their lanes.
#[derive(Clone, Copy, Debug)]
pub struct TakenOver {
    pub worker_id: i64,
    /// Lost lane connections.
    pub connections: i64,
    /// Lanes that got a ready entry.
    pub lanes: i64,
    /// Heads that were charged a crash.
    pub charged: i64,
}

/// Wakes the lanes of lost connections.
///
/// # Errors
/// Nothing was taken over; another survivor, or the next call, does it.
pub async fn take_over(
    client: &Client,
    own_worker_id: i64,
    frozen_after_ms: i64,
    own_live: &[i64],
) -> Result<Vec<TakenOver>, StoreError> {
    let rows = client
        .query(
            "SELECT worker_id, connections, lanes, charged FROM lanekeeper.take_over($1, $2, $3)",
            &[&own_worker_id, &frozen_after_ms, &own_live],
        )
        .await
        .map_err(StoreError::on("taking over from dead workers"))?;
    Ok(rows
        .iter()
        .map(|row| TakenOver {
            worker_id: row.get(0),
            connections: row.get(1),
            lanes: row.get(2),
            charged: row.get(3),
        })
        .collect())
}

/// A lane connection that was terminated because its worker had no heartbeat for too long.
#[derive(Clone, Copy, Debug)]
pub struct Terminated {
    pub worker_id: i64,
    pub backend_pid: i32,
    pub silent_ms: i64,
}

/// Terminates the lane connections of frozen workers.
///
/// # Errors
/// No connection was terminated, or this role may not terminate them.
pub async fn terminate_frozen(
    client: &Client,
    after_ms: i64,
) -> Result<Vec<Terminated>, StoreError> {
    let rows = client
        .query(
            "SELECT worker_id, backend_pid, silent_ms FROM lanekeeper.terminate_frozen($1)",
            &[&after_ms],
        )
        .await
        .map_err(StoreError::on("ending the connections of frozen workers"))?;
    Ok(rows
        .iter()
        .map(|row| Terminated {
            worker_id: row.get(0),
            backend_pid: row.get(1),
            silent_ms: row.get(2),
        })
        .collect())
}
