//! How single events change an entry.

use serde_json::{Value, json};

use super::{Office, audit};

fn claude(event: &str, more: &Value) -> Value {
    let mut payload = json!({
        "session_id": "s", "transcript_path": "/home/dev/.claude/projects/p/s.jsonl", "cwd": "/home/dev/p",
        "hook_event_name": event,
    });
    payload
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    payload
}

async fn told(office: &Office, event: &str, more: Value) -> Value {
    office.call("claude-code", &claude(event, &more)).await;
    office.settled().await;
    office.entry("s").await.unwrap()
}

/// State, number and end of the turn.
fn turn(entry: &Value) -> (&str, i64, Option<&str>) {
    (
        entry["turn_state"].as_str().unwrap(),
        entry["turn"].as_i64().unwrap(),
        entry["turn_ended_by"].as_str(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_followed_from_its_start_to_its_end() {
    let office = Office::new().await;
    let worker = office.worker().await;
    let entry = told(
        &office,
        "SessionStart",
        json!({"source": "startup", "model": "large"}),
    )
    .await;
    assert_eq!(turn(&entry), ("idle", 0, None));
    assert_eq!(entry["cli"], "claude-code");
    assert_eq!(entry["native_session_id"], "s");
    assert_eq!(
        entry["transcript_path"],
        "/home/dev/.claude/projects/p/s.jsonl"
    );
    assert_eq!(entry["transcript_from"], "cli");
    assert_eq!(
        (&entry["cwd"], &entry["model"]),
        (&json!("/home/dev/p"), &json!("large"))
    );
    assert!(entry["started_at"].is_string() && entry["host"].is_string());

    let entry = told(
        &office,
        "UserPromptSubmit",
        json!({"prompt": "write to dev@example.com"}),
    )
    .await;
    assert_eq!(turn(&entry), ("running", 1, None));
    assert_eq!(
        entry["last_prompt"], "write to [email]",
        "redacted by the hook"
    );
    let started = entry["turn_started_at"].clone();
    assert_eq!(started, entry["last_prompt_at"]);

    let entry = told(&office, "PreToolUse", json!({"tool_name": "Bash"})).await;
    assert_eq!(turn(&entry), ("running", 1, None));
    assert_eq!(entry["last_activity"], "tool_use");
    assert!(entry["last_activity_at"].as_str() > started.as_str());
    assert_eq!(entry["turn_started_at"], started);

    let entry = told(
        &office,
        "Notification",
        json!({"message": "Claude needs your permission", "notification_type": "permission_prompt"}),
    )
    .await;
    assert_eq!(turn(&entry).0, "running");
    assert_eq!(entry["last_notification"], "Claude needs your permission");

    let entry = told(&office, "Stop", json!({"stop_hook_active": false})).await;
    assert_eq!(turn(&entry), ("idle", 1, Some("Stop")));
    assert_eq!(entry["last_prompt"], "write to [email]");
    assert_eq!(entry["model"], "large", "what an event does not tell stays");

    let created =
        "SELECT to_jsonb(e.created_at) FROM lanekeeper.event AS e ORDER BY e.seq DESC LIMIT 1";
    let newest: Value = office.client.query_one(created, &[]).await.unwrap().get(0);
    assert_eq!(entry["turn_ended_at"], newest, "the log's instant");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_also_where_no_stop_comes() {
    let office = Office::new().await;
    let worker = office.worker().await;
    let endings = [
        (
            "StopFailure",
            json!({"error": "rate_limit", "error_details": "429"}),
        ),
        (
            "Notification",
            json!({"message": "Claude is waiting for your input", "notification_type": "idle_prompt"}),
        ),
        ("SessionStart", json!({"source": "resume"})),
    ];
    for (number, (event, more)) in (1..).zip(endings) {
        let entry = told(&office, "UserPromptSubmit", json!({"prompt": "go"})).await;
        assert_eq!(turn(&entry), ("running", number, None));
        let entry = told(&office, event, more).await;
        assert_eq!(turn(&entry), ("idle", number, Some(event)));
    }
    let entry = office.entry("s").await.unwrap();
    assert_eq!(entry["last_error"], "429");
    assert_eq!(entry["last_error_code"], "rate_limit");

    // Where nothing is open they end nothing.
    let before = entry["turn_ended_at"].clone();
    let entry = told(&office, "StopFailure", json!({"error": "overloaded"})).await;
    assert_eq!(entry["turn_ended_at"], before);
    assert_eq!(entry["last_error"], "overloaded");

    // A prompt into a turn whose end was never told begins another.
    told(&office, "UserPromptSubmit", json!({"prompt": "4"})).await;
    let entry = told(&office, "UserPromptSubmit", json!({"prompt": "5"})).await;
    assert_eq!(turn(&entry), ("running", 5, None));
    let entry = told(&office, "SessionStart", json!({"source": "compact"})).await;
    assert_eq!(
        turn(&entry),
        ("running", 5, None),
        "a compaction is in the middle of it"
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_stop_closes_the_turn_and_is_the_sessions_last_error() {
    let office = Office::new().await;
    let worker = office.worker().await;
    told(&office, "UserPromptSubmit", json!({"prompt": "go"})).await;
    let broken = br#"{"session_id":"s","hook_event_name":"Stop","last_assistant_message":"#;
    office
        .call_with("claude-code", broken, &Default::default())
        .await;
    office.settled().await;
    let entry = office.entry("s").await.unwrap();
    assert_eq!(turn(&entry), ("idle", 1, Some("Stop")));
    assert_eq!(entry["last_error_code"], "undecodable_payload");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_end_closes_session_and_turn_although_it_is_not_fanned_out() {
    let office = Office::new().await;
    let worker = office.worker().await;
    told(&office, "UserPromptSubmit", json!({"prompt": "go"})).await;
    let entry = told(&office, "SessionEnd", json!({"reason": "logout"})).await;
    let fan_out = "SELECT count(*) FROM lanekeeper.stream WHERE name = 'hooks' AND 'session_end' = ANY (fan_out)";
    assert_eq!(office.count(fan_out).await, 0);
    assert_eq!(turn(&entry), ("idle", 1, Some("SessionEnd")));
    assert!(entry["ended_at"].is_string());
    let entry = told(&office, "SessionStart", json!({"source": "resume"})).await;
    assert!(entry["ended_at"].is_null(), "it lives again");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_after_which_an_agent_sends_only_its_end_does_not_stay_open() {
    let office = Office::new().await;
    let worker = office.worker().await;
    // After an API error, and after an interrupt.
    for (cli, prompt, end) in [
        (
            "codex",
            json!({"hook_event_name": "UserPromptSubmit", "turn_id": "t", "prompt": "p"}),
            json!({"hook_event_name": "SessionEnd", "reason": "other"}),
        ),
        (
            "gemini",
            json!({"hook_event_name": "BeforeAgent", "prompt": "p"}),
            json!({"hook_event_name": "SessionEnd", "reason": "exit"}),
        ),
        (
            "opencode",
            json!({"hook_type": "chat.message", "output": {"parts": [{"text": "p"}]}}),
            json!({"type": "session.status", "properties": {"status": {"type": "idle"}}}),
        ),
    ] {
        let mut states = Vec::new();
        for mut payload in [prompt, end] {
            payload["session_id"] = json!(cli);
            office.call(cli, &payload).await.unwrap();
            office.settled().await;
            let entry = office.entry(cli).await.unwrap();
            states.push(entry["turn_state"].as_str().unwrap().to_owned());
        }
        assert_eq!(states, ["running", "idle"], "{cli}");
        assert_eq!(office.outcomes(cli).await, []);
    }
    // It is busy, or tries again: the turn goes on.
    for status in ["busy", "retry"] {
        let prompt =
            json!({"session_id": status, "hook_type": "chat.message", "output": {"parts": []}});
        office.call("opencode", &prompt).await.unwrap();
        let says = json!({"session_id": status, "type": "session.status",
                          "properties": {"status": {"type": status}}});
        office.call("opencode", &says).await.unwrap();
        office.settled().await;
        assert_eq!(office.entry(status).await.unwrap()["turn_state"], "running");
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_open_codes_agent_is_a_notification_with_its_text() {
    let office = Office::new().await;
    let worker = office.worker().await;
    for (event, properties, text) in [
        (
            "question.asked",
            json!({"id": "q", "sessionID": "o", "questions": [{"question": "Which database?", "header": "db"}]}),
            "Which database?",
        ),
        (
            "permission.v2.asked",
            json!({"id": "p", "sessionID": "o", "action": "edit", "resources": ["a.txt"]}),
            "permission for edit",
        ),
    ] {
        office
            .call(
                "opencode",
                &json!({"type": event, "properties": properties}),
            )
            .await;
        office.settled().await;
        let entry = office.entry("o").await.unwrap();
        assert_eq!(entry["last_activity"], "notification", "{event}");
        assert_eq!(entry["last_notification"], text);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_turns_are_told_apart_by_their_ids() {
    let office = Office::new().await;
    let worker = office.worker().await;
    let call = async |event: &str, turn_id: &str, more: Value| {
        let mut payload = json!({"session_id": "c", "transcript_path": "/root.jsonl", "cwd": "/p",
                                 "hook_event_name": event, "model": "m", "turn_id": turn_id});
        payload
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        office.call("codex", &payload).await;
        office.settled().await;
        office.entry("c").await.unwrap()
    };
    let notify = async |turn_id: &str, prompt: &str| {
        let payload = json!({"type": "agent-turn-complete", "thread-id": "c", "turn-id": turn_id,
                             "input-messages": ["earlier", prompt]});
        office.call("codex-notify", &payload).await;
        office.settled().await;
        office.entry("c").await.unwrap()
    };
    call("UserPromptSubmit", "t1", json!({"prompt": "one"})).await;
    let entry = call("UserPromptSubmit", "t1", json!({"prompt": "and this"})).await;
    assert_eq!(
        turn(&entry),
        ("running", 1, None),
        "steered, not begun anew"
    );
    assert_eq!(entry["last_prompt"], "and this");

    // A subagent has the session's id, and a prompt, a turn and a transcript of its own.
    let subagent = json!({"prompt": "sub", "agent_id": "a", "transcript_path": "/sub.jsonl"});
    let entry = call("UserPromptSubmit", "t9", subagent).await;
    assert_eq!(turn(&entry), ("running", 1, None));
    assert_eq!(entry["last_prompt"], "and this");
    assert_eq!(entry["transcript_path"], "/root.jsonl");

    let entry = call("Stop", "t1", json!({})).await;
    assert_eq!(turn(&entry), ("idle", 1, Some("Stop")));
    let entry = notify("t1", "and this").await;
    assert_eq!(turn(&entry).1, 1, "both ways of Codex told of one turn");

    call("UserPromptSubmit", "t2", json!({"prompt": "two"})).await;
    let entry = notify("t1", "and this").await;
    assert_eq!(
        turn(&entry),
        ("running", 2, None),
        "a late end of the turn before"
    );
    let entry = call("Interrupt", "t2", json!({})).await;
    assert_eq!(turn(&entry), ("idle", 2, Some("Interrupt")));

    // Of this turn only the end is reported.
    let entry = notify("t3", "three").await;
    assert_eq!(turn(&entry), ("idle", 3, Some("agent-turn-complete")));
    assert_eq!(
        (&entry["last_prompt"], &entry["turn_started_at"]),
        (&json!("three"), &Value::Null)
    );
    assert_eq!(entry["cli"], "codex");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn activity_that_waits_together_is_entered_once() {
    let office = Office::new().await;
    audit(&office.client, 0.0).await;
    let calls = json!((0..200)
        .map(|number| json!({"session": "s", "event_type": "tool_use", "payload": {"session_id": "s", "n": number}}))
        .chain([json!({"session": "s", "event_type": "agent_stop", "payload": {"session_id": "s"}})])
        .collect::<Vec<_>>());
    office
        .client
        .execute(
            "SELECT lanekeeper.enqueue_many('hooks', $1)",
            &[&tokio_postgres::types::Json(calls)],
        )
        .await
        .unwrap();
    office.work().await;
    let entered = office.count("SELECT count(*) FROM public.entered").await;
    // One of each batch of 50, and the stop.
    assert_eq!(entered, 5);
    let outcomes = office.outcomes("s").await;
    assert_eq!(outcomes.len(), 196);
    assert!(outcomes.iter().all(|(_, kind, _)| kind == "coalesced"));
    let entry = office.entry("s").await.unwrap();
    assert_eq!(
        (&entry["last_activity"], &entry["seq"]),
        (&json!("agent_stop"), &json!(201))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_observed_already_changes_nothing() {
    let office = Office::new().await;
    audit(&office.client, 0.0).await;
    let session = json!({"session_id": "s", "prompt": "p"});
    for _ in 0..3 {
        office.enqueue("s", "user_prompt_submit", &session).await;
    }
    office.work().await;
    let before = office.entry("s").await.unwrap();
    assert_eq!(before["turn"], 3);
    // As a replay would.
    let again = "SELECT lanekeeper.observe_hook('hooks', 's', 2, now(), '{\"type\": \"agent_stop\", \"native_session_id\": \"x\", \"turn\": \"closes\", \"native_event\": \"Stop\"}')";
    let entered: bool = office.client.query_one(again, &[]).await.unwrap().get(0);
    assert!(!entered);
    assert_eq!(office.entry("s").await.unwrap(), before);
    assert_eq!(office.count("SELECT count(*) FROM public.entered").await, 3);
}
