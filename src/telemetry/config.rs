//! Settings of the log: keys under `log`.

use lanekeeper_core::section;
use serde::{Deserialize, Serialize};

section! {
    /// The log on standard error.
    LogConfig {
        /// `text` for people or `json` for collectors.
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
