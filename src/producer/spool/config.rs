//! Settings of the spool: keys under `spool`, or `LANEKEEPER_SPOOL__…`.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use lanekeeper_core::section;

section! {
    /// Events that wait on this machine while Postgres is away.
    #[derive(PartialEq, Eq)]
    SpoolConfig {
        /// The folder; default `$XDG_STATE_HOME/lanekeeper/spool` or `~/.local/state/lanekeeper/spool`.
        dir: Option<PathBuf> = None,
        /// How much the spool may hold; the last tenth is reserved for critical events.
        max_bytes: u64 = 1 << 30,
        /// The largest record that waits to be sent; a larger one is set aside at once, with the reason.
        max_record_bytes: u64 = 16 << 20,
        /// Time between two drains, by a worker and by `spool --watch`.
        interval_ms: u64 = 1_000,
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
