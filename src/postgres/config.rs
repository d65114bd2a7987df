//! Settings of the database: keys under `database`.

use std::path::PathBuf;

use lanekeeper_core::section;
use lanekeeper_secret::Secret;

use super::connection::{SslMode, SslParameters};

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
