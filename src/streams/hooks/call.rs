//! One hook call, from the bytes that the CLI sent to the record that is stored.
//!
//! | payload | event |
//! |---|---|
//! | JSON | its type; the payload as it is, but for addresses and what `jsonb` refuses |
//! | JSON nested deeper than [`MAX_DEPTH`] | its type; `{"undecodable": text, "reason": …}` |
//! | anything else | `error`; `{"message", "code": "undecodable_payload", "details": {"raw": text}}` |
//!
//! Without a session id the event goes to the session `unattributed-CLI`, and its headers say so.

use std::borrow::Cow;

use lanekeeper_core::redact::{REPLACEMENT, redact};
use lanekeeper_producer::spool::Record;
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::class::Class;
use super::config::HookConfig;
use super::event_type::{EMPTY_PROMPT, ERROR, UNKNOWN, event_type};
use super::json::{Sanitised, sanitise};
use super::origin::Origin;
use super::shape::{AgentCli, Fields};
use super::string::Repairs;

/// Deepest nesting that is stored as JSON. PostgreSQL 15 with its default `max_stack_depth` (2 MB)
/// takes 12,000 to 14,000 levels on x86-64; other builds take fewer, and so do the parsers of
/// receivers.
pub const MAX_DEPTH: usize = 1_000;

/// The longest session name that the schema takes, in bytes.
const MAX_SESSION_LEN: usize = 512;

/// Bytes of a native event name that are kept in the headers.
const MAX_NATIVE_EVENT_LEN: usize = 100;

/// A call, ready to be stored.
#[derive(Debug)]
pub struct Call {
    /// Who called.
    pub cli: AgentCli,
    pub fields: Fields,
    /// Cursor made this call through the hooks of Claude Code.
    pub through_claude_code: bool,
    pub record: Record,
    /// What a person should know about this call; nothing of it is lost.
    pub note: Option<String>,
}

#[derive(Serialize)]
struct Headers<'a> {
    cli: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    native_event: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    native_session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unattributed: bool,
    /// The CLI whose wiring was used, where that is another than the one that called.
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<&'static str>,
    emitted_at: String,
    emit_order: &'a str,
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(rename = "lanekeeper-repaired", skip_serializing_if = "Vec::is_empty")]
    repaired: Vec<&'static str>,
}

impl Call {
    /// Reads a call. `whole` is false where bytes were left out behind the end.
    pub fn read(
        cli: AgentCli,
        bytes: &[u8],
        whole: bool,
        origin: &Origin,
        config: &HookConfig,
    ) -> Self {
        // Cursor on Windows, and shells that pipe, put a byte order mark in front.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        let mut repaired = Vec::new();
        if matches!(text, Cow::Owned(_)) {
            repaired.push("utf8");
        }
        let (fields, event_type, payload, reason) = match sanitise(&text, config.redact_emails) {
            Ok(document) => {
                // From the text as it came: the session's name is not redacted.
                let raw: &RawValue = serde_json::from_str(&text).unwrap_or(&document.json);
                let fields = Fields::of(cli, raw);
                let event_type = type_of(cli, &fields);
                let (payload, reason) = stored(document, &text, config, &mut repaired);
                (fields, event_type, payload, reason)
            }
            Err(error) => {
                let reason = if whole {
                    error.to_string()
                } else {
                    format!("cut off after {} bytes (hook.max_input_bytes)", bytes.len())
                };
                let payload = undecodable(&text, &reason, config);
                (
                    Fields::of_broken(cli, &text),
                    Cow::Borrowed(ERROR),
                    payload,
                    Some(reason),
                )
            }
        };
        let through_claude_code = cli == AgentCli::ClaudeCode && fields.is_cursor;
        let caller = if through_claude_code {
            AgentCli::Cursor
        } else {
            cli
        };
        let session = fields.session.as_deref();
        let mut note = reason.map(|reason| format!("the payload is kept as text: {reason}"));
        if session.is_none() {
            note.get_or_insert_with(|| {
                format!("the payload has no session id: kept in session unattributed-{caller}")
            });
        }
        let headers = Headers {
            cli: caller.name(),
            native_event: fields
                .native_event
                .as_deref()
                .map(|name| bounded(name, MAX_NATIVE_EVENT_LEN)),
            native_session_id: session.map(|id| bounded(id, MAX_SESSION_LEN)),
            unattributed: session.is_none(),
            via: through_claude_code.then_some(cli.name()),
            emitted_at: format!("{:.9}", origin.emitted_at),
            emit_order: &origin.emit_order,
            host: &origin.host,
            cwd: fields.cwd.as_deref().map(|cwd| redacted(cwd, config)),
            traceparent: origin.traceparent.as_deref(),
            repaired,
        };
        let record = Record {
            message_id: Uuid::now_v7(),
            session: session_name(session, caller),
            event_type: event_type.into_owned(),
            payload,
            headers: to_raw_value(&headers).expect("strings always serialise"),
        };
        Self {
            cli: caller,
            fields,
            through_claude_code,
            record,
            note,
        }
    }

