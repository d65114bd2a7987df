//! Settings of the database: keys under `database`.

use std::path::PathBuf;

use lanekeeper_core::section;
use lanekeeper_secret::Secret;

use super::connection::{SslMode, SslParameters};

section! {
    /// The PostgreSQL that keeps everything.
    DatabaseConfig {
        /// Secret. The one PostgreSQL, by a direct connection and not through a transaction pooler: workers hold
        /// session-level locks. Needed by every command that talks to Postgres.
        url: Option<Secret> = None,
        /// Secret. The password, where the URL has none; any text, since it is not part of the URL.
        password: Option<Secret> = None,
        /// `disable`, `prefer`, `require`, `verify-ca` or `verify-full`, where the URL does not say; default
        /// `prefer`.
        sslmode: Option<SslMode> = None,
        /// The file (PEM) with the root certificates, or `system`, where the URL does not say.
        sslrootcert: Option<PathBuf> = None,
        /// The file (PEM) with the client's certificate and those that lead to its root, where the URL does not say.
        sslcert: Option<PathBuf> = None,
        /// The file (PEM) with its key, without a passphrase, where the URL does not say.
        sslkey: Option<PathBuf> = None,
        /// A worker's connections for everything that is not lane work: large payloads, pauses, maintenance.
        pool_size: usize = 4,
        /// How long connecting may take. Of several hosts in the URL, and of several addresses of a host, each gets its
        /// part of it. `connect_timeout` in the URL (seconds, for each host) counts instead, where it is given.
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
