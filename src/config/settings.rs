//! Everything that can be set: the sections, of which those of the commands `worker` and `dev` are declared here.

use std::path::PathBuf;

use lanekeeper_core::section;
use lanekeeper_http::config::HttpConfig;
use lanekeeper_limit::config::RedisConfig;
use lanekeeper_postgres::config::DatabaseConfig;
use lanekeeper_producer::spool::SpoolConfig;
use lanekeeper_streams::hooks::config::HookConfig;
use lanekeeper_telemetry::config::LogConfig;
use serde::{Deserialize, Serialize};

use super::problem::Origins;

/// Everything that can be set. Field names are the keys.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Config {
    pub database: DatabaseConfig,
    pub redis: RedisConfig,
    pub worker: WorkerConfig,
    pub retention: RetentionConfig,
    pub http: HttpConfig,
    pub hook: HookConfig,
    pub spool: SpoolConfig,
    pub dev: DevConfig,
    pub log: LogConfig,
    /// Where each setting that is not a default came from.
    #[serde(skip)]
    pub origins: Origins,
}

section! {
    /// The claim loop and its deliveries.
    WorkerConfig {
        /// Connections that hold lane locks, each with its share of `max_lanes`.
        lane_connections: usize = 2,
        /// Lanes held at once by one process, and so deliveries at once. 0: up to 2,048, as far as the server's lock table
        /// has room for those of all workers. Otherwise replicas × this must fit there.
        max_lanes: usize = 0,
        /// Bytes of events fetched ahead, over all lanes of the process; and again as many of large payloads, which wait until there is room.
        prefetch_bytes: usize = 16 * 1024 * 1024,
        /// Events fetched per lane at once.
        batch: usize = 100,
        /// Milliseconds between looks for work when no notification comes.
        poll_floor_ms: u64 = 1_000,
        /// Milliseconds between two signs of life of a worker.
        heartbeat_ms: u64 = 5_000,
        /// Milliseconds without a sign of life until peers end a worker's connections.
        frozen_after_ms: u64 = 30_000,
        /// Milliseconds since the last confirmed round trip for which a worker believes in its
        /// locks. Less than anything that can free them behind its back.
        trust_ms: u64 = 8_000,
        /// Milliseconds until a delivery counts as slow and its lane's token is put away, so
        /// that other claims need not walk past it.
        mark_after_ms: u64 = 50,
        /// Milliseconds that running deliveries get to finish after SIGTERM.
        shutdown_grace_ms: u64 = 25_000,
        /// Whether deliveries may go to private, loopback and link-local addresses.
        allow_private_targets: bool = false,
        /// Workers that an event may take down with it before it counts as exhausted.
        max_crashes: u32 = 3,
        /// Sessions that a destination must fail in a row, with nothing accepted in between, until it is
        /// left alone; 0: it never is.
        breaker_lanes: usize = 5,
        /// Milliseconds between two probes of a destination that is left alone.
        breaker_open_ms: u64 = 5_000,
        /// Whether the session registry follows the `hooks` stream. The last worker that starts
        /// decides for all of them.
        registry: bool = true,
    }
}

section! {
    /// How long things are kept.
    RetentionConfig {
        /// Days that delivered events stay in the log.
        days: u32 = 7,
        /// Days for which a repeated dedupe key is recognised.
        dedupe_days: u32 = 30,
        /// Days for which it is on record why an event was not delivered; while the event is in the
        /// log in any case.
        outcome_days: u32 = 30,
        /// Days that a subscription's history of settled ranges is kept.
        history_days: u32 = 30,
        /// Days that dead letters are kept from when somebody dealt with them; the others stay.
        dead_letter_days: u32 = 30,
        /// Days that a session without events keeps its lanes; its name and its last seq stay.
        session_days: u32 = 30,
        /// The folder that a day of the log is written to before it is dropped. Without it days are dropped
        /// and no more. The same for all workers.
        archive_dir: Option<PathBuf> = None,
    }
}

section! {
    /// `lanekeeper dev`, which starts a private PostgreSQL.
    DevConfig {
        /// The folder with `initdb` and `postgres`; by default the newest that is installed.
        postgres_bin: Option<PathBuf> = None,
        /// The folder for the private server's data; by default a place that is kept.
        data_dir: Option<PathBuf> = None,
    }
}
