//! Settings of `lanekeeper hook`: keys under `hook`, or `LANEKEEPER_HOOK__…`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event_type::{MAPPED, UNKNOWN};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HookConfig {
    /// Internal event types that are stored; `unknown` stands for every type without a mapping.
    /// Default: all but `session_end`.
    pub allow: Vec<String>,
    /// Replace e-mail addresses in payloads by `[email]` before anything is stored.
    pub redact_emails: bool,
    /// Budget for reaching Postgres, in milliseconds; after it the call goes to the spool.
    pub timeout_ms: u64,
    /// How long to wait for the next byte on stdin, in milliseconds. A CLI that never closes the
    /// pipe must not hang the hook.
    pub stdin_timeout_ms: u64,
    /// Bytes read of one call; what comes after is left out, and the event says so.
    pub max_input_bytes: usize,
}

impl Default for HookConfig {
    fn default() -> Self {
        Self {
            allow: MAPPED
                .iter()
                .copied()
                .filter(|name| *name != "session_end")
                .chain([UNKNOWN])
                .map(String::from)
                .collect(),
            redact_emails: true,
            timeout_ms: 300,
            stdin_timeout_ms: 1_000,
            max_input_bytes: 64 << 20,
        }
    }
}

impl HookConfig {
    /// Whether events of this internal type are stored.
    pub fn allows(&self, event_type: &str) -> bool {
        let listed = |name: &str| self.allow.iter().any(|allowed| allowed == name);
        listed(event_type) || (!MAPPED.contains(&event_type) && listed(UNKNOWN))
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    pub fn stdin_timeout(&self) -> Duration {
        Duration::from_millis(self.stdin_timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_end_alone_is_dropped_by_default() {
        let config = HookConfig::default();
        assert!(!config.allows("session_end"));
        for kept in [
            "session_start",
            "error",
            "tool_use",
            "pre_compact",
            "unknown",
        ] {
            assert!(config.allows(kept), "{kept}");
        }
    }

    #[test]
    fn a_list_without_unknown_keeps_only_what_it_names() {
        let config = HookConfig {
            allow: vec!["session_end".into(), "pre_compact".into()],
            ..HookConfig::default()
        };
        assert!(config.allows("session_end"));
        assert!(config.allows("pre_compact"));
        assert!(!config.allows("message_display"));
        assert!(!config.allows("tool_use"));
    }
}
