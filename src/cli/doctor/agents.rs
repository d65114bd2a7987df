//! Whether agent CLIs report their hook calls, and whether this release knows their events.

use std::fmt::Write as _;
use std::path::Path;

use lanekeeper_core::bounded_file::{self, Links};
use lanekeeper_postgres::diagnose::UnknownHook;
use lanekeeper_streams::hooks::double_fire::runs_hook;
use lanekeeper_streams::hooks::shape::AgentCli;
use serde_json::Value;

use super::check::Check;

/// Larger than this and it is no file that a person wrote.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Kinds of unknown events that are named.
pub(super) const NAMED: i64 = 10;

/// Native events of the newest sessions whose types this release does not know.
pub(super) fn unknown_events(unknown: &[UnknownHook]) -> Check {
    const NAME: &str = "hook events";
    if unknown.is_empty() {
        return Check::ok(NAME, "those of the newest sessions are of known types");
    }
    let mut found = String::from("unknown to this release:");
    for (at, one) in unknown.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let event = one.native_event.as_deref().unwrap_or("without a name");
        write!(found, "{comma} {} {event} ({})", one.cli, one.events).expect("a String takes all");
    }
    Check::warn(
        NAME,
        found,
        "they are stored under their own names; the agent registry does not see them, and only subscriptions whose `events` name them get them: see whether a newer release knows them",
    )
}

/// Whether Codex would run the hooks of ours that this user's folder of it has. `None` where there are none.
pub(super) fn codex_trust(home: &Path) -> Option<Check> {
    let path = home.join("hooks.json");
    let hooks = serde_json::from_str(&small_file(&path)?).ok()?;
    let config = small_file(&home.join("config.toml")).unwrap_or_default();
    judge_codex_trust(&hooks, &config, &path.display().to_string())
}

/// Codex keeps a hash for each handler that a person trusted, under the file's path, the event and the
/// handler's place. Whether the hash is still the handler's is left to Codex.
fn judge_codex_trust(hooks: &Value, config: &str, path: &str) -> Option<Check> {
    const NAME: &str = "codex hooks";
    let keys = keys_of_ours(hooks, path);
    if keys.is_empty() {
        return None;
    }
    let config: toml::Table = config.parse().unwrap_or_default();
    let trusted = config
        .get("hooks")
        .and_then(|hooks| hooks.get("state")?.as_table());
    let is_trusted = |key: &&String| {
        let state = trusted.and_then(|state| state.get(*key));
        state.is_some_and(|state| {
            let enabled = state.get("enabled").and_then(toml::Value::as_bool);
            state.get("trusted_hash").is_some() && enabled != Some(false)
        })
    };
    let (all, trusted) = (keys.len(), keys.iter().filter(is_trusted).count());
    let found = format!("{trusted} of {all} in {path} were trusted by this user");
    Some(match trusted == all {
        true => Check::ok(NAME, found),
        false => Check::warn(
            NAME,
            format!("{found}; Codex runs no other, and `codex exec` does not say so"),
            "start `codex` as this user and trust them (/hooks); in CI pass --dangerously-bypass-hook-trust where nobody else can write the hooks",
        ),
    })
}

fn keys_of_ours(hooks: &Value, path: &str) -> Vec<String> {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut keys = Vec::new();
    for (event, groups) in hooks["hooks"].as_object().into_iter().flatten() {
        let event = lanekeeper_streams::hooks::event_type::snake_case(event);
        for (group, entry) in array(groups).iter().enumerate() {
            for (place, handler) in array(&entry["hooks"]).iter().enumerate() {
                let command = handler["command"].as_str().unwrap_or_default();
                if runs_hook(command, AgentCli::Codex) {
                    keys.push(format!("{path}:{event}:{group}:{place}"));
                }
            }
        }
    }
    keys
}

fn small_file(path: &Path) -> Option<String> {
    bounded_file::read(path, Links::Followed, MAX_FILE_BYTES).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::check::Status;
    use super::*;

    #[test]
    fn unknown_events_are_named_with_their_cli_and_number() {
        let unknown = [
            UnknownHook {
                cli: "codex".to_owned(),
                native_event: Some("BrandNew".to_owned()),
                events: 3,
            },
            UnknownHook {
                cli: "gemini".to_owned(),
                native_event: None,
                events: 1,
            },
        ];
        let check = unknown_events(&unknown);
        assert_eq!(check.status, Status::Warn);
        assert_eq!(
            check.found,
            "unknown to this release: codex BrandNew (3), gemini without a name (1)"
        );
        assert_eq!(unknown_events(&[]).status, Status::Ok);
    }

    #[test]
    fn hooks_of_ours_that_codex_was_not_told_to_trust_are_found() {
        let entry = |command: &str| json!([{"hooks": [{"type": "command", "command": command}]}]);
        let ours = entry("lanekeeper hook --cli codex");
        let hooks =
            json!({"hooks": {"Stop": ours, "SessionEnd": ours, "PreToolUse": entry("other")}});
        let of = |config: &str| judge_codex_trust(&hooks, config, "/h/hooks.json").unwrap();
        let trust = |event: &str, more: &str| {
            format!(
                "[hooks.state.\"/h/hooks.json:{event}:0:0\"]\ntrusted_hash = \"sha256:1\"\n{more}\n"
            )
        };
        assert_eq!(of("").status, Status::Warn);
        assert_eq!(of("not = = toml").status, Status::Warn);
        let one = of(&trust("stop", ""));
        assert_eq!(one.status, Status::Warn);
        assert!(one.found.starts_with("1 of 2 in /h/hooks.json"), "{one:?}");
        let both = trust("stop", "") + &trust("session_end", "enabled = true");
        assert_eq!(of(&both).status, Status::Ok);
        let off = trust("stop", "") + &trust("session_end", "enabled = false");
        assert_eq!(of(&off).status, Status::Warn);
        let others = json!({"hooks": {"Stop": entry("other hook --cli codex")}});
        assert_eq!(judge_codex_trust(&others, "", "/h/hooks.json"), None);
    }
}
