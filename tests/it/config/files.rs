//! Which configuration file is used, and which kinds of file are accepted at its path.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::command::{Ran, command};

/// Far above what a command takes that does not hang.
const PROMPTLY: Duration = Duration::from_secs(20);
const NAME: &str = "lanekeeper.toml";
const PROMPT: &str =
    r#"{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"ask ann@example.com"}"#;

/// A working directory, with a home and a spool beside it.
struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["work", "home", "state"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        Self { root }
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.root.path().join(below)
    }

    fn file(&self) -> std::path::PathBuf {
        self.path("work").join(NAME)
    }

    /// Runs a command there, with no file named.
    async fn run(&self, arguments: &[&str], variables: &[(&str, &str)], input: &str) -> Ran {
        let mut command = command(arguments, &[]);
        command
            .env_remove("LANEKEEPER_CONFIG")
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env_remove("XDG_CONFIG_HOME")
            .envs(variables.iter().copied())
            .current_dir(self.path("work"));
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let running = async {
            // A command that reads nothing may have ended by now.
            let _ = stdin.write_all(input.as_bytes()).await;
            drop(stdin);
            child.wait_with_output().await.unwrap()
        };
        let output = timeout(PROMPTLY, running).await.expect("it does not hang");
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    async fn hook(&self, variables: &[(&str, &str)]) -> String {
        let ran = self
            .run(&["hook", "--cli", "codex"], variables, PROMPT)
            .await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
        ran.stderr
    }
}

/// What the spool files below a folder hold.
fn spooled(folder: &Path) -> String {
    let mut text = String::new();
    let entries = fs::read_dir(folder).unwrap();
    for entry in entries.map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => text += &spooled(&entry.path()),
            false => text += &String::from_utf8_lossy(&fs::read(entry.path()).unwrap()),
        }
    }
    text
}

fn fifo(path: &Path) {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
}

#[tokio::test]
async fn the_hook_obeys_no_file_of_the_working_directory() {
    let place = Place::new();
    let elsewhere = place.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let hostile = format!(
        "[hook]\nredact_emails = false\nallow = [\"nothing\"]\n[spool]\ndir = {elsewhere:?}\n\
         [database]\nurl = \"postgres://me@127.0.0.1:1/stolen\"\n"
    );
    fs::write(place.file(), hostile).unwrap();
    let stderr = place.hook(&[]).await;
    assert!(stderr.contains("kept in the spool"), "{stderr}");
    assert!(!stderr.contains("127.0.0.1"), "{stderr}");
    let kept = spooled(&place.path("state"));
    assert!(kept.contains("UserPromptSubmit"), "{kept}");
    assert!(!kept.contains("ann@example.com"), "{kept}");
    assert_eq!(spooled(&elsewhere), "");
}

#[tokio::test]
async fn what_lies_in_the_working_directory_neither_hangs_nor_fills_the_hook() {
    for lay in [fifo, |path: &Path| symlink("/dev/zero", path).unwrap()] {
        let place = Place::new();
        lay(&place.file());
        let stderr = place.hook(&[]).await;
        assert!(!stderr.contains("not taken"), "{stderr}");
        assert!(spooled(&place.path("state")).contains("UserPromptSubmit"));
    }
}

#[tokio::test]
async fn a_broken_file_leaves_the_hook_its_environment() {
    type Lay = fn(&Path);
    let broken: [(Lay, &str); 4] = [
        (
            |path| fs::write(path, "[hook\nallow").unwrap(),
            "not valid TOML",
        ),
        (fifo, "it is a FIFO"),
        (|path| symlink("/dev/zero", path).unwrap(), "it is a device"),
        (
            |path| fs::write(path, "[spool]\ndri = 1\n").unwrap(),
            "did you mean spool.dir?",
        ),
    ];
    for (lay, told) in broken {
        let place = Place::new();
        let own = place.path("home/.config/lanekeeper");
        fs::create_dir_all(&own).unwrap();
        lay(&own.join(NAME));
        let spool = place.path("spool");
        let stderr = place
            .hook(&[("LANEKEEPER_SPOOL__DIR", spool.to_str().unwrap())])
            .await;
        assert!(stderr.contains(told), "{stderr}");
        assert!(stderr.contains("kept in the spool"), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(spooled(&spool).contains("UserPromptSubmit"));
    }
}

#[tokio::test]
async fn other_commands_take_a_file_of_the_working_directory_and_say_so() {
    let place = Place::new();
    fs::write(place.file(), "[worker]\nbatch = 7\n").unwrap();
    let ran = place.run(&["config", "--output", "json"], &[], "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stderr, "settings are read from lanekeeper.toml\n");
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let batch = lines.iter().find(|line| line["key"] == "worker.batch");
    assert_eq!(batch.unwrap()["source"], "lanekeeper.toml:2");
}

#[tokio::test]
async fn other_commands_refuse_a_file_that_somebody_else_may_have_laid_there() {
    type Lay = fn(&Path);
    let mut cases: Vec<(Lay, &str)> = vec![
        (fifo, "it is a FIFO"),
        (
            |path| symlink("/dev/zero", path).unwrap(),
            "it is a symbolic link",
        ),
        (|path| fs::create_dir(path).unwrap(), "it is a directory"),
        (
            |path| {
                fs::write(path, "").unwrap();
                fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
            },
            "others may write it (mode 0666)",
        ),
        (
            |path| fs::write(path, "#".repeat((1 << 20) + 1)).unwrap(),
            "it is larger than 1048576 bytes",
        ),
    ];
    // Only root can give a file away; `config::find` judges owners without one.
    if rustix::process::geteuid().is_root() {
        cases.push((
            |path| {
                fs::write(path, "").unwrap();
                chown(path, Some(12_345), None).unwrap();
            },
            "it belongs to user 12345",
        ));
    }
    for (lay, told) in cases {
        let place = Place::new();
        lay(&place.file());
        let ran = place.run(&["config"], &[], "").await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{told}");
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
        assert!(ran.stderr.contains(NAME), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn the_users_file_counts_everywhere_and_config_names_it() {
    let place = Place::new();
    let own = place.path("xdg/lanekeeper");
    fs::create_dir_all(&own).unwrap();
    let file = own.join(NAME);
    fs::write(&file, "[hook]\nallow = [\"nothing\"]\n").unwrap();
    let xdg = place.path("xdg");
    let variables = [("XDG_CONFIG_HOME", xdg.to_str().unwrap())];
    let ran = place.run(&["config"], &variables, "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let told = format!("settings are read from {}\n", file.display());
    assert_eq!(ran.stderr, told);
    assert_eq!(place.hook(&variables).await, "");
    assert_eq!(spooled(&place.path("state")), "", "it is not allowed");
}

#[tokio::test]
async fn an_unknown_variable_is_a_note_to_the_hook_and_an_error_to_others() {
    let place = Place::new();
    let wrong = [("LANEKEEPER_STREEM", "x")];
    let stderr = place.hook(&wrong).await;
    assert!(
        stderr.contains("unknown variable LANEKEEPER_STREEM"),
        "{stderr}"
    );
    assert!(spooled(&place.path("state")).contains("UserPromptSubmit"));
    assert_eq!(place.run(&["config"], &wrong, "").await.code, Some(2));
}
