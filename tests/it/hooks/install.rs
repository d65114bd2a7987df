//! `lanekeeper hook install` and `hook remove` with the real binary, in a home of their own.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Where the program is.
const LANEKEEPER: &str = env!("CARGO_BIN_EXE_lanekeeper");

fn run(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(LANEKEEPER);
    command
        .env_clear()
        .env("HOME", home)
        .current_dir(home)
        .args(arguments);
    command.output().unwrap()
}

fn stdout(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn hooks_of_every_cli_are_written_once_and_taken_out_again() {
    let home = tempfile::tempdir().unwrap();
    for (cli, file) in [
        ("claude-code", ".claude/settings.json"),
        ("codex", ".codex/hooks.json"),
        ("codex-notify", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("cursor", ".cursor/hooks.json"),
        ("opencode", ".config/opencode/plugins/lanekeeper.js"),
        ("qwen", ".qwen/settings.json"),
    ] {
        let path = home.path().join(file);
        let dry = run(home.path(), &["hook", "install", "--cli", cli, "--dry-run"]);
        assert!(stdout(&dry).contains("would be registered"), "{dry:?}");
        assert!(!path.exists(), "{cli}");
        let first = run(home.path(), &["hook", "install", "--cli", cli]);
        assert!(
            stdout(&first).contains(&format!("~/{file}: registered")),
            "{first:?}"
        );
        let text = fs::read_to_string(&path).unwrap();
        // It is not on PATH, so the settings have its path.
        assert!(text.contains(LANEKEEPER), "{text}");
        let again = run(
            home.path(),
            &["hook", "install", "--cli", cli, "--output", "json"],
        );
        let again: Value = serde_json::from_str(stdout(&again)).unwrap();
        assert_eq!(again["changed"], false, "{again}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let removed = run(home.path(), &["hook", "remove", "--cli", cli]);
        assert!(stdout(&removed).contains("taken out"), "{removed:?}");
        let left = fs::read_to_string(&path).unwrap_or_default();
        assert!(!left.contains("--cli"), "{left}");
    }
}

#[test]
fn a_users_link_is_followed_and_one_in_a_project_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = home.path().join("dotfiles");
    fs::create_dir(&elsewhere).unwrap();
    let file = elsewhere.join("claude.json");
    fs::write(&file, "{\"theme\": \"dark\"}\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let folder = home.path().join(".claude");
    fs::create_dir(&folder).unwrap();
    symlink(&file, folder.join("settings.json")).unwrap();
    let of_project = [
        "hook",
        "install",
        "--cli",
        "claude-code",
        "--scope",
        "project",
    ];
    let refused = run(home.path(), &of_project);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("symbolic link"), "{refused:?}");
    stdout(&run(
        home.path(),
        &["hook", "install", "--cli", "claude-code"],
    ));
    assert!(folder.join("settings.json").is_symlink());
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("StopFailure") && text.contains("\"theme\": \"dark\""),
        "{text}"
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        fs::read_dir(&elsewhere).unwrap().count(),
        1,
        "nothing is left over"
    );

    let whole = home.path().join("other");
    fs::create_dir(&whole).unwrap();
    symlink(&elsewhere, whole.join(".gemini")).unwrap();
    let mut command = Command::new(LANEKEEPER);
    command
        .current_dir(&whole)
        .args(["hook", "install", "--cli", "gemini", "--scope", "project"]);
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

#[test]
fn wrong_usage_is_an_error_for_people_and_what_cannot_be_read_is_left() {
    let home = tempfile::tempdir().unwrap();
    let unknown = run(home.path(), &["hook", "install", "--cli", "none"]);
    assert_eq!(unknown.status.code(), Some(2));
    let notify = [
        "hook",
        "install",
        "--cli",
        "codex-notify",
        "--scope",
        "project",
    ];
    assert_eq!(run(home.path(), &notify).status.code(), Some(2));
    let folder = home.path().join(".qwen");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("settings.json");
    fs::write(&path, "{\"hooks\": ").unwrap();
    let refused = run(home.path(), &["hook", "install", "--cli", "qwen"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("is left as it is"), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"hooks\": ");
}

#[test]
fn completions_and_man_pages_know_every_command_and_init_writes_its_files_once() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(home.path(), &["completions", shell]);
        let script = stdout(&script);
        assert!(
            script.contains("subscription") && script.contains("requeue"),
            "{shell}"
        );
    }
    stdout(&run(home.path(), &["man", "--dir", "man1"]));
    let page = fs::read_to_string(home.path().join("man1/lanekeeper-dead-requeue.1")).unwrap();
    assert!(page.contains("dead"), "{page}");

    let first = run(home.path(), &["init", "here"]);
    assert!(
        stdout(&first).contains("here/lanekeeper.toml written"),
        "{first:?}"
    );
    let settings = home.path().join("here/lanekeeper.toml");
    assert_eq!(
        fs::metadata(&settings).unwrap().permissions().mode() & 0o777,
        0o600
    );
    fs::write(&settings, "# mine\n").unwrap();
    let again = run(home.path(), &["init", "here"]);
    assert!(stderr(&again).contains("is there already"), "{again:?}");
    assert_eq!(fs::read_to_string(&settings).unwrap(), "# mine\n");
}
