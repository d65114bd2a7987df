//! Records that are too large, and folders that belong to another user.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use lanekeeper_producer::spool::{Record, Spool, SpoolConfig};
use lanekeeper_streams::hooks::SPOOLED;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::{Machine, NOWHERE, answered, log, numbered, prompts, run, text};
use crate::support::TestDb;

fn large(session: &str, bytes: usize) -> Vec<u8> {
    json!({"session_id": session, "hook_event_name": "Stop", "text": "x".repeat(bytes)})
        .to_string()
        .into_bytes()
}

#[tokio::test]
async fn an_oversized_call_is_set_aside_at_once_and_the_next_ones_do_not_meet_it() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    machine.hook("claude-code", &numbered("s", 0));
    let mut command = machine.command(&["hook", "--cli", "claude-code"]);
    command.env("LANEKEEPER_SPOOL__MAX_RECORD_BYTES", "65536");
    let said = answered(&mut command, &large("s", 70_000));
    assert!(said.contains("takes at most 65536"), "{said}");
    machine.hook("claude-code", &numbered("s", 2));
    let spool = machine.spool();
    let waiting = spool.waiting(&spool.file_of("s")).unwrap().unwrap();
    assert_eq!(waiting.events, 3);
    assert!(waiting.bytes < 4_096, "{waiting:?}");

    machine.url = db.url().to_owned();
    assert_eq!(machine.hook("claude-code", &numbered("s", 3)), "");
    let log = log(&db.connect().await, "s").await;
    let prompts: Vec<_> = log.iter().map(|(_, payload)| &payload["prompt"]).collect();
    let none = serde_json::Value::Null;
    assert_eq!(prompts, [&json!(0), &none, &json!(2), &json!(3)]);
    let kept = log[1].1["kept_in"].as_str().unwrap();
    let (rejection, record) = Spool::read_rejected(kept.as_ref()).unwrap();
    assert!(rejection.reason.contains("spool.max_record_bytes"));
    assert!(record.payload.get().len() > 70_000);
}

/// As an older release left it, or somebody who mended by hand.
#[tokio::test]
async fn an_oversized_record_that_lies_in_the_spool_is_set_aside_by_the_next_call() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    machine.hook("codex", &numbered("gone", 0));
    let unbounded = SpoolConfig {
        dir: Some(machine.spool().dir().to_owned()),
        max_record_bytes: 1 << 30,
        ..SpoolConfig::default()
    };
    let record = Record {
        message_id: uuid::Uuid::now_v7(),
        session: "gone".to_owned(),
        event_type: "tool_done".to_owned(),
        payload: to_raw_value(&"x".repeat(17 << 20)).unwrap(),
        headers: RawValue::from_string("{}".to_owned()).unwrap(),
    };
    Spool::new(&unbounded, SPOOLED)
        .unwrap()
        .append(&record, Duration::from_secs(1))
        .unwrap();
    machine.hook("codex", &numbered("gone", 2));
    let file = machine.spool().file_of("gone");
    age(&file);

    // Time enough to copy it, on any disk.
    machine.timeout_ms = 10_000;
    machine.url = db.url().to_owned();
    assert_eq!(machine.hook("codex", &numbered("here", 0)), "");
    assert!(!file.exists());
    let client = db.connect().await;
    let log = log(&client, "gone").await;
    assert_eq!(log.len(), 3);
    assert_eq!(
        (&log[0].1["prompt"], &log[2].1["prompt"]),
        (&json!(0), &json!(2))
    );
    assert_eq!(log[1].0, "tool_done");
    let kept = log[1].1["kept_in"].as_str().unwrap();
    let (_, whole) = Spool::read_rejected(kept.as_ref()).unwrap();
    assert!(whole.payload.get() == record.payload.get());

    let listed = run(
        &mut machine.command(&["spool", "--rejected", "--output", "json"]),
        b"",
    );
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["session"], "gone");
    assert!(
        listed["reason"].as_str().unwrap().contains("bytes"),
        "{listed}"
    );
    let said = text(&run(&mut machine.command(&["spool"]), b"").stderr);
    assert!(
        said.contains("1 events were refused or set aside"),
        "{said}"
    );
    let doctor = text(&run(&mut machine.command(&["doctor"]), b"").stdout);
    let line = doctor.lines().find(|line| line.contains("spool:")).unwrap();
    assert!(
        line.contains("set aside") && line.contains("session gone"),
        "{line}"
    );
}

#[tokio::test]
async fn a_large_record_of_another_session_is_left_to_those_who_have_the_time() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    machine.hook("codex", &large("gone", 3 << 20));
    let file = machine.spool().file_of("gone");
    age(&file);
    machine.url = db.url().to_owned();
    assert_eq!(machine.hook("codex", &numbered("here", 0)), "");
    assert!(file.exists());
    assert_eq!(machine.drain()["events"], 1);
}

#[tokio::test]
async fn a_spool_that_everybody_may_write_to_is_not_used_and_the_call_says_so() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let dir = machine.home.join("everybodys");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    let call = |url: &str, number| {
        let mut command = machine.command(&["hook", "--cli", "codex"]);
        command
            .env("DATABASE_URL", url)
            .env("LANEKEEPER_SPOOL__DIR", &dir);
        answered(&mut command, &numbered("s", number))
    };
    let said = call(db.url(), 1);
    assert!(
        said.contains("stored, but") && said.contains("every user may write to it"),
        "{said}"
    );
    let said = call(NOWHERE, 2);
    assert!(
        said.contains("LOST") && said.contains("every user may write to it"),
        "{said}"
    );
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert_eq!(prompts(&db.connect().await, "s").await, [1]);
    let mut command = machine.command(&["spool"]);
    let refused = run(command.env("LANEKEEPER_SPOOL__DIR", &dir), b"");
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("every user may write to it"));
}

#[tokio::test]
async fn a_call_that_waits_knows_the_transcript_that_was_found_after_it_was_kept() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    let session = uuid::Uuid::now_v7();
    let day = jiff::Timestamp::now().strftime("%Y/%m/%d").to_string();
    let folder = machine.home.join(".codex/sessions").join(day);
    fs::create_dir_all(&folder).unwrap();
    let transcript = folder.join(format!("rollout-2026-{session}.jsonl"));
    fs::write(&transcript, "").unwrap();
    machine.hook("codex", &numbered(&session.to_string(), 1));
    let spool = machine.spool();
    let file = spool.files().unwrap().remove(0);
    assert_eq!(spool.waiting(&file).unwrap().unwrap().events, 1);
    machine.url = db.url().to_owned();
    assert_eq!(machine.drain()["events"], 1);
    let query = "SELECT headers->>'transcript_path' FROM lanekeeper.event";
    let rows = db.connect().await.query(query, &[]).await.unwrap();
    let paths: Vec<Option<String>> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(paths, [transcript.to_str().map(str::to_owned)]);
}

/// As if nobody had written to the file for an hour.
pub(super) fn age(file: &std::path::Path) {
    let file = fs::File::options().write(true).open(file).unwrap();
    let hour_ago = SystemTime::now() - Duration::from_secs(3_600);
    file.set_modified(hour_ago).unwrap();
}
