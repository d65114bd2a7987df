//! Settings of Redis: keys under `redis`.

use std::time::Duration;

use lanekeeper_core::section;
use lanekeeper_secret::Secret;

use super::settings::RedisSettings;

section! {
    /// What workers share and may lose: the state of rate limits.
    RedisConfig {
        /// Secret. Where workers share their limits: `redis://` or, with TLS, `rediss://`; several nodes of a
        /// cluster, or sentinels, separated by commas. Without it each worker keeps to its local quota.
        url: Option<Secret> = None,
        /// The addresses of `redis.url` are sentinels, and this is their name of the master.
        sentinel: Option<String> = None,
        /// The prefix of all keys; installations that share it share their limits.
        prefix: String = "lanekeeper".to_owned(),
        /// How long Redis may take to answer before it counts as away.
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
