//! What a worker is told: the configuration's `worker` section in the engine's own types.

use std::path::PathBuf;
use std::time::Duration;

use lanekeeper_limit::{BreakerSettings, RedisSettings};
use lanekeeper_telemetry::Tracing;

/// Between two checks for dead connections; half of the time that recovery may take.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// How a worker behaves. [`Default`] is the default of the configuration.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Lanes that belong to hosts are claimed only if they belong to the one with this label, or to none.
    pub host_label: String,
    /// Connections that hold lane locks. Each claims and settles for itself.
    pub lane_connections: usize,
    /// Connections on which handlers run, one event at a time each, and as many that feed projections. Opened when there is
    /// something for them.
    pub handler_connections: usize,
    /// Connections for all other work: large payloads, pauses, maintenance.
    pub pool_size: usize,
    /// The most lanes held at once over all connections, and so the most deliveries at once. `None`: this worker's
    /// part of the server's lock table, at most 2,048.
    pub max_lanes: Option<usize>,
    /// File descriptors that deliveries may use. Routes share them equally. `None`: unbounded.
    pub descriptors: Option<usize>,
    /// Bytes of events fetched ahead, and the same number of bytes for large payloads, which wait until there is room.
    pub prefetch_bytes: usize,
    /// Events fetched per lane at once.
    pub batch: usize,
    /// The longest time between two scans of an idle worker.
    pub poll_floor: Duration,
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// A worker without a heartbeat for this long counts as frozen, and its connections are ended.
    pub frozen_after: Duration,
    /// Work that is due and makes no progress for so long is reported.
    pub stalled_after: Duration,
    /// The validity window: how long locks are relied on after a question that was answered.
    pub trust: Duration,
    /// A delivery that takes longer gets an in-flight record, so that claims need not step over its ready entry.
    pub mark_after: Duration,
    /// How long deliveries may continue after a stop was requested.
    pub shutdown_grace: Duration,
    /// An event that was charged this many crashes is exhausted.
    pub max_crashes: i32,
    /// How long the log is kept.
    pub retention_days: i32,
    /// How long dedupe keys are kept.
    pub dedupe_days: i32,
    /// How long outcomes are kept; at least as long as the event.
    pub outcome_days: i32,
    /// How long the history of settlements is kept.
    pub history_days: i32,
    /// How long superseded versions of documents are kept.
    pub document_days: i32,
    /// How long resolved dead letters are kept.
    pub dead_letter_days: i32,
    /// How long the record of what operators did is kept.
    pub operation_days: i32,
    /// How long the lanes of a session are kept of which nothing else is left.
    pub session_days: i32,
    /// The folder to which days of the log are written before they are dropped. `None`: they are not archived.
    pub archive_dir: Option<PathBuf>,
    /// The Redis server on which limits are shared. `None`: each worker uses its local quota.
    pub redis: Option<RedisSettings>,
    /// When a circuit opens.
    pub breaker: BreakerSettings,
    /// Whether deliveries have spans.
    pub tracing: Tracing,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            host_label: host_name(),
            lane_connections: 2,
            handler_connections: 2,
            pool_size: 4,
            max_lanes: None,
            descriptors: None,
            prefetch_bytes: 16 << 20,
            batch: 100,
            poll_floor: Duration::from_secs(1),
            heartbeat: Duration::from_secs(5),
            frozen_after: Duration::from_secs(30),
            stalled_after: Duration::from_secs(300),
            trust: Duration::from_secs(8),
            mark_after: Duration::from_millis(50),
            shutdown_grace: Duration::from_secs(25),
            max_crashes: 3,
            retention_days: 7,
            dedupe_days: 30,
            outcome_days: 30,
            history_days: 30,
            document_days: 30,
            dead_letter_days: 30,
            operation_days: 365,
            session_days: 30,
            archive_dir: None,
            redis: None,
            breaker: BreakerSettings::default(),
            tracing: Tracing::Off,
        }
    }
}

/// This machine's name.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
