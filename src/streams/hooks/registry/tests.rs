//! Events as they are stored, and what is taken from them.

use std::sync::Arc;

use jiff::Timestamp;
use lanekeeper_core::event::Event;
use serde_json::{Value, json};
use uuid::Uuid;

use super::limits;
use super::observation::{Life, Observation, TranscriptFrom, Turn, Unfit};
use crate::hooks::call::Call;
use crate::hooks::config::HookConfig;
use crate::hooks::origin::Origin;
use crate::hooks::shape::AgentCli;

fn event(event_type: &str, payload: &str, headers: Option<String>) -> Event {
    Event {
        message_id: Uuid::nil(),
        stream: Arc::from("hooks"),
        session: Arc::from("s"),
        seq: 1,
        event_type: event_type.into(),
        created_at: Timestamp::UNIX_EPOCH,
        payload: payload.to_owned(),
        headers,
    }
}

/// The event that a hook call becomes.
fn called(cli: AgentCli, payload: &str) -> Event {
    let config = HookConfig::default();
    let record = Call::read(cli, payload.as_bytes(), true, &Origin::now(), &config).record;
    event(
        &record.event_type,
        record.payload.get(),
        Some(record.headers.get().to_owned()),
    )
}

fn observed(cli: AgentCli, payload: &Value) -> Observation {
    Observation::of(&called(cli, &payload.to_string()))
        .unwrap()
        .unwrap()
}

fn refusal(event_type: &str, payload: &Value) -> Unfit {
    Observation::of(&event(event_type, &payload.to_string(), None)).unwrap_err()
}

#[test]
fn every_cli_says_who_it_is_and_what_its_turn_does() {
    use AgentCli::*;
    for (cli, payload, agent, session, turn) in [
        (
            ClaudeCode,
            json!({"session_id": "c", "hook_event_name": "UserPromptSubmit", "prompt": "p"}),
            "claude-code",
            "c",
            Some(Turn::Opens),
        ),
        (
            Codex,
            json!({"session_id": "x", "hook_event_name": "Stop", "turn_id": "t"}),
            "codex",
            "x",
            Some(Turn::Closes),
        ),
        (
            CodexNotify,
            json!({"type": "agent-turn-complete", "thread-id": "x", "turn-id": "t", "input-messages": ["p"]}),
            "codex",
            "x",
            Some(Turn::Closes),
        ),
        (
            Gemini,
            json!({"session_id": "g", "hook_event_name": "BeforeAgent", "prompt": "p"}),
            "gemini",
            "g",
            Some(Turn::Opens),
        ),
        (
            Cursor,
            json!({"conversation_id": "u", "hook_event_name": "stop", "status": "aborted"}),
            "cursor",
            "u",
            Some(Turn::Closes),
        ),
        (
            OpenCode,
            json!({"type": "session.idle", "properties": {"sessionID": "o"}}),
            "opencode",
            "o",
            Some(Turn::Closes),
        ),
        (
            OpenCode,
            json!({"type": "session.error", "properties": {"sessionID": "o"}}),
            "opencode",
            "o",
            Some(Turn::Cuts),
        ),
        (
            ClaudeCode,
            json!({"session_id": "c", "hook_event_name": "StopFailure", "error": "rate_limit"}),
            "claude-code",
            "c",
            Some(Turn::Cuts),
        ),
        (
            ClaudeCode,
            json!({"session_id": "c", "hook_event_name": "PostToolUse", "tool_name": "Bash"}),
            "claude-code",
            "c",
            None,
        ),
    ] {
        let observation = observed(cli, &payload);
        assert_eq!(observation.cli.as_deref(), Some(agent), "{payload}");
        assert_eq!(observation.native_session_id, session, "{payload}");
        assert_eq!(observation.turn, turn, "{payload}");
        assert!(observation.host.is_some(), "{payload}");
    }
}

#[test]
fn a_subagent_under_its_parents_id_is_activity_only() {
    let payload = json!({
        "session_id": "s", "hook_event_name": "UserPromptSubmit", "agent_id": "a", "turn_id": "t",
        "prompt": "look into it", "transcript_path": "/of/the/subagent.jsonl", "model": "small",
    });
    let observation = observed(AgentCli::Codex, &payload);
    assert_eq!(observation.turn, None);
    assert_eq!(observation.prompt, None);
    assert_eq!(observation.transcript_path, None);
    assert_eq!(observation.model, None);
}

#[test]
fn a_compaction_is_neither_a_start_nor_the_end_of_a_turn() {
    let start = |source: &str| {
        let payload =
            json!({"session_id": "s", "hook_event_name": "SessionStart", "source": source});
        let observation = observed(AgentCli::ClaudeCode, &payload);
        (observation.life, observation.turn)
    };
    assert_eq!(start("compact"), (None, None));
    for source in ["startup", "resume", "clear"] {
        assert_eq!(start(source), (Some(Life::Starts), Some(Turn::Cuts)));
    }
}

