//! What a figure depends on besides the code.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BenchError, Options, Scratch};

/// The settings that move the figures most.
const SETTINGS: &[&str] = &[
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "shared_buffers",
    "max_wal_size",
    "max_connections",
    "autovacuum",
    "shared_preload_libraries",
];

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Environment {
    pub release: String,
    /// False: a debug build, whose figures say nothing.
    pub optimised: bool,
    pub cores: usize,
    pub runs: usize,
    pub payload_bytes: usize,
    pub subscription_concurrency: u32,
    pub lane_connections: usize,
    /// `None`: the worker's part of the server's lock table.
    pub max_lanes: Option<usize>,
    pub batch: usize,
    /// Settings of the server by name.
    pub postgres: serde_json::Map<String, serde_json::Value>,
}

pub(super) async fn read(scratch: &Scratch, options: &Options) -> Result<Environment, BenchError> {
    let client = scratch.connect_admin().await?;
    let rows = client
        .query(
            "SELECT name, current_setting(name, true) FROM unnest($1::text[]) AS u (name)",
            &[&SETTINGS],
        )
        .await
        .map_err(BenchError::on("reading the server's settings"))?;
    let postgres = rows
        .iter()
        .map(|row| {
            let value: Option<String> = row.get(1);
            (row.get(0), value.unwrap_or_default().into())
        })
        .collect();
    Ok(Environment {
        release: env!("CARGO_PKG_VERSION").to_owned(),
        optimised: !cfg!(debug_assertions),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        runs: options.runs(),
        payload_bytes: super::backlog::PAYLOAD_BYTES,
        subscription_concurrency: options.concurrency,
        lane_connections: options.worker.lane_connections,
        max_lanes: options.worker.max_lanes,
        batch: options.worker.batch,
        postgres,
    })
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<String> = self
            .postgres
            .iter()
            .map(|(name, value)| format!("{name} {}", value.as_str().unwrap_or_default()))
            .collect();
        write!(
            f,
            "lanekeeper {}{}, {} cores, median of {} runs, {}-byte payloads; {} lane connections, \
             {}, {} of one subscription, batches of {}\nPostgreSQL: {}",
            self.release,
            if self.optimised {
                ""
            } else {
                " (DEBUG BUILD: these figures say nothing)"
            },
            self.cores,
            self.runs,
            self.payload_bytes,
            self.lane_connections,
            self.max_lanes.map_or_else(
                || "lanes by the lock table".to_owned(),
                |lanes| format!("{lanes} lanes")
            ),
            self.subscription_concurrency,
            self.batch,
            settings.join(", "),
        )
    }
}
