//! Cursor runs the hooks of Claude Code beside its own.
//!
//! With its third-party setting on, Cursor runs every matching hook of `.cursor/hooks.json` and of
//! Claude Code's settings, and hands both the same payload, `cursor_version` included
//! (<https://cursor.com/docs/reference/third-party-hooks>). Who wired Lanekeeper into both gets each
//! event twice, within milliseconds.
//!
//! Equal payloads prove nothing, and neither does an equal `tool_use_id`: Cursor repeats those. What
//! does: the copy that came through Claude Code's wiring is marked by `cursor_version`, and Cursor's
//! own `hooks.json` says whether the same event reaches us by itself. Only then is the copy left
//! out. Wherever that is not certain (a matcher on the entry, hooks of a team or an enterprise,
//! which are in no file here) it is kept: twice is better than never.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use std::collections::BTreeMap;

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

/// Whether Cursor reports this event through its own hooks as well. Reads Cursor's files: to be
/// asked only of calls that Cursor made through Claude Code's wiring.
pub fn cursor_reports_itself(fields: &Fields, home: Option<&Path>) -> bool {
    let Some(event) = fields.native_event.as_deref() else {
        return false;
    };
    let roots = fields.workspace_roots.iter().map(PathBuf::from);
    home.map(Path::to_owned)
        .into_iter()
        .chain(roots)
        .any(|folder| registers(&folder.join(".cursor").join("hooks.json"), event))
}

fn registers(file: &Path, event: &str) -> bool {
    // A file that is missing or cannot be read is no proof.
    let small = fs::metadata(file).is_ok_and(|meta| meta.len() <= MAX_FILE_BYTES);
    let Some(text) = small.then(|| fs::read_to_string(file).ok()).flatten() else {
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
    use super::*;

    fn asked(hooks: &str) -> bool {
        let home = std::env::temp_dir().join(format!("lanekeeper-cursor-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(home.join(".cursor")).unwrap();
        fs::write(home.join(".cursor/hooks.json"), hooks).unwrap();
        let fields = Fields {
            native_event: Some("preToolUse".into()),
            ..Fields::default()
        };
        let answer = cursor_reports_itself(&fields, Some(&home));
        fs::remove_dir_all(home).unwrap();
        answer
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
