//! What integration tests share: a database of their own each, and waiting for conditions.
//!
//! The server is the one that `TEST_DATABASE_URL` names (`make test` starts one for all
//! test processes), else a private one that this process starts and that goes with it. A
//! DATABASE_URL of the environment is never used: it may be somebody's data.

mod black_hole;
mod database;
mod dice;
pub mod mutation;
pub mod platform;
mod program;
mod proxy;
mod receiver;
mod redis;
mod server;
mod standby;
mod worker;

use std::time::Duration;

pub use black_hole::{BlackHole, Silence};
pub use database::{TestDb, connect, private_server};
pub use dice::Dice;
pub use program::{lanekeeper, lanekeeper_at, lanekeeper_by};
pub use proxy::{Line, Protocol, Proxy, Trap, Upstream};
pub use receiver::{Arrival, Instead, Receiver, Seen};
pub use redis::{RedisServer, WatchedRedis, redis_cli};
pub use server::{Crashed, Server};
use tokio::time::Instant;
pub use worker::{SECRET_ENV, WorkerProcess};

/// Returns as soon as `condition` holds; panics, naming `what`, when it does not within `limit`.
pub async fn wait_until(limit: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Notifies as producers do that stand in line, and all at once, so that they are in a row on a slow machine too.
pub async fn stand_in_line(client: &tokio_postgres::Client) {
    let notify: String = (0..6)
        .map(|producer| format!("NOTIFY lanekeeper, '{producer}';"))
        .collect();
    client.batch_execute(&notify).await.unwrap();
}
