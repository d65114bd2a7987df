//! Settings of `lanekeeper hook` and of the agent registry: keys under `hook`, or `LANEKEEPER_HOOK__…`.

use std::time::Duration;

use lanekeeper_core::section;

use super::event_type::{MAPPED, UNKNOWN};

section! {
    /// `lanekeeper hook`, which agent CLIs call, and what is shown of their sessions.
    #[derive(PartialEq, Eq)]
    HookConfig {
        /// Event types that are stored; `unknown` stands for every one outside the eight that native names are
        /// mapped to.
        allow: Vec<String> = MAPPED
            .into_iter()
            .chain([UNKNOWN])
            .map(String::from)
            .collect(),
        /// Whether e-mail addresses are replaced by `[email]` before anything is stored.
        redact_emails: bool = true,
        /// How long a hook call may spend on Postgres; after that the call goes to the spool.
        timeout_ms: u64 = 300,
        /// How long a hook call waits for the next byte on standard input.
        stdin_timeout_ms: u64 = 1_000,
        /// How much is read of one call; the rest is left out, and the event says so.
        max_input_bytes: usize = 64 << 20,
        /// After how many seconds without any event a running turn is shown as stale.
        stale_after_s: u32 = 1_800,
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
    fn every_type_is_stored_by_default() {
        let config = HookConfig::default();
        for kept in [
            "session_start",
            "session_end",
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
