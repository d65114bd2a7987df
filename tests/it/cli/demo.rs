//! `lanekeeper demo` ends by itself with the promised result, and leaves nothing behind.

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use crate::command::command;
use crate::support::private_server;

const LIMIT: Duration = Duration::from_secs(240);

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

/// The demo with its temporary files in `dir`.
async fn demo(dir: &Path, arguments: &[&str]) -> Ran {
    let arguments = [&["demo"], arguments].concat();
    let mut command = command(&arguments, &[("TMPDIR", dir.to_str().unwrap())]);
    if let Some(bin) = private_server().postgres_bin {
        command.env("LANEKEEPER_DEV__POSTGRES_BIN", bin);
    }
    let output = timeout(LIMIT, command.output()).await.unwrap().unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The user that runs a server for root makes and removes a folder in it, as in /tmp.
fn open_dir() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::Builder::new().prefix("lk").tempdir_in("/tmp");
    let dir = dir.unwrap();
    let mode = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(dir.path(), mode).unwrap();
    dir
}

#[tokio::test]
async fn it_delivers_everything_in_order_past_a_killed_worker_and_leaves_nothing() {
    let dir = open_dir();
    let ran = demo(dir.path(), &[]).await;
    let Ran { out, err, .. } = &ran;
    assert_eq!(ran.code, Some(0), "{out}\n{err}");
    // What the killed worker had not recorded may come again, and the demo says so.
    let once = out.contains("everything arrived once, in order");
    let again = out.contains("everything arrived, in order") && out.contains("came again");
    assert!(once || again, "{out}");
    assert!(
        out.contains("was killed (SIGKILL) while it delivered"),
        "{out}"
    );
    assert!(
        out.contains("stay in the log") && out.contains("session_end"),
        "{out}"
    );
    let all = out.lines().find(|line| line.starts_with("all "));
    let cells: Vec<&str> = all.unwrap().split_whitespace().collect();
    // all, 15 sessions, calls, events, delivered, in order, latencies
    assert_eq!(cells[3], "262", "{out}");
    let (delivered, due) = cells[5].split_once('/').unwrap();
    assert_eq!(delivered, due, "{out}");
    assert!(delivered.parse::<u32>().unwrap() > 50, "{out}");
    assert!(!out.contains('\u{1b}'), "no colours outside of a terminal");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn recordings_of_a_folder_are_fed_and_one_without_any_is_refused() {
    let dir = open_dir();
    let input = tempfile::tempdir().unwrap();
    let path = input.path().to_str().unwrap();
    let refused = demo(dir.path(), &["--input", path]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("no *.jsonl"), "{}", refused.err);

    let line = |event: &str| {
        format!(
            r#"{{"cli":"claude-code","payload":{{"session_id":"s1","hook_event_name":"{event}"}}}}"#
        )
    };
    let lines = ["SessionStart", "PreToolUse", "Stop", "SessionEnd"].map(line);
    std::fs::write(input.path().join("one.jsonl"), lines.join("\n")).unwrap();
    let ran = demo(dir.path(), &["--input", path, "--fail-every", "0"]).await;
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.out, ran.err);
    for part in [
        "4  hook calls",
        "4  events in the log",
        "-2  stay in the log",
        "2  due",
    ] {
        assert!(ran.out.contains(part), "{part:?} is missing: {}", ran.out);
    }
}