    /// The session whose transcript should be looked for: Codex' own, where it did not say. Only at
    /// events that tell something of the session as a whole: tools come too often.
    pub fn lacks_transcript(&self) -> Option<&str> {
        let is_codex = matches!(self.cli, AgentCli::Codex | AgentCli::CodexNotify);
        let wanted = is_codex
            && Class::of(&self.record.event_type) == Class::Critical
            && self.fields.transcript_path.is_none()
            && !self.fields.is_of_subagent;
        self.fields.session.as_deref().filter(|_| wanted)
    }

    /// Adds where the transcript was found. The payload stays as the CLI sent it.
    pub fn set_transcript(&mut self, path: &str, config: &HookConfig) {
        let headers: Result<serde_json::Map<String, serde_json::Value>, _> =
            serde_json::from_str(self.record.headers.get());
        let Ok(mut headers) = headers else {
            unreachable!("headers are written by this module");
        };
        headers.insert(
            "transcript_path".to_owned(),
            redacted(path, config).into_owned().into(),
        );
        self.record.headers = to_raw_value(&headers).expect("strings always serialise");
    }
}

fn type_of(cli: AgentCli, fields: &Fields) -> Cow<'static, str> {
    let name = fields.native_event.as_deref();
    match name.map_or(Cow::Borrowed(UNKNOWN), event_type) {
        // Qwen reports the tools' answers to its model as a prompt without text: no turn begins.
        kind if cli == AgentCli::Qwen
            && kind == "user_prompt_submit"
            && fields.has_empty_prompt =>
        {
            Cow::Borrowed(EMPTY_PROMPT)
        }
        kind => kind,
    }
}

/// The payload that is stored for a JSON document, and the reason if it is only its text.
fn stored(
    document: Sanitised,
    text: &str,
    config: &HookConfig,
    repaired: &mut Vec<&'static str>,
) -> (Box<RawValue>, Option<String>) {
    if document.depth > MAX_DEPTH {
        let reason = format!(
            "nested {} levels deep, at most {MAX_DEPTH} are stored",
            document.depth
        );
        return (
            as_text(json!({ "undecodable": text, "reason": reason }), config),
            Some(reason),
        );
    }
    let Repairs {
        nul,
        surrogate,
        number,
    } = document.repairs;
    let kinds = [(nul, "nul"), (surrogate, "surrogate"), (number, "number")];
    repaired.extend(
        kinds
            .iter()
            .filter(|(found, _)| *found)
            .map(|(_, kind)| *kind),
    );
    (document.json, None)
}

fn undecodable(text: &str, reason: &str, config: &HookConfig) -> Box<RawValue> {
    let payload = json!({
        "message": format!("the hook payload could not be read: {reason}"),
        "code": "undecodable_payload",
        "details": { "raw": text },
    });
    as_text(payload, config)
}

/// Text inside a document of ours is cleaned like any other string.
fn as_text(document: serde_json::Value, config: &HookConfig) -> Box<RawValue> {
    sanitise(&document.to_string(), config.redact_emails)
        .expect("a serialised value is JSON")
        .json
}

fn redacted<'a>(text: &'a str, config: &HookConfig) -> Cow<'a, str> {
    config
        .redact_emails
        .then(|| redact(text, REPLACEMENT))
        .flatten()
        .map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The native id as it was sent; one that is too long keeps its beginning and gets a checksum.
fn session_name(session: Option<&str>, cli: AgentCli) -> String {
    match session {
        None => format!("unattributed-{cli}"),
        Some(id) if id.len() <= MAX_SESSION_LEN => id.to_owned(),
        Some(id) => {
            let sum: String = Sha256::digest(id)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("{}~{sum}", bounded(id, MAX_SESSION_LEN - sum.len() - 1))
        }
    }
}

