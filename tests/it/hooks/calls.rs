//! One hook call: what is stored, and that the agent notices nothing.

use std::fs;
use std::io::Write as _;

use serde_json::{Value, json};

use super::{Machine, NOWHERE, answered, log, numbered};
use crate::support::TestDb;

#[tokio::test]
async fn a_hook_call_is_one_event_with_its_payload_and_where_it_came_from() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let payload = json!({
        "session_id": "s-1", "hook_event_name": "PostToolUse", "cwd": "/p",
        "tool_response": {"stdout": "by\nuser@example.com\u{0}", "n": 1.50},
    });
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut command = machine.command(&["hook", "--cli", "claude-code"]);
    let stderr = answered(
        command.env("TRACEPARENT", trace),
        payload.to_string().as_bytes(),
    );
    assert_eq!(stderr, "");

    let client = db.connect().await;
    let (event_type, stored) = log(&client, "s-1").await.remove(0);
    assert_eq!(event_type, "tool_done");
    assert_eq!(stored["tool_response"]["stdout"], "by\n[email]\u{fffd}");
    assert_eq!(stored["tool_response"]["n"], 1.50);
    let headers: Value = client
        .query_one("SELECT headers FROM lanekeeper.event", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(headers["cli"], "claude-code");
    assert_eq!(headers["native_event"], "PostToolUse");
    assert_eq!(headers["native_session_id"], "s-1");
    assert_eq!(headers["cwd"], "/p");
    assert_eq!(headers["traceparent"], trace);
    assert_eq!(headers["lanekeeper-repaired"], json!(["nul"]));
    assert!(!machine.spool().holds("s-1"));
}

#[tokio::test]
async fn equal_payloads_are_stored_as_often_as_they_came() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let stop = br#"{"session_id":"s","hook_event_name":"Stop"}"#;
    for _ in 0..2 {
        assert_eq!(machine.hook("claude-code", stop), "");
    }
    assert_eq!(log(&db.connect().await, "s").await.len(), 2);
}

#[tokio::test]
async fn what_is_not_on_the_allowlist_is_dropped_without_a_word() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let end = br#"{"session_id":"s","hook_event_name":"SessionEnd","reason":"exit"}"#;
    let mut command = machine.command(&["hook", "--cli", "gemini"]);
    answered(command.env("LANEKEEPER_HOOK__ALLOW", "agent_stop"), end);
    assert_eq!(log(&db.connect().await, "s").await.len(), 0);
    assert_eq!(machine.hook("gemini", end), "");
    assert_eq!(
        log(&db.connect().await, "s").await.len(),
        1,
        "by default it is stored"
    );
}

#[tokio::test]
async fn codex_notify_passes_its_payload_as_the_last_argument() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let payload = r#"{"type":"agent-turn-complete","thread-id":"t","last-assistant-message":"ok"}"#;
    answered(
        &mut machine.command(&["hook", "--cli", "codex-notify", payload]),
        b"",
    );
    machine.hook("codex-notify", payload.as_bytes());
    let log = log(&db.connect().await, "t").await;
    assert_eq!(log.len(), 2);
    assert!(log.iter().all(|(event_type, _)| event_type == "agent_stop"));
}

#[tokio::test]
async fn nesting_at_the_limit_is_stored_and_nesting_beyond_any_limit_is_kept() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let deep = |levels: usize| {
        let (open, close) = ("{\"a\":[".repeat(levels / 2), "]}".repeat(levels / 2));
        format!(r#"{{"session_id":"s","hook_event_name":"Stop","a":{open}{close}}}"#)
    };
    for levels in [998, 10_000, 200_000] {
        machine.hook("codex", deep(levels).as_bytes());
    }
    let client = db.connect().await;
    let rows = client
        .query(
            "SELECT payload::jsonb->>'undecodable' FROM lanekeeper.event ORDER BY seq",
            &[],
        )
        .await
        .unwrap();
    let kept: Vec<Option<String>> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(kept, [None, Some(deep(10_000)), Some(deep(200_000))]);
}

