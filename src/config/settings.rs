//! Everything that can be set: the sections, of which those of the commands `worker` and `dev` are declared here.

use std::path::PathBuf;

use lanekeeper_core::network::PrivateTargets;
use lanekeeper_core::section;
use lanekeeper_dashboard::config::DashboardConfig;
use lanekeeper_http::config::HttpConfig;
use lanekeeper_http::durable::config::DurableStreamsConfig;
use lanekeeper_http::live::config::LiveConfig;
use lanekeeper_limit::config::RedisConfig;
use lanekeeper_postgres::config::DatabaseConfig;
use lanekeeper_producer::spool::SpoolConfig;
use lanekeeper_streams::hooks::config::HookConfig;
use lanekeeper_telemetry::config::LogConfig;
use serde::{Deserialize, Serialize};

use super::find::ConfigFile;
use super::problem::Origins;

/// Everything that can be set. Field names are the keys.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Config {
    pub database: DatabaseConfig,
    pub redis: RedisConfig,
    pub worker: WorkerConfig,
    pub retention: RetentionConfig,
    pub http: HttpConfig,
    pub live: LiveConfig,
    pub durable_streams: DurableStreamsConfig,
    pub dashboard: DashboardConfig,
    pub hook: HookConfig,
    pub spool: SpoolConfig,
    pub dev: DevConfig,
    pub log: LogConfig,
    /// Where each setting that is not a default came from.
    #[serde(skip)]
    pub origins: Origins,
    /// The file that was read, if one was.
    #[serde(skip)]
    pub file: Option<ConfigFile>,
}

section! {
    /// Claims and deliveries.
    WorkerConfig {
        /// The host of this worker: of subscriptions that are `host_bound` it delivers the sessions of this host, and those
        /// whose host is not known. Unset: the machine's name.
        host_label: Option<String> = None,
        /// Connections that hold lane locks, each with its part of `worker.max_lanes`.
        lane_connections: usize = 2,
        /// Lanes that one process holds, and so delivers, at once. 0: up to 2,048, as far as the server's lock table
        /// has room for all workers; otherwise replicas × this must fit there.
        max_lanes: usize = 0,
        /// Bytes of events fetched ahead, over all lanes of the process; and as many again of payloads over 4 KiB,
        /// which are read when they are delivered.
        prefetch_bytes: usize = 16 * 1024 * 1024,
        /// Events fetched per lane at once.
        batch: usize = 100,
        /// The longest time between two scans of an idle worker, where the streams that it delivers have no `poll_floor`
        /// of their own (`hooks` and `runs` have).
        poll_floor_ms: u64 = 1_000,
        /// Time between two heartbeats.
        heartbeat_ms: u64 = 5_000,
        /// How long a worker may miss heartbeats before peers end its connections; the same for all workers, and well
        /// above the longest `worker.heartbeat_ms` of any.
        frozen_after_ms: u64 = 30_000,
        /// Work that is due and makes no progress for so long is reported: a lane that a worker holds, for so much longer than
        /// a delivery may take; one that no worker takes, where nothing else of its subscription moves.
        stalled_after_ms: u64 = 300_000,
        /// Validity window: how long a worker relies on its locks after the last answer from Postgres. Less than
        /// anything that can free them without its knowledge.
        trust_ms: u64 = 8_000,
        /// How long a delivery may take before its lane gets an in-flight record.
        mark_after_ms: u64 = 50,
        /// How long running deliveries may go on after SIGTERM.
        shutdown_grace_ms: u64 = 25_000,
        /// Whether deliveries may go to private, loopback and link-local addresses: all of them, none, or those of a list
        /// of networks, such as `10.20.0.0/16,fd12::/16`.
        allow_private_targets: PrivateTargets = PrivateTargets::None,
        /// The folder, by its absolute path, that attachments of messages are fetched to, for sources that want it; unset:
        /// none is fetched.
        attachments_dir: Option<PathBuf> = None,
        /// Bytes of the attachments of one source. The oldest give way to new ones, but none of the last day.
        attachments_bytes: u64 = 1 << 30,
        /// Workers that may die while they deliver an event before it is exhausted.
        max_crashes: u32 = 3,
        /// Sessions that a destination must fail in a row before its circuit opens; 0: never.
        breaker_lanes: usize = 5,
        /// Time between two probes of a destination whose circuit is open.
        breaker_open_ms: u64 = 5_000,
        /// Whether the agent registry follows the `hooks` stream; the worker that started last decides for all.
        registry: bool = true,
    }
}

section! {
    /// How long data is kept.
    RetentionConfig {
        /// Days that events stay in the log; a day that a lane still needs is kept longer.
        days: u32 = 7,
        /// Days for which a repeated dedupe key or message id is recognised.
        dedupe_days: u32 = 30,
        /// Days that outcomes are kept; never shorter than their event.
        outcome_days: u32 = 30,
        /// Days that a subscription's history of settled ranges is kept.
        history_days: u32 = 30,
        /// Days that a superseded version of a document is kept; the newest one stays.
        document_days: u32 = 30,
        /// Days that a dead letter is kept after an operator dealt with it; the others stay.
        dead_letter_days: u32 = 30,
        /// Days that the record of what operators did is kept.
        operation_days: u32 = 365,
        /// Days until a session without events loses its lanes; its name and its last seq stay.
        session_days: u32 = 30,
        /// The folder that a day of the log is written to before it is dropped; unset: nowhere. The same for all
        /// workers.
        archive_dir: Option<PathBuf> = None,
    }
}

section! {
    /// `lanekeeper dev`, which starts a private PostgreSQL.
    DevConfig {
        /// The folder with `initdb` and `postgres`; default: the newest that is installed.
        postgres_bin: Option<PathBuf> = None,
        /// The folder for the private server's data; default: a folder that is kept.
        data_dir: Option<PathBuf> = None,
    }
}
