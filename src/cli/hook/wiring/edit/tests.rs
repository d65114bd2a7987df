//! Files before and after.

use serde_json::Value;

use super::*;

fn installed(cli: AgentCli, text: Option<&str>) -> Edited {
    edit(cli, text, &lanekeeper()).unwrap()
}

fn lanekeeper() -> Change {
    Change::Install {
        program: "lanekeeper".to_owned(),
    }
}

fn text(edited: &Edited) -> &str {
    edited.text.as_deref().unwrap()
}

const JSON: [AgentCli; 5] = [
    AgentCli::ClaudeCode,
    AgentCli::Codex,
    AgentCli::Gemini,
    AgentCli::Cursor,
    AgentCli::Qwen,
];

#[test]
fn a_new_file_registers_every_event_that_is_used() {
    for cli in JSON {
        let edited = installed(cli, None);
        assert_eq!(edited.added, wired(cli));
        let file: Value = serde_json::from_str(text(&edited)).unwrap();
        let hooks = file["hooks"].as_object().unwrap();
        let mut events: Vec<&str> = hooks.keys().map(String::as_str).collect();
        let mut expected = wired(cli);
        events.sort_unstable();
        expected.sort_unstable();
        assert_eq!(events, expected);
        let command = format!("lanekeeper hook --cli {cli}");
        for entries in hooks.values() {
            let found = match Format::of(cli) {
                Format::Commands => &entries[0]["command"],
                _ => &entries[0]["hooks"][0]["command"],
            };
            assert_eq!(*found, *command);
        }
    }
    let cursor: Value = serde_json::from_str(text(&installed(AgentCli::Cursor, None))).unwrap();
    assert_eq!(cursor["version"], 1);
}

#[test]
fn installed_again_nothing_changes_and_removed_the_file_is_as_before() {
    let before = r#"{
  // How I like it.
  "theme": "dark",
  "hooks": {
    "Stop": [
      {"hooks": [{"type": "command", "command": "say done"}]}, // loud
    ],
    "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}]
  },
  "version": 3
}
"#;
    for cli in JSON {
        let edited = installed(cli, Some(before));
        assert_eq!(edited.added, wired(cli), "{cli}");
        let after = text(&edited);
        for kept in [
            "// How I like it.",
            "// loud",
            "say done",
            "\"Bash\"",
            "\"version\": 3",
        ] {
            assert!(after.contains(kept), "{kept}: {after}");
        }
        let again = installed(cli, Some(after));
        assert!(!again.is_changed() && text(&again) == after, "{cli}");
        let removed = edit(cli, Some(after), &Change::Remove).unwrap();
        let mut events = removed.removed.clone();
        let mut added = edited.added.clone();
        events.sort_unstable();
        added.sort_unstable();
        assert_eq!(events, added);
        let value = |text: &str| {
            let root = CstRootNode::parse(text, &ParseOptions::default()).unwrap();
            root.to_serde_value().unwrap()
        };
        assert_eq!(value(text(&removed)), value(before), "{cli}");
        assert!(text(&removed).contains("// loud"));
        let nothing = edit(cli, Some(before), &Change::Remove).unwrap();
        assert!(!nothing.is_changed());
    }
}

#[test]
fn a_program_that_moved_is_updated_and_one_with_a_matcher_is_left() {
    let before = r#"{"hooks": {
      "Stop": [{"hooks": [{"type": "command", "command": "/old/lanekeeper hook --cli claude-code"}]}],
      "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "lanekeeper hook --cli claude-code"}]}]
    }}"#;
    let change = Change::Install {
        program: "/my programs/it's/lanekeeper".to_owned(),
    };
    let edited = edit(AgentCli::ClaudeCode, Some(before), &change).unwrap();
    assert_eq!(edited.updated, ["Stop"]);
    assert_eq!(edited.matched, ["PreToolUse"]);
    assert_eq!(edited.added.len(), wired(AgentCli::ClaudeCode).len() - 2);
    let file: Value = serde_json::from_str(text(&edited)).unwrap();
    assert_eq!(
        file["hooks"]["Stop"][0]["hooks"][0]["command"],
        r"'/my programs/it'\''s/lanekeeper' hook --cli claude-code"
    );
}

#[test]
fn a_file_of_another_shape_is_left_as_it_is() {
    let told = |text: &str| edit(AgentCli::Gemini, Some(text), &lanekeeper()).unwrap_err();
    assert!(matches!(told("{\"hooks\": "), Refusal::NotJson(_)));
    assert!(matches!(told("[]"), Refusal::Shape { .. }));
    assert!(matches!(told(r#"{"hooks": []}"#), Refusal::Shape { .. }));
    let of_event = told(r#"{"hooks": {"BeforeTool": 3}}"#).to_string();
    assert!(
        of_event.contains("`BeforeTool` in it is not a list"),
        "{of_event}"
    );
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(told(&deep), Refusal::NotJson(_)));
}

#[test]
fn the_notify_line_of_codex_stands_before_all_tables() {
    let cli = AgentCli::CodexNotify;
    let before = "# mine\nmodel = \"o\"\n\n[tui]\nnotify = true\n";
    let edited = installed(cli, Some(before));
    let line = "notify = [\"lanekeeper\", \"hook\", \"--cli\", \"codex-notify\"]\n";
    assert_eq!(text(&edited), format!("{line}{before}"));
    assert!(!installed(cli, Some(text(&edited))).is_changed());
    let removed = edit(cli, Some(text(&edited)), &Change::Remove).unwrap();
    assert_eq!(text(&removed), before);
    let old = text(&edited).replace("\"lanekeeper\"", "\"/old/lanekeeper\"");
    let updated = installed(cli, Some(&old));
    assert_eq!(text(&updated), text(&edited));
    assert_eq!(updated.updated, ["notify"]);
    let other = edit(cli, Some("notify = [\"bell\"]\n"), &lanekeeper()).unwrap_err();
    assert!(matches!(other, Refusal::OtherNotify(_)), "{other}");
    let kept = edit(cli, Some("notify = [\"bell\"]\n"), &Change::Remove).unwrap();
    assert!(!kept.is_changed());
    assert!(matches!(
        edit(cli, Some("= 3"), &lanekeeper()).unwrap_err(),
        Refusal::NotToml(_)
    ));
}

#[test]
fn the_plugin_is_a_file_of_its_own_and_nobody_elses_is_replaced() {
    let cli = AgentCli::OpenCode;
    let edited = installed(cli, None);
    assert_eq!(text(&edited), PLUGIN);
    assert!(!installed(cli, Some(PLUGIN)).is_changed());
    let moved = Change::Install {
        program: "/a \"b\"/lanekeeper".to_owned(),
    };
    let moved = edit(cli, Some(PLUGIN), &moved).unwrap();
    assert_eq!(moved.updated, ["plugin"]);
    assert!(
        text(&moved)
            .contains(r#"const program = ["/a \"b\"/lanekeeper", ["hook", "--cli", "opencode"]]"#)
    );
    let other = edit(cli, Some("export const Other = 1"), &lanekeeper()).unwrap_err();
    assert!(matches!(other, Refusal::OtherPlugin));
    let removed = edit(cli, Some(PLUGIN), &Change::Remove).unwrap();
    assert!(removed.is_changed() && removed.text.is_none());
}