#[tokio::test]
async fn an_undecodable_payload_is_an_error_event_of_its_session() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let stderr = machine.hook(
        "cursor",
        b"{\"session_id\":\"s\",\"command\":\"ls\xff\", broken",
    );
    assert!(stderr.contains("kept as text"), "{stderr}");
    machine.hook("cursor", b"");
    let client = db.connect().await;
    let (event_type, payload) = log(&client, "s").await.remove(0);
    assert_eq!(event_type, "error");
    assert_eq!(payload["code"], "undecodable_payload");
    assert_eq!(log(&client, "unattributed-cursor").await.len(), 1);
}

#[test]
fn wrong_usage_and_a_broken_configuration_exit_0_too() {
    let machine = Machine::new(NOWHERE);
    for arguments in [
        &["hook"][..],
        &["hook", "--cli", "claude"],
        &["hook", "--cli"],
        &["hook", "--no-such-flag"],
        &["--config", "missing.toml", "hook", "--cli", "codex"],
    ] {
        let stderr = answered(&mut machine.command(arguments), &numbered("s", 0));
        assert!(!stderr.is_empty(), "{arguments:?}");
    }
    // The configuration could not be read, but the call was kept.
    assert!(machine.spool().holds("s"));
    let stderr = machine.hook("cursor", &numbered("t", 0));
    assert!(stderr.contains("kept in the spool"), "{stderr}");
}

#[test]
fn an_event_that_can_be_kept_nowhere_is_called_lost() {
    let machine = Machine::new(NOWHERE);
    let mut command = machine.command(&["hook", "--cli", "codex"]);
    command.env("LANEKEEPER_SPOOL__DIR", "/dev/null/spool");
    let stderr = answered(&mut command, &numbered("s", 0));
    assert!(
        stderr.contains("LOST") && stderr.contains("/dev/null/spool"),
        "{stderr}"
    );
}

#[test]
fn a_pipe_that_stays_open_does_not_hang_the_agent() {
    let machine = Machine::new(NOWHERE);
    let mut command = machine.command(&["hook", "--cli", "codex"]);
    let mut child = command
        .env("LANEKEEPER_HOOK__STDIN_TIMEOUT_MS", "200")
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&numbered("s", 0)).unwrap();
    let status = child.wait().unwrap();
    drop(stdin);
    assert!(status.success());
    assert!(machine.spool().holds("s"));
}

#[tokio::test]
async fn cursors_copy_through_claude_codes_hooks_is_left_out_where_its_own_hook_is_wired() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let payload = br#"{"conversation_id":"c","hook_event_name":"preToolUse","cursor_version":"3.8","tool_use_id":"t"}"#;
    assert_eq!(machine.hook("claude-code", payload), "");
    fs::create_dir(machine.home.join(".cursor")).unwrap();
    let hooks = json!({"version": 1, "hooks": {"preToolUse": [{"command": "lanekeeper hook --cli cursor"}]}});
    fs::write(machine.home.join(".cursor/hooks.json"), hooks.to_string()).unwrap();
    assert_eq!(machine.hook("claude-code", payload), "");
    assert_eq!(machine.hook("cursor", payload), "");
    assert_eq!(log(&db.connect().await, "c").await.len(), 2);
}

#[test]
fn everything_that_a_call_has_to_say_is_one_line() {
    let machine = Machine::new(NOWHERE);
    let mut command = machine.command(&["hook", "--cli", "cursor"]);
    command
        .env("LANEKEEPER_HOOK__TIMEOUT", "1")
        .env("LANEKEEPER_HOOK__ALOW", "x");
    let stderr = answered(&mut command, b"{\"session_id\":\"s\", broken");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for told in [
        "LANEKEEPER_HOOK__TIMEOUT_MS",
        "LANEKEEPER_HOOK__ALLOW",
        "kept as text",
        "kept in the spool",
    ] {
        assert!(stderr.contains(told), "{told}: {stderr}");
    }
}
