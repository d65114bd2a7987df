//! Prepares the worker's own process before it serves.

use lanekeeper_adapters::descriptors;
use lanekeeper_config::Config;

/// Descriptors for what is bounded by no setting: the runtime, logs, the spool, Redis, the collector.
const OTHERS: usize = 64;

/// Shuts the process off from programs of the same user, and raises its limit of open files. Returns how many of these
/// deliveries may use.
pub(super) fn prepare(config: &Config) -> Option<usize> {
    shut_off();
    let limit = usize::try_from(descriptors::raise_limit()?).unwrap_or(usize::MAX);
    let kept = OTHERS
        + config.worker.lane_connections
        + config.database.pool_size
        + config.http.pool_size
        + config.http.max_connections
        + config.live.max_followers;
    // Under a low limit clients' connections are fewer than they may be, and both get half.
    Some(limit.saturating_sub(kept).max(limit / 2))
}

/// A process of the same user may otherwise read the worker's secrets in /proc/PID/environ and /proc/PID/mem, or trace
/// it: the programs of `exec` among them, which are dumpable again from their start on. The kernel then writes no core
/// dump of the worker either.
fn shut_off() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "other processes of this user may read the worker's memory"
            );
        }
    }
}
