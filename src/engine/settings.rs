//! What a worker is told: the configuration's `worker` section in the engine's own types.

use std::path::PathBuf;
use std::time::Duration;

use lanekeeper_limit::{BreakerSettings, RedisSettings};
use lanekeeper_telemetry::Tracing;

/// How a worker behaves. [`Default`] is the configuration's default.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Connections that hold lane locks; each claims and settles for itself.
    pub lane_connections: usize,
    /// Connections on which handlers run, one event at a time each; opened when there is a handler.
    pub handler_connections: usize,
    /// Connections for what is no lane work: large payloads, pauses, housekeeping.
    pub pool_size: usize,
    /// Lanes held at once over all of them: also the deliveries at once. `None`: this worker's part of the server's lock
    /// table, 2,048 at the most.
    pub max_lanes: Option<usize>,
    /// Bytes of events fetched ahead, and as many of large payloads, which wait until there is room.
    pub prefetch_bytes: usize,
    /// Events fetched per lane at once.
    pub batch: usize,
    /// The longest an idle worker goes without looking.
    pub poll_floor: Duration,
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// Without a heartbeat for this long a worker counts as frozen and is ended.
    pub frozen_after: Duration,
    /// How long locks are believed in after the last answer.
    pub trust: Duration,
    /// A delivery that takes longer moves its lane's token out of the claims' way.
    pub mark_after: Duration,
    /// How long deliveries may go on after a stop was asked for.
    pub shutdown_grace: Duration,
    /// An event that this many workers died of is exhausted.
    pub max_crashes: i32,
    /// How long the log is kept.
    pub retention_days: i32,
    /// How long dedupe keys are kept.
    pub dedupe_days: i32,
    /// How long it is on record why an event was not delivered; as long as the event in any case.
    pub outcome_days: i32,
    /// How long it is on record who settled what.
    pub history_days: i32,
    /// How long dead letters are kept that somebody has dealt with.
    pub dead_letter_days: i32,
    /// How long the lanes of a session are kept of which nothing else is left.
    pub session_days: i32,
    /// Where days of the log are written to before they are dropped. `None`: nowhere.
    pub archive_dir: Option<PathBuf>,
    /// Where limits are shared. `None`: each worker keeps to its share of them.
    pub redis: Option<RedisSettings>,
    /// When a destination that fails is left alone.
    pub breaker: BreakerSettings,
    /// What becomes of deliveries' spans.
    pub tracing: Tracing,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            lane_connections: 2,
            handler_connections: 2,
            pool_size: 4,
            max_lanes: None,
            prefetch_bytes: 16 << 20,
            batch: 100,
            poll_floor: Duration::from_secs(1),
            heartbeat: Duration::from_secs(5),
            frozen_after: Duration::from_secs(30),
            trust: Duration::from_secs(8),
            mark_after: Duration::from_millis(50),
            shutdown_grace: Duration::from_secs(25),
            max_crashes: 3,
            retention_days: 7,
            dedupe_days: 30,
            outcome_days: 30,
            history_days: 30,
            dead_letter_days: 30,
            session_days: 30,
            archive_dir: None,
            redis: None,
            breaker: BreakerSettings::default(),
            tracing: Tracing::Off,
        }
    }
}
