//! The configuration: every setting once, with its default, meaning and unit.
//!
//! Layers, the later over the earlier: the defaults below; the file (`--config`, else
//! `lanekeeper.toml` in the working directory where it exists); `DATABASE_URL`, `REDIS_URL`,
//! `RUST_LOG` and libpq's `PGSSL…`; `LANEKEEPER_<SECTION>__<KEY>`. A secret may instead be given as the path of a file
//! that holds it, by the same variable with `_FILE` appended; it is read again where the secret is used next.
//!
//! A loaded [`Config`] is possible: unknown keys, values of the wrong type and values that cannot
//! work together are refused by [`Config::load`], all of them at once and each with its source.

mod check;
mod connection;
mod environment;
mod file;
mod load;
mod problem;
mod range;
mod schema;
mod secret;
mod secret_file;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use connection::{
    ConnectionString, ConnectionStringError, RootCertificates, SslMode, SslParameters,
};
pub use load::{Effective, Origins};
pub use problem::{ConfigError, Origin, Problem};
pub use secret::Secret;

use crate::limit::RedisSettings;
pub use crate::spool::config::SpoolConfig;
pub use crate::stream::hooks::config::HookConfig;

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

impl Config {
    /// Reads the file and this process's environment. A `file` that is given must exist.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        load::load(file, std::env::vars_os())
    }
}

/// Declares a section so that a setting's type, default and meaning stand in one place.
macro_rules! section {
    ($(#[$about:meta])* $name:ident {
        $($(#[$meaning:meta])* $key:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Deserialize, Serialize)]
        pub struct $name {
            $($(#[$meaning])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    };
}

section! {
    /// The one PostgreSQL that everything is kept in.
    DatabaseConfig {
        /// Secret. A direct connection, not through a transaction pooler: workers hold
        /// session-level locks. Needed by every command that talks to Postgres.
        url: Option<Secret> = None,
        /// How much of TLS is asked for, in libpq's words; `prefer` by default. This and the next
        /// three count where the URL does not have them.
        sslmode: Option<SslMode> = None,
        /// The root certificates that the server's is judged by: a file (PEM), or `system`.
        sslrootcert: Option<PathBuf> = None,
        /// The client's certificate, with those that lead to its root: a file (PEM).
        sslcert: Option<PathBuf> = None,
        /// Its key: a file (PEM) without a passphrase.
        sslkey: Option<PathBuf> = None,
        /// A worker's connections for what is no lane work: large payloads, pauses, housekeeping.
        pool_size: usize = 4,
        /// Milliseconds until a connection attempt is given up.
        connect_timeout_ms: u64 = 5_000,
    }
}

impl DatabaseConfig {
    /// What is set of TLS beside the URL.
    pub fn ssl(&self) -> SslParameters {
        SslParameters {
            mode: self.sslmode,
            root: self.sslrootcert.clone().map(Into::into),
            cert: self.sslcert.clone(),
            key: self.sslkey.clone(),
        }
    }
}

section! {
    /// What the workers share that may be lost: the state of rate limits.
    RedisConfig {
        /// Secret. `redis://` or, with TLS, `rediss://`; several, of a cluster's nodes or of sentinels,
        /// separated by commas. Without it each worker keeps to its share of a limit.
        url: Option<Secret> = None,
        /// The addresses are sentinels, and this is what they call the master.
        sentinel: Option<String> = None,
        /// What all keys begin with. Installations that share it share their limits.
        prefix: String = "lanekeeper".to_owned(),
        /// Milliseconds until Redis counts as away when it does not answer.
        timeout_ms: u64 = 250,
    }
}

impl RedisConfig {
    /// `None`: there is no Redis.
    pub fn settings(&self) -> Option<RedisSettings> {
        self.url.clone().map(|url| RedisSettings {
            url,
            sentinel: self.sentinel.clone(),
            prefix: self.prefix.clone(),
            timeout: Duration::from_millis(self.timeout_ms),
        })
    }
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
    /// The listener of `worker` and `dev`.
    HttpConfig {
        /// Address and port; port 0 takes a free one.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
        /// Connections to Postgres for requests; they are opened when there are any.
        pool_size: usize = 4,
        /// Requests under way at once; more are told to come again.
        max_requests: usize = 64,
        /// Clients' connections at once, those of probes too. Where there is no place for another, one that has
        /// no request is closed.
        max_connections: usize = 256,
        /// Milliseconds for a request's head to arrive, for its body, and until a client takes more of its answer;
        /// also that a connection may be idle.
        read_timeout_ms: u64 = 10_000,
        /// Bytes of one request's body.
        max_body_bytes: usize = 8 * 1024 * 1024 + 65_536,
    }
}

impl HttpConfig {
    pub fn read_timeout(&self) -> Duration {
        Duration::from_millis(self.read_timeout_ms)
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

section! {
    /// What the process says about itself, on standard error.
    LogConfig {
        /// `text` for people, `json` for collectors.
        format: LogFormat = LogFormat::Text,
        /// Levels by target, in the syntax of `RUST_LOG`.
        filter: String = "info".to_owned(),
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}
