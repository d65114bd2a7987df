//! If Codex does not name its transcript, the hook call finds it on the agent's host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::Office;
use crate::support::lanekeeper;

/// Born on 2025-03-18 UTC.
const SESSION: &str = "0195a6b0-0000-7123-8abc-0123456789ab";

async fn hook(
    office: &Office,
    home: &Path,
    cli: &str,
    payload: &Value,
    variables: &[(&str, &Path)],
) {
    let mut command = lanekeeper();
    command
        .args(["hook", "--cli", cli])
        .env("DATABASE_URL", office.db.url())
        .env("HOME", home)
        .env_remove("CODEX_HOME")
        .env("LANEKEEPER_HOOK__TIMEOUT_MS", "10000")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let payload = payload.to_string();
    if cli == "codex-notify" {
        command.arg(&payload);
    }
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // One that has its payload as an argument may have ended by now.
    let _ = stdin.write_all(payload.as_bytes()).await;
    drop(stdin);
    let ended = child.wait_with_output().await.unwrap();
    assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), &b""[..]));
}

fn plant(codex_home: &Path) -> PathBuf {
    let day = codex_home.join("sessions/2025/03/18");
    fs::create_dir_all(&day).unwrap();
    let path = day.join(format!("rollout-2025-03-18T09-00-00-{SESSION}.jsonl"));
    fs::write(&path, "{}\n").unwrap();
    path
}

fn call(event: &str, transcript: Value) -> Value {
    json!({"session_id": SESSION, "transcript_path": transcript, "cwd": "/p", "hook_event_name": event,
           "prompt": "p", "source": "startup", "turn_id": "t"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_transcript_is_found_when_it_is_there() {
    let office = Office::new().await;
    let home = tempfile::tempdir().unwrap();
    let codex_home = home.path().join(".codex");
    hook(
        &office,
        home.path(),
        "codex",
        &call("SessionStart", Value::Null),
        &[],
    )
    .await;
    office.work().await;
    let entry = office.entry(SESSION).await.unwrap();
    assert!(entry["transcript_path"].is_null(), "not written yet");

    let path = plant(&codex_home);
    hook(
        &office,
        home.path(),
        "codex",
        &call("UserPromptSubmit", Value::Null),
        &[],
    )
    .await;
    office.work().await;
    let entry = office.entry(SESSION).await.unwrap();
    assert_eq!(entry["transcript_path"], path.to_str().unwrap());
    assert_eq!(entry["transcript_from"], "lookup");

    // The agent knows better, and is believed from then on.
    hook(
        &office,
        home.path(),
        "codex",
        &call("Stop", json!("/own.jsonl")),
        &[],
    )
    .await;
    hook(
        &office,
        home.path(),
        "codex",
        &call("UserPromptSubmit", Value::Null),
        &[],
    )
    .await;
    office.work().await;
    let entry = office.entry(SESSION).await.unwrap();
    assert_eq!(
        (&entry["transcript_path"], &entry["transcript_from"]),
        (&json!("/own.jsonl"), &json!("cli"))
    );
    let stored = "SELECT count(*) FROM lanekeeper.event WHERE payload::text::jsonb ->> 'transcript_path' IS NULL AND seq IN (1, 2, 4)";
    assert_eq!(
        office.count(stored).await,
        3,
        "payloads stay as they were sent"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn notify_finds_it_under_codex_home_and_other_clis_do_not_look() {
    let office = Office::new().await;
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = plant(elsewhere.path());
    let variables = [("CODEX_HOME", elsewhere.path())];
    let notify = json!({"type": "agent-turn-complete", "thread-id": SESSION, "turn-id": "t", "cwd": "/p",
                        "input-messages": ["p"]});
    hook(&office, home.path(), "codex-notify", &notify, &variables).await;
    let cursor = json!({"conversation_id": "u", "hook_event_name": "stop", "cursor_version": "3"});
    hook(&office, home.path(), "cursor", &cursor, &variables).await;
    office.work().await;
    assert_eq!(
        office.entry(SESSION).await.unwrap()["transcript_path"],
        path.to_str().unwrap()
    );
    assert!(office.entry("u").await.unwrap()["transcript_path"].is_null());
}
