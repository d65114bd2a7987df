//! Cursor runs the hooks of Claude Code beside its own.
//!
//! With its third-party setting on, Cursor runs every matching hook of `.cursor/hooks.json` and of
//! Claude Code's settings, and hands both the same payload, `cursor_version` included
//! (<https://cursor.com/docs/reference/third-party-hooks>). Who wired Lanekeeper into both gets each
//! event twice, within milliseconds.
//!
//! Equal payloads prove nothing, and neither does an equal `tool_use_id`: Cursor repeats those. What
//! does: the copy that came through Claude Code's wiring is marked by `cursor_version`, and the user's
//! own `~/.cursor/hooks.json` says whether the same event reaches us by itself. Only then is the copy
//! left out. Wherever that is not certain (a matcher on the entry, hooks of a team or an enterprise,
//! which are in no file here) it is kept: twice is better than never.
//!
//! The `hooks.json` of a workspace is not read. A cloned repository brings it, and could have our
//! calls vanish with an entry that only looks like ours.

use std::collections::BTreeMap;
use std::path::Path;

use lanekeeper_core::bounded_file::{self, Links};
use serde::Deserialize;

use super::shape::{AgentCli, Fields};

#[derive(Deserialize)]
struct HooksFile {
    hooks: BTreeMap<String, Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    command: String,
    matcher: Option<serde::de::IgnoredAny>,
}

/// Larger than this and it is no file that a person wrote.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Whether Cursor reports this event through its own hooks as well. Reads the user's file of Cursor:
/// to be asked only of calls that Cursor made through Claude Code's wiring.
pub fn cursor_reports_itself(fields: &Fields, home: Option<&Path>) -> bool {
    let Some(event) = fields.native_event.as_deref() else {
        return false;
    };
    // A relative one would lead into the workspace.
    home.filter(|home| home.is_absolute())
        .is_some_and(|home| registers(&home.join(".cursor").join("hooks.json"), event))
}

fn registers(file: &Path, event: &str) -> bool {
    // A file that is missing or cannot be read is no proof.
    let Ok(text) = bounded_file::read(file, Links::Followed, MAX_FILE_BYTES) else {
        return false;
    };
    let Ok(file) = serde_json::from_str::<HooksFile>(&text) else {
        return false;
    };
    file.hooks.get(event).is_some_and(|entries| {
        entries
            .iter()
            .any(|e| e.matcher.is_none() && runs_hook(&e.command, AgentCli::Cursor))
    })
}

/// Whether a command of a CLI's wiring runs `lanekeeper hook` for that CLI.
pub fn runs_hook(command: &str, cli: AgentCli) -> bool {
    let words: Vec<&str> = command
        .split_whitespace()
        .map(|w| w.trim_matches(['"', '\'']))
        .collect();
    let program = words.iter().position(|word| {
        Path::new(word)
            .file_stem()
            .is_some_and(|name| name == "lanekeeper")
    });
    let names_it = words.windows(2).any(|pair| pair == ["--cli", cli.name()])
        || words.contains(&&*format!("--cli={cli}"));
    program.is_some_and(|at| words[at..].contains(&"hook")) && names_it
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};
    use serde_json::{Value, json};

    use super::*;

    const WIRED: &str = r#"{"hooks":{"preToolUse":[{"command":"lanekeeper hook --cli cursor"}]}}"#;

    /// Asks with what `make` puts into the place of the user's file.
    fn asked_of(make: impl FnOnce(&Path)) -> bool {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".cursor")).unwrap();
        make(&home.path().join(".cursor/hooks.json"));
        cursor_reports_itself(&tool_use(&json!([])), Some(home.path()))
    }

    fn asked(hooks: &str) -> bool {
        asked_of(|file| fs::write(file, hooks).unwrap())
    }

    fn tool_use(workspace_roots: &Value) -> Fields {
        let payload = json!({"hook_event_name": "preToolUse", "workspace_roots": workspace_roots});
        let payload = serde_json::value::to_raw_value(&payload).unwrap();
        Fields::of(AgentCli::ClaudeCode, &payload)
    }

    #[test]
    fn a_copy_is_left_out_only_where_cursors_own_hook_is_wired_for_the_event() {
        for command in [
            "lanekeeper hook --cli cursor",
            "\\\"/opt/bin/lanekeeper\\\" hook --cli=cursor",
        ] {
            assert!(asked(&format!(
                r#"{{"version":1,"hooks":{{"preToolUse":[{{"command":"{command}"}}]}}}}"#
            )));
        }
        for hooks in [
            r#"{"hooks":{"stop":[{"command":"lanekeeper hook --cli cursor"}]}}"#,
            r#"{"hooks":{"preToolUse":[{"command":"lanekeeper hook --cli cursor","matcher":"Shell"}]}}"#,
            r#"{"hooks":{"preToolUse":[{"command":"other hook --cli cursor"}]}}"#,
            r#"{"hooks":{"preToolUse":[{"command":"lanekeeper hook --cli claude-code"}]}}"#,
            r#"{"hooks":{"preToolUse":[{"prompt":"no"}]}}"#,
            "not json",
        ] {
            assert!(!asked(hooks), "{hooks}");
        }
    }

    #[test]
    fn what_is_no_file_in_the_place_of_cursors_neither_hangs_the_call_nor_proves_anything() {
        assert!(!asked_of(|file| {
            mkfifoat(CWD, file, Mode::RUSR | Mode::WUSR).unwrap();
        }));
        assert!(!asked_of(|file| symlink("/dev/zero", file).unwrap()));
        assert!(!asked_of(|file| fs::create_dir(file).unwrap()));
        assert!(!asked(&(WIRED.to_owned() + &" ".repeat(1 << 20))));
    }

    #[test]
    fn the_users_file_may_be_a_link_to_where_the_user_keeps_it() {
        let elsewhere = tempfile::tempdir().unwrap();
        let kept = elsewhere.path().join("hooks.json");
        fs::write(&kept, WIRED).unwrap();
        assert!(asked_of(|file| symlink(&kept, file).unwrap()));
    }

    #[test]
    fn hooks_that_a_workspace_brings_make_no_call_vanish() {
        let workspace = tempfile::tempdir().unwrap();
        fs::create_dir(workspace.path().join(".cursor")).unwrap();
        fs::write(workspace.path().join(".cursor/hooks.json"), WIRED).unwrap();
        let call = tool_use(&json!([workspace.path()]));
        let home = tempfile::tempdir().unwrap();
        assert!(!cursor_reports_itself(&call, Some(home.path())));
        assert!(cursor_reports_itself(&call, Some(workspace.path())));
    }

    #[test]
    fn without_files_the_copy_is_kept() {
        let fields = Fields {
            native_event: Some("stop".into()),
            ..Fields::default()
        };
        assert!(!cursor_reports_itself(&fields, None));
        assert!(!cursor_reports_itself(
            &fields,
            Some(Path::new("/nonexistent"))
        ));
    }
}
