//! Pools of connections for what is no lane work.

use std::time::Duration;

use deadpool_postgres::{
    BuildError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts,
};

use super::{Database, lane_connection};

/// Makes a pool; it connects when it is first asked. Nobody waits longer than `patience` for a connection.
///
/// # Errors
/// Where the runtime has no timers.
pub fn build(database: &Database, size: usize, patience: Duration) -> Result<Pool, BuildError> {
    let pooled = database.with(lane_connection::prepare_pooled);
    let manager = Manager::from_connect(
        pooled.driver().clone(),
        pooled,
        ManagerConfig {
            recycling_method: RecyclingMethod::Verified,
        },
    );
    Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts {
            wait: Some(patience),
            create: Some(patience),
            recycle: Some(patience),
        })
        .build()
}