fn bounded(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn read(cli: AgentCli, bytes: &[u8]) -> Call {
        Call::read(cli, bytes, true, &Origin::now(), &HookConfig::default())
    }

    fn payload(call: &Call) -> Value {
        serde_json::from_str(call.record.payload.get()).unwrap()
    }

    fn headers(call: &Call) -> Value {
        serde_json::from_str(call.record.headers.get()).unwrap()
    }

    #[test]
    fn a_call_keeps_its_payload_and_takes_type_and_session_from_it() {
        let json = r#"{"session_id":"s-1","hook_event_name":"Stop","cwd":"/p","n":1.50}"#;
        let call = read(AgentCli::ClaudeCode, json.as_bytes());
        assert_eq!(call.record.session, "s-1");
        assert_eq!(call.record.event_type, "agent_stop");
        assert_eq!(call.record.payload.get(), json);
        let headers = headers(&call);
        assert_eq!(headers["cli"], "claude-code");
        assert_eq!(headers["native_event"], "Stop");
        assert_eq!(headers["native_session_id"], "s-1");
        assert_eq!(headers["cwd"], "/p");
        assert!(
            headers["emitted_at"]
                .as_str()
                .unwrap()
                .parse::<jiff::Timestamp>()
                .is_ok()
        );
        assert_eq!(headers.get("unattributed"), None);
        assert_eq!(call.note, None);
    }

    #[test]
    fn equal_payloads_are_two_events() {
        let json = br#"{"session_id":"s","hook_event_name":"Stop"}"#;
        let (first, second) = (
            read(AgentCli::ClaudeCode, json),
            read(AgentCli::ClaudeCode, json),
        );
        assert_ne!(first.record.message_id, second.record.message_id);
    }

    #[test]
    fn a_call_without_a_session_is_kept_and_says_so() {
        let call = read(
            AgentCli::Cursor,
            br#"{"hook_event_name":"stop","conversation_id":" "}"#,
        );
        assert_eq!(call.record.session, "unattributed-cursor");
        assert_eq!(headers(&call)["unattributed"], true);
        assert!(call.note.unwrap().contains("no session id"));
    }

    #[test]
    fn qwens_second_prompt_without_text_is_no_prompt() {
        let of = |cli, prompt: &str| {
            let json = format!(
                r#"{{"session_id":"q","hook_event_name":"UserPromptSubmit","prompt":"{prompt}"}}"#
            );
            read(cli, json.as_bytes()).record.event_type
        };
        assert_eq!(of(AgentCli::Qwen, "do it"), "user_prompt_submit");
        assert_eq!(of(AgentCli::Qwen, " "), "empty_prompt");
        // Elsewhere it may be a picture.
        assert_eq!(of(AgentCli::ClaudeCode, ""), "user_prompt_submit");
    }

    #[test]
    fn text_that_is_not_json_becomes_an_error_event_of_its_session() {
        let call = read(
            AgentCli::Cursor,
            b"\xef\xbb\xbf{\"session_id\":\"s\",\"cmd\":\"a@b.com \0 \xff",
        );
        assert_eq!(
            (
                call.record.session.as_str(),
                call.record.event_type.as_str()
            ),
            ("s", "error")
        );
        let payload = payload(&call);
        assert_eq!(payload["code"], "undecodable_payload");
        assert_eq!(
            payload["details"]["raw"],
            "{\"session_id\":\"s\",\"cmd\":\"[email] \u{fffd} \u{fffd}"
        );
        assert_eq!(
            headers(&call)["lanekeeper-repaired"],
            serde_json::json!(["utf8"])
        );
        assert_eq!(read(AgentCli::Codex, b"").record.event_type, "error");
    }

    #[test]
    fn nesting_too_deep_for_postgres_is_kept_as_text_under_its_own_type() {
        let deep = |levels: usize| {
            let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
            format!(r#"{{"session_id":"s","hook_event_name":"PreToolUse","a":{open}{close}}}"#)
        };
        let call = read(AgentCli::Codex, deep(10_000).as_bytes());
        assert_eq!(
            (
                call.record.session.as_str(),
                call.record.event_type.as_str()
            ),
            ("s", "tool_use")
        );
        assert_eq!(payload(&call)["undecodable"], deep(10_000));
        let fits = deep(MAX_DEPTH);
        assert_eq!(
            read(AgentCli::Codex, fits.as_bytes()).record.payload.get(),
            fits
        );
    }

    #[test]
    fn a_session_id_that_is_too_long_stays_distinct() {
        let json = |end: char| {
            format!(
                r#"{{"session_id":"{}{end}","hook_event_name":"Stop"}}"#,
                "é".repeat(600)
            )
        };
        let names =
            ['a', 'b'].map(|end| read(AgentCli::Codex, json(end).as_bytes()).record.session);
        assert_ne!(names[0], names[1]);
        assert!(
            names
                .iter()
                .all(|name| name.len() <= MAX_SESSION_LEN && name.starts_with("éé"))
        );
    }

    #[test]
    fn a_call_of_cursor_through_claude_codes_hooks_counts_as_cursors() {
        let call = read(
            AgentCli::ClaudeCode,
            br#"{"conversation_id":"c","hook_event_name":"preToolUse","cursor_version":"3.8"}"#,
        );
        assert!(call.through_claude_code);
        assert_eq!(call.record.session, "c");
        assert_eq!(headers(&call)["cli"], "cursor");
        assert_eq!(headers(&call)["via"], "claude-code");
    }

    #[test]
    fn a_call_that_was_cut_off_says_so() {
        let call = Call::read(
            AgentCli::Codex,
            br#"{"session_id":"s","tool_response":"aaaa"#,
            false,
            &Origin::now(),
            &HookConfig::default(),
        );
        assert!(call.note.unwrap().contains("cut off after 39 bytes"));
        assert_eq!(call.record.session, "s");
    }

    fn cli() -> impl Strategy<Value = AgentCli> {
        prop::sample::select(AgentCli::ALL.to_vec())
    }

    /// What the schema, the spool and receivers rely on, whatever came in.
    fn assert_storable(call: &Call) {
        let record = &call.record;
        assert!((1..=512).contains(&record.session.len()), "{record:?}");
        assert!((1..=200).contains(&record.event_type.len()), "{record:?}");
        for text in [&record.session, &record.event_type] {
            assert!(!text.contains('\0'), "{text:?}");
        }
        for json in [&record.payload, &record.headers] {
            serde_json::from_str::<Value>(json.get()).unwrap();
            assert!(!json.get().contains(['\n', '\r', '\0']), "{json}");
        }
        assert!(headers(call).is_object());
        let line = record.to_line();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    }

    /// Texts that agents send, and those that they should not.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z-]{0,12}",
            ".{0,20}",
            "\\PC{500,600}",
            Just("\0".to_owned()),
            Just(" ".to_owned()),
            Just("\u{feff}\u{202e}".to_owned()),
        ]
    }

    fn leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            text().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i32>().prop_map(|n| Value::from(f64::from(n) / 64.0)),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ]
    }

    /// Objects with the keys that the shapes look for, and with anything under them.
    fn document() -> impl Strategy<Value = Value> {
        let key = prop_oneof![
            prop::sample::select(vec![
                "session_id",
                "conversation_id",
                "thread-id",
                "hook_event_name",
                "type",
                "hook_type",
                "properties",
                "input",
                "sessionID",
                "info",
                "id",
                "part",
                "cursor_version",
                "cwd",
                "event",
            ])
            .prop_map(str::to_owned),
            text(),
        ];
        leaf().prop_recursive(4, 24, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_bytes_of_any_cli_become_an_event_that_can_be_stored(
            cli in cli(),
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            whole in any::<bool>(),
        ) {
            let config = HookConfig::default();
            assert_storable(&Call::read(cli, &bytes, whole, &Origin::now(), &config));
        }

        #[test]
        fn any_document_of_any_cli_is_stored_whole(cli in cli(), document in document()) {
            let config = HookConfig { redact_emails: false, ..HookConfig::default() };
            let bytes = document.to_string().into_bytes();
            let call = Call::read(cli, &bytes, true, &Origin::now(), &config);
            assert_storable(&call);
            prop_assert_ne!(&call.record.event_type, ERROR);
            // By their texts: a number that is read may lose its last digit.
            if !document.to_string().contains("\\u0000") {
                prop_assert_eq!(call.record.payload.get(), document.to_string());
            }
        }

        #[test]
        fn a_document_with_a_damaged_byte_is_kept_as_text_or_as_json(
            cli in cli(),
            document in document(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = document.to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let config = HookConfig { redact_emails: false, ..HookConfig::default() };
            let call = Call::read(cli, &bytes, true, &Origin::now(), &config);
            assert_storable(&call);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let kept = payload(&call);
            if kept["code"] == "undecodable_payload" && !text.contains('\0') {
                prop_assert_eq!(kept["details"]["raw"].as_str(), Some(text.as_str()));
            }
        }
    }
}
