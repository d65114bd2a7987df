//! Settings of the spool: keys under `spool`, or `LANEKEEPER_SPOOL__…`.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpoolConfig {
    /// Where events wait while Postgres is away. Default: `$XDG_STATE_HOME/lanekeeper/spool`, or
    /// `~/.local/state/lanekeeper/spool`.
    pub dir: Option<PathBuf>,
    /// What the directory may hold in all, in bytes; the last tenth is kept for critical events.
    pub max_bytes: u64,
    /// Pause between two drains of `spool --watch` and of a worker, in milliseconds.
    pub interval_ms: u64,
}

impl Default for SpoolConfig {
    fn default() -> Self {
        Self {
            dir: None,
            max_bytes: 1 << 30,
            interval_ms: 1_000,
        }
    }
}

impl SpoolConfig {
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    pub(super) fn directory(&self) -> Option<PathBuf> {
        let from_env = |key| {
            env::var_os(key)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        self.dir.clone().or_else(|| {
            let state = from_env("XDG_STATE_HOME")
                .or_else(|| Some(from_env("HOME")?.join(".local").join("state")))?;
            Some(state.join("lanekeeper").join("spool"))
        })
    }
}
