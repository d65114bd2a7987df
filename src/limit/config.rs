//! Settings of Redis: keys under `redis`.

use std::time::Duration;

use lanekeeper_core::section;
use lanekeeper_secret::Secret;

use super::settings::RedisSettings;

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
