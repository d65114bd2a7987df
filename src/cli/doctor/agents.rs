//! Whether agent CLIs report their hook calls, and whether this release knows their events.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use jiff::Timestamp;
use lanekeeper_core::bounded_file::{self, Links};
use lanekeeper_postgres::diagnose::UnknownHook;
use lanekeeper_streams::hooks::double_fire::runs_hook;
use lanekeeper_streams::hooks::shape::AgentCli;
use serde_json::Value;

use super::check::Check;
use crate::hook::wiring;
use crate::output;

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

/// Which CLIs have our hooks in their user's settings, and when each last reported from this machine. `None` where
/// there is neither.
pub(super) fn wired(last_calls: &HashMap<String, Timestamp>, now: Timestamp) -> Option<Check> {
    let files = AgentCli::ALL.map(|cli| wiring::installed(cli).map(|path| wiring::shown(&path)));
    judge_wired(&files, last_calls, now)
}

/// `files`: in the order of [`AgentCli::ALL`].
fn judge_wired(
    files: &[Option<String>],
    last_calls: &HashMap<String, Timestamp>,
    now: Timestamp,
) -> Option<Check> {
    let mut found = Vec::new();
    for (cli, file) in AgentCli::ALL.into_iter().zip(files) {
        let called = last_calls.get(cli.agent()).map(|at| {
            let seconds = now.duration_since(*at).as_secs_f64().max(0.0);
            format!("last call {} ago", output::age(seconds))
        });
        match (file, called) {
            (Some(file), Some(called)) => found.push(format!("{cli} by {file}, {called}")),
            (Some(file), None) => found.push(format!("{cli} by {file}, no call from here yet")),
            // Its calls are told of once, beside the hooks.
            (None, Some(_)) if cli == AgentCli::CodexNotify => {}
            (None, Some(called)) => {
                found.push(format!("{cli} not by this user's settings, {called}"))
            }
            (None, None) => {}
        }
    }
    (!found.is_empty()).then(|| Check::ok("agent CLIs", found.join("; ")))
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
    fn each_cli_is_named_with_its_file_and_its_last_call() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let mut files = vec![None; AgentCli::ALL.len()];
        assert_eq!(judge_wired(&files, &HashMap::new(), now), None);
        files[0] = Some("~/.claude/settings.json".to_owned());
        files[3] = Some("~/.gemini/settings.json".to_owned());
        let at = |seconds| now - jiff::SignedDuration::from_secs(seconds);
        let calls = HashMap::from([("gemini".to_owned(), at(90)), ("codex".to_owned(), at(5))]);
        let check = judge_wired(&files, &calls, now).unwrap();
        assert_eq!(
            check.found,
            format!(
                "claude-code by ~/.claude/settings.json, no call from here yet; codex not by this user's settings, \
                 last call {} ago; gemini by ~/.gemini/settings.json, last call {} ago",
                output::age(5.0),
                output::age(90.0)
            )
        );
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
