//! Settings of live followers: keys under `live`.

use std::time::Duration;

use lanekeeper_core::section;

section! {
    /// Clients that follow sessions live, on the listener of `worker` and `dev`.
    LiveConfig {
        /// Clients that follow at once, beside `http.max_connections`; more are asked to come again.
        max_followers: usize = 1_000,
        /// Memory for the newest events of followed sessions, and as much again for what clients were handed and have
        /// not taken yet.
        buffer_bytes: usize = 32 * 1024 * 1024,
        /// Time between two heartbeats, where nothing else is sent.
        heartbeat_ms: u64 = 15_000,
        /// How many events behind a follower may fall before it is disconnected, with the cursor to resume from.
        max_lag_events: u64 = 10_000,
        /// Origins whose pages may follow from a browser, such as `https://app.example`; `*`: all.
        cors_origins: Vec<String> = Vec::new(),
        /// Names of environment variables with the secrets of signed links, the one that signs first; `NAME_FILE` may name
        /// a file instead. None: there are no signed links.
        link_secrets: Vec<String> = Vec::new(),
    }
}

impl LiveConfig {
    pub fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms)
    }
}