#[test]
fn an_agent_that_waits_for_a_prompt_has_no_turn_and_one_that_waits_for_leave_has() {
    let turn = |kind: &str| {
        let payload = json!({"session_id": "s", "hook_event_name": "Notification",
                             "notification_type": kind, "message": "m"});
        observed(AgentCli::ClaudeCode, &payload).turn
    };
    assert_eq!(turn("idle_prompt"), Some(Turn::Cuts));
    assert_eq!(turn("permission_prompt"), None);
}

#[test]
fn an_unreadable_call_still_means_to_the_turn_what_its_event_means() {
    for (text, turn) in [
        (
            r#"{"session_id":"s","hook_event_name":"Stop","a":"#,
            Some(Turn::Closes),
        ),
        (
            r#"{"session_id":"s","hook_event_name":"UserPromptSubmit","a":"#,
            Some(Turn::Opens),
        ),
        (
            r#"{"session_id":"s","hook_event_name":"PreToolUse","a":"#,
            None,
        ),
        (r#"{"session_id":"s","a":"#, None),
    ] {
        let event = called(AgentCli::ClaudeCode, text);
        assert_eq!(&*event.event_type, "error");
        let observation = Observation::of(&event).unwrap().unwrap();
        assert_eq!(observation.turn, turn, "{text}");
        assert_eq!(
            observation.error_code.as_deref(),
            Some("undecodable_payload")
        );
        assert!(observation.error.is_some());
    }
}

#[test]
fn a_stand_in_tells_what_its_headers_know() {
    let deep = "[".repeat(2_000) + &"]".repeat(2_000);
    let text = format!(
        r#"{{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"p","a":{deep}}}"#
    );
    let event = called(AgentCli::ClaudeCode, &text);
    assert_eq!(&*event.event_type, "user_prompt_submit");
    let observation = Observation::of(&event).unwrap().unwrap();
    assert_eq!(observation.turn, Some(Turn::Opens));
    assert_eq!(observation.prompt, None);
}

#[test]
fn what_a_type_must_have_and_has_not_is_named() {
    let session = json!({"session_id": "s"});
    assert_eq!(refusal("user_prompt_submit", &session), Unfit::NoPrompt);
    assert_eq!(
        refusal(
            "user_prompt_submit",
            &json!({"session_id": "s", "prompt": {}})
        ),
        Unfit::NoPrompt
    );
    assert_eq!(refusal("notification", &session), Unfit::NoMessage);
    assert_eq!(refusal("error", &session), Unfit::NoErrorMessage);
    for nobody in [json!({}), json!([]), json!(null), json!("text")] {
        for kind in ["session_start", "tool_use", "tool_done", "agent_stop"] {
            assert_eq!(refusal(kind, &nobody), Unfit::NoSession, "{kind} {nobody}");
        }
    }
}

#[test]
fn an_empty_prompt_is_one_and_an_open_code_plugin_may_leave_it_out() {
    let blank = json!({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": ""});
    let observation = observed(AgentCli::ClaudeCode, &blank);
    assert_eq!(
        (observation.turn, observation.prompt),
        (Some(Turn::Opens), None)
    );
    let shim = json!({"hook_type": "chat.message", "input": {"sessionID": "o"}});
    assert_eq!(observed(AgentCli::OpenCode, &shim).turn, Some(Turn::Opens));
}

#[test]
fn an_error_of_nobodys_session_is_complete_and_tells_nothing() {
    let event = called(AgentCli::Codex, "no JSON");
    assert_eq!(Observation::of(&event), Ok(None));
    let stop = called(AgentCli::Codex, r#"{"hook_event_name":"Stop"}"#);
    assert_eq!(Observation::of(&stop), Err(Unfit::NoSession));
}

#[test]
fn long_texts_are_cut_and_long_paths_left_out() {
    let payload = json!({
        "session_id": "s", "hook_event_name": "UserPromptSubmit",
        "prompt": "x".repeat(5_000), "transcript_path": "/".repeat(5_000),
    });
    let observation = observed(AgentCli::ClaudeCode, &payload);
    assert_eq!(observation.prompt.unwrap().chars().count(), limits::PROMPT);
    assert_eq!(observation.transcript_path, None);
}

#[test]
fn the_agents_own_path_counts_more_than_one_that_was_found() {
    let found = r#"{"native_session_id":"s","transcript_path":"/found"}"#.to_owned();
    let of = |payload: &str| {
        let event = event("agent_stop", payload, Some(found.clone()));
        let observation = Observation::of(&event).unwrap().unwrap();
        (observation.transcript_path, observation.transcript_from)
    };
    let own = r#"{"transcript_path":"/own"}"#;
    assert_eq!(
        of(own),
        (Some("/own".to_owned()), Some(TranscriptFrom::Cli))
    );
    let none = r#"{"transcript_path":null}"#;
    assert_eq!(
        of(none),
        (Some("/found".to_owned()), Some(TranscriptFrom::Lookup))
    );
}
