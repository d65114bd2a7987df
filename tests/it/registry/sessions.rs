//! Whole sessions: a short one of every CLI, all fixtures, and recordings if they are available.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Office;
use crate::hooks::payloads::{fixtures, lines, recorded};

#[tokio::test(flavor = "multi_thread")]
async fn a_short_session_of_every_cli_is_entered() {
    let office = Office::new().await;
    let opencode =
        |kind: &str| json!({"type": kind, "properties": {"sessionID": "o"}, "cwd": "/p"});
    let gemini = |event: &str, more: Value| {
        let mut payload = json!({"session_id": "g", "transcript_path": "/g.json", "cwd": "/p",
            "hook_event_name": event, "timestamp": "2026-11-20T10:00:00Z"});
        payload
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        payload
    };
    let cursor = |event: &str, more: Value| {
        let mut payload = json!({"conversation_id": "u", "generation_id": "", "model": "default",
            "hook_event_name": event, "cursor_version": "3.8", "workspace_roots": ["/p"], "transcript_path": null});
        payload
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        payload
    };
    let claude = json!({"session_id": "c", "transcript_path": "/c.jsonl", "cwd": "/p"});
    let with = |base: &Value, more: Value| {
        let mut payload = base.clone();
        payload
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        payload
    };
    let calls = [
        (
            "claude-code",
            with(
                &claude,
                json!({"hook_event_name": "UserPromptSubmit", "prompt": "of c"}),
            ),
        ),
        (
            "claude-code",
            with(&claude, json!({"hook_event_name": "Stop"})),
        ),
        (
            "codex",
            json!({"session_id": "x", "transcript_path": null, "cwd": "/p", "model": "m",
            "hook_event_name": "UserPromptSubmit", "turn_id": "1", "prompt": "of x"}),
        ),
        (
            "codex-notify",
            json!({"type": "agent-turn-complete", "thread-id": "n", "turn-id": "1", "cwd": "/p",
            "input-messages": ["of n"]}),
        ),
        (
            "gemini",
            gemini("SessionStart", json!({"source": "startup"})),
        ),
        ("gemini", gemini("BeforeAgent", json!({"prompt": "of g"}))),
        (
            "gemini",
            gemini(
                "AfterAgent",
                json!({"prompt": "of g", "prompt_response": "done"}),
            ),
        ),
        (
            "cursor",
            cursor("beforeSubmitPrompt", json!({"prompt": "of u"})),
        ),
        (
            "cursor",
            cursor(
                "stop",
                json!({"status": "completed", "transcript_path": "/u.jsonl"}),
            ),
        ),
        (
            "opencode",
            json!({"type": "chat.message", "input": {"sessionID": "o"},
            "output": {"parts": [{"type": "text", "text": "of o"}]}, "cwd": "/p"}),
        ),
        ("opencode", opencode("session.error")),
        ("opencode", opencode("session.idle")),
        (
            "qwen",
            json!({"session_id": "q", "transcript_path": "/q.jsonl", "cwd": "/p",
            "hook_event_name": "UserPromptSubmit", "prompt": "of q"}),
        ),
        (
            "qwen",
            json!({"session_id": "q", "transcript_path": "/q.jsonl", "cwd": "/p",
            "hook_event_name": "UserPromptSubmit", "prompt": ""}),
        ),
        (
            "qwen",
            json!({"session_id": "q", "cwd": "/p", "hook_event_name": "SessionEnd"}),
        ),
    ];
    for (cli, payload) in &calls {
        office.call(cli, payload).await.unwrap();
    }
    office.work().await;
    for (session, cli, state, by, transcript) in [
        ("c", "claude-code", "idle", Some("Stop"), Some("/c.jsonl")),
        ("x", "codex", "running", None, None),
        ("n", "codex", "idle", Some("agent-turn-complete"), None),
        ("g", "gemini", "idle", Some("AfterAgent"), Some("/g.json")),
        ("u", "cursor", "idle", Some("stop"), Some("/u.jsonl")),
        ("o", "opencode", "idle", Some("session.idle"), None),
        ("q", "qwen", "idle", Some("SessionEnd"), Some("/q.jsonl")),
    ] {
        let entry = office.entry(session).await.unwrap();
        assert_eq!(entry["cli"], cli, "{entry}");
        assert_eq!(entry["native_session_id"], session, "{entry}");
        assert_eq!(
            (&entry["turn"], &entry["turn_state"]),
            (&json!(1), &json!(state)),
            "{entry}"
        );
        assert_eq!(entry["turn_ended_by"].as_str(), by, "{entry}");
        assert_eq!(entry["last_prompt"], format!("of {session}"), "{entry}");
        assert_eq!(entry["transcript_path"].as_str(), transcript, "{entry}");
        assert_eq!(entry["cwd"], "/p", "{entry}");
        assert_eq!(office.outcomes(session).await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_session_of_the_fixtures_has_the_entry_that_its_events_make() {
    let (sessions, refused) = follow(lines(&fixtures())).await;
    println!("{sessions} sessions");
    assert!(sessions > 10);
    assert_eq!(refused, 1, "the call of nobody's session");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_session_has_the_entry_that_its_events_make() {
    let Some(folder) = recorded() else {
        return;
    };
    let (sessions, refused) = follow(lines(&folder)).await;
    println!("{sessions} recorded sessions, {refused} events that could not be entered");
}

/// What a session's entry should say, told from its calls in another way than by the code under test.
#[derive(Debug, Default)]
struct Expected {
    events: Vec<String>,
    prompts: i64,
    last_prompt: Option<String>,
    /// Whether the last call that says something of the turn began one.
    runs: bool,
    /// The agent's own path, where any call has it.
    transcript: Option<String>,
}

impl Expected {
    fn heed(&mut self, payload: &Value) {
        let text = |key: &str| payload[key].as_str();
        let name = ["hook_event_name", "hook_type", "type"]
            .into_iter()
            .find_map(text);
        let name = name.unwrap_or_default();
        self.events.push(name.to_owned());
        if payload["agent_id"].is_string() {
            return;
        }
        if let Some(path) = text("transcript_path").filter(|path| !path.is_empty()) {
            self.transcript = Some(path.to_owned());
        }
        match name {
            "UserPromptSubmit" | "beforeSubmitPrompt" | "BeforeAgent" | "chat.message" => {
                self.prompts += 1;
                self.runs = true;
                self.last_prompt = text("prompt")
                    .or_else(|| payload["output"]["parts"][0]["text"].as_str())
                    .map(str::to_owned);
            }
            "Stop"
            | "stop"
            | "AfterAgent"
            | "session.idle"
            | "Interrupt"
            | "StopFailure"
            | "session.error"
            | "SessionEnd"
            | "sessionEnd"
            | "session.deleted"
            | "agent-turn-complete" => self.runs = false,
            "session.status" if payload["properties"]["status"]["type"] == "idle" => {
                self.runs = false;
            }
            "SessionStart" | "sessionStart" | "session.created"
                if text("source") != Some("compact") =>
            {
                self.runs = false;
            }
            "Notification"
                if text("notification_type").is_some_and(|kind| kind.starts_with("idle")) =>
            {
                self.runs = false;
            }
            _ => {}
        }
    }
}

/// Enters all calls, checks every session's entry; returns how many there are, and how many events
/// could not be entered.
async fn follow(lines: Vec<(String, Value)>) -> (usize, i64) {
    let office = Office::new().await;
    let worker = office.worker().await;
    let mut expected: BTreeMap<String, Expected> = BTreeMap::new();
    for (cli, payload) in &lines {
        if office.call(cli, payload).await.is_none() {
            continue;
        }
        let id = ["session_id", "conversation_id", "thread-id"]
            .into_iter()
            .find_map(|key| payload[key].as_str().filter(|id| !id.is_empty()))
            .or_else(|| payload["input"]["sessionID"].as_str())
            .or_else(|| payload["properties"]["sessionID"].as_str())
            .or_else(|| payload["properties"]["sessionId"].as_str())
            .or_else(|| payload["properties"]["part"]["sessionID"].as_str())
            .or_else(|| payload["properties"]["info"]["sessionID"].as_str())
            .or_else(|| payload["properties"]["info"]["id"].as_str());
        if let Some(id) = id {
            expected.entry(id.to_owned()).or_default().heed(payload);
        }
    }
    office.settled().await;
    worker.stop().await;

    let bursty_only = "SELECT s.name FROM lanekeeper.session AS s WHERE NOT EXISTS (
        SELECT FROM lanekeeper.event AS e JOIN lanekeeper.subscription AS b ON e.event_type = ANY (b.events)
        WHERE e.session_id = s.session_id AND b.name = 'registry')";
    let rows = office.client.query(bursty_only, &[]).await.unwrap();
    let unmapped: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    for (session, expected) in &expected {
        let Some(entry) = office.entry(session).await else {
            assert!(
                unmapped.contains(session),
                "{session} has no entry: {expected:?}"
            );
            continue;
        };
        let state = if expected.runs { "running" } else { "idle" };
        assert_eq!(entry["turn_state"], state, "{session} {entry} {expected:?}");
        let turns = entry["turn"].as_i64().unwrap();
        let ends_alone = expected
            .events
            .iter()
            .any(|name| name == "Stop" || name == "agent-turn-complete");
        assert!(
            turns == expected.prompts || (ends_alone && turns > expected.prompts),
            "{session} {entry} {expected:?}"
        );
        if let Some(prompt) = &expected.last_prompt
            && !prompt.contains('@')
            && prompt.chars().count() <= 2_000
            && !expected
                .events
                .iter()
                .any(|name| name == "agent-turn-complete")
        {
            assert_eq!(entry["last_prompt"], prompt.as_str(), "{session}");
        }
        if let Some(path) = &expected.transcript {
            assert_eq!(entry["transcript_path"], path.as_str(), "{session}");
        }
        assert_eq!(entry["native_session_id"], session.as_str());
        assert!(entry["last_activity_at"].is_string());
    }
    let refused = office
        .count("SELECT count(*) FROM lanekeeper.outcome WHERE kind <> 'coalesced'")
        .await;
    if refused > 0 {
        let errors = "SELECT o.error, count(*) FROM lanekeeper.outcome AS o WHERE o.kind <> 'coalesced' GROUP BY 1";
        for row in office.client.query(errors, &[]).await.unwrap() {
            println!(
                "{} × {:?}",
                row.get::<_, i64>(1),
                row.get::<_, Option<String>>(0)
            );
        }
    }
    let entries = office
        .count("SELECT count(*) FROM lanekeeper.agent_session")
        .await;
    (usize::try_from(entries).unwrap(), refused)
}
