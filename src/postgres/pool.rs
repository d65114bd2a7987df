//! Connection pools for everything but lane work.

use std::time::Duration;

use deadpool_postgres::{
    BuildError, Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts,
};
use tokio::time::timeout;

use super::{Database, lane_connection};

/// A connection that was used within this time is taken to be alive, unless its end was noticed: to ask before each
/// statement would be a round trip more.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// Makes a pool; it connects when it is first asked. Nobody waits longer than `patience` for a connection.
///
/// # Errors
/// Where the runtime has no timers.
pub fn build(database: &Database, size: usize, patience: Duration) -> Result<Pool, BuildError> {
    let pooled = database
        .within(patience.min(database.patience()))
        .with(lane_connection::prepare_pooled);
    let manager = Manager::from_connect(
        pooled.driver().clone(),
        pooled,
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .pre_recycle(Hook::async_fn(move |client, metrics| {
            Box::pin(async move {
                if metrics.last_used() < TRUSTED_FOR {
                    return Ok(());
                }
                // The pool's own bounds are for what it does itself.
                let asked = timeout(patience, client.simple_query("")).await;
                let answered = asked.map_err(|_| HookError::message("no answer"))?;
                answered.map(drop).map_err(HookError::Backend)
            })
        }))
        .timeouts(Timeouts {
            wait: Some(patience),
            create: Some(patience),
            recycle: Some(patience),
        })
        .build()
}
