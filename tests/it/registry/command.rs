//! The agent registry in commands: `session list`, `session show`, and its lanes, which are like any others.

use serde_json::{Value, json};

use super::Office;
use crate::command::run;

async fn ran(office: &Office, arguments: &[&str]) -> String {
    let ran = run(arguments, &[("DATABASE_URL", office.db.url())], "").await;
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
    ran.stdout
}

async fn listed(office: &Office, filters: &[&str]) -> Vec<String> {
    let arguments = [&["session", "list", "--output", "json"], filters].concat();
    let out = ran(office, &arguments).await;
    out.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|session| session["session"].as_str().unwrap().to_owned())
        .collect()
}

async fn office() -> Office {
    let office = Office::new().await;
    let prompt = |session: &str| {
        json!({"session_id": session, "hook_event_name": "UserPromptSubmit", "prompt": "find \u{1b}[2J it",
               "cwd": "/home/dev/p", "model": "large", "transcript_path": "/t.jsonl"})
    };
    office.call("claude-code", &prompt("idle")).await;
    let stop = json!({"session_id": "idle", "hook_event_name": "Stop"});
    office.call("claude-code", &stop).await;
    office.call("claude-code", &prompt("busy")).await;
    office.call("codex", &prompt("codex")).await;
    let notify =
        json!({"type": "agent-turn-complete", "thread-id": "notified", "input-messages": []});
    office.call("codex-notify", &notify).await;
    office
        .client
        .batch_execute("SELECT lanekeeper.enqueue('runs', 'run-1', 'step', '{}')")
        .await
        .unwrap();
    office.work().await;
    office
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_by_agent_and_turn_the_newest_first() {
    let office = office().await;
    for (filters, expected) in [
        (&[][..], &["run-1", "notified", "codex", "busy", "idle"][..]),
        (&["--turn", "running"], &["codex", "busy"]),
        (&["--turn", "idle"], &["notified", "idle"]),
        (&["--cli", "claude-code"], &["busy", "idle"]),
        (&["--cli", "codex-notify"], &["notified", "codex"]),
        (&["--cli", "codex", "--turn", "running"], &["codex"]),
        (&["--turn", "idle", "--limit", "1"], &["notified"]),
        (&["--turn", "idle", "--stream", "runs"], &[]),
        (
            &["--turn", "running", "--stream", "hooks"],
            &["codex", "busy"],
        ),
    ] {
        assert_eq!(listed(&office, filters).await, expected, "{filters:?}");
    }
    let variables = [("DATABASE_URL", office.db.url())];
    let wrong = run(&["session", "list", "--cli", "claude"], &variables, "").await;
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.stderr.contains("claude-code, codex,"),
        "{}",
        wrong.stderr
    );
    let text = ran(&office, &["session", "list", "--cli", "claude-code"]).await;
    assert!(text.contains("claude-code  running 1"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_activity_for_longer_than_is_set_is_shown_as_stale() {
    let office = office().await;
    let silent =
        "UPDATE lanekeeper.agent_session SET last_activity_at = now() - interval '31 minutes'
                  WHERE native_session_id IN ('busy', 'idle')";
    office.client.batch_execute(silent).await.unwrap();
    for (state, expected) in [
        ("stale", &["busy"][..]),
        ("running", &["codex"]),
        ("idle", &["notified", "idle"]),
    ] {
        assert_eq!(listed(&office, &["--turn", state]).await, expected);
    }
    let text = ran(&office, &["session", "list", "--cli", "claude-code"]).await;
    assert!(text.contains("claude-code  stale 1"), "{text}");
    let arguments = ["session", "show", "hooks", "busy", "--output", "json"];
    let turn_state = |json: &str| -> Value {
        serde_json::from_str::<Value>(json).unwrap()["registry"]["turn_state"].clone()
    };
    assert_eq!(turn_state(&ran(&office, &arguments).await), "stale");
    let patient = [
        ("DATABASE_URL", office.db.url()),
        ("LANEKEEPER_HOOK__STALE_AFTER_S", "3600"),
    ];
    let shown = run(&arguments, &patient, "").await;
    assert_eq!(turn_state(&shown.stdout), "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_shown_with_what_is_known_of_it() {
    let office = office().await;
    let text = ran(&office, &["session", "show", "hooks", "busy"]).await;
    for line in [
        "cli               claude-code\n",
        "folder            /home/dev/p\n",
        "transcript        /t.jsonl\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(
        text.contains("turn              running 1, since 20"),
        "{text}"
    );
    assert!(
        text.contains("find \\u{1b}[2J it"),
        "no control characters: {text}"
    );
    let json = ran(
        &office,
        &["session", "show", "hooks", "idle", "--output", "json"],
    )
    .await;
    let shown: Value = serde_json::from_str(&json).unwrap();
    let entry = &shown["registry"];
    assert_eq!(entry["turn_ended_by"], "Stop");
    assert_eq!(entry["last_prompt"], "find \u{1b}[2J it");
    assert_eq!(shown["lane_status"][0]["subscription"], "registry");
    let run = ran(
        &office,
        &["session", "show", "runs", "run-1", "--output", "json"],
    )
    .await;
    let shown: Value = serde_json::from_str(&run).unwrap();
    assert!(shown["registry"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn its_subscription_and_lanes_are_listed_like_any_other() {
    let office = office().await;
    let listed = ran(&office, &["subscription", "list", "--output", "json"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (&listed["subscription"], &listed["adapter"]),
        (&json!("registry"), &json!("registry"))
    );
    let status = ran(&office, &["status"]).await;
    assert!(status.contains("registry"), "{status}");
    let doctor = run(&["doctor"], &[("DATABASE_URL", office.db.url())], "").await;
    assert!(
        !doctor.stdout.contains("there is no adapter"),
        "{}",
        doctor.stdout
    );
}
