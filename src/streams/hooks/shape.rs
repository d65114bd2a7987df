//! Where each CLI puts the name of the event and the id of the session.
//!
//! | CLI | event | session |
//! |---|---|---|
//! | Claude Code, Codex, Gemini, Qwen | `hook_event_name` | `session_id` |
//! | Codex notify | `type` | `thread-id`, which is Codex' session id |
//! | Cursor | `hook_event_name` | `session_id`, in older versions `conversation_id` only; both may be empty |
//! | OpenCode | whatever the plugin calls it: `hook_type`, `type`, `event.type` | `sessionID` in its spellings, at the top, in `properties`, in `properties.info` or `.part`, or in `input`; `properties.info.id` where the event is about a session |

use std::fmt;
use std::str::FromStr;

use serde_json::value::RawValue;

use super::members::{Members, present};
use super::string::text_of;

/// An agent CLI whose hook calls are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentCli {
    ClaudeCode,
    Codex,
    CodexNotify,
    Gemini,
    Cursor,
    OpenCode,
    Qwen,
}

#[derive(Debug, thiserror::Error)]
#[error("unknown agent CLI {name:?}: use one of {}", AgentCli::ALL.map(AgentCli::name).join(", "))]
pub struct UnknownCli {
    name: String,
}

impl AgentCli {
    pub const ALL: [Self; 7] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::CodexNotify,
        Self::Gemini,
        Self::Cursor,
        Self::OpenCode,
        Self::Qwen,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::CodexNotify => "codex-notify",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
            Self::OpenCode => "opencode",
            Self::Qwen => "qwen",
        }
    }

    /// The agent that speaks: Codex has two ways to report.
    pub const fn agent(self) -> &'static str {
        match self {
            Self::CodexNotify => Self::Codex.name(),
            cli => cli.name(),
        }
    }

    fn event_paths(self) -> &'static [&'static str] {
        match self {
            Self::CodexNotify => &["type"],
            Self::OpenCode => &["hook_type", "type", "event.type", "hook_event_name"],
            _ => &["hook_event_name"],
        }
    }

    fn session_paths(self) -> &'static [&'static str] {
        match self {
            Self::CodexNotify => &["thread-id"],
            Self::Cursor => &["session_id", "conversation_id"],
            Self::OpenCode => &[
                "session_id",
                "sessionID",
                "sessionId",
                "properties.sessionID",
                "properties.sessionId",
                "properties.session_id",
                "properties.info.sessionID",
                "properties.part.sessionID",
                "event.properties.sessionID",
                "event.properties.info.sessionID",
                "event.properties.part.sessionID",
                "input.sessionID",
            ],
            _ => &["session_id"],
        }
    }
}

impl fmt::Display for AgentCli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AgentCli {
    type Err = UnknownCli;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|cli| cli.name() == name)
            .ok_or_else(|| UnknownCli {
                name: name.to_owned(),
            })
    }
}

/// What a payload says of itself. Empty strings count as absent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fields {
    pub native_event: Option<String>,
    pub session: Option<String>,
    pub cwd: Option<String>,
    /// Sent by Cursor, under whichever CLI's hook it ran us.
    pub is_cursor: bool,
    pub transcript_path: Option<String>,
    /// Of an agent that works for the session's own, under its id.
    pub is_of_subagent: bool,
    /// `prompt` is there, and has no text in it.
    pub has_empty_prompt: bool,
}

impl Fields {
    /// Reads the few fields that are needed; nothing else of the document is looked into.
    pub fn of(cli: AgentCli, payload: &RawValue) -> Self {
        let top = Members::of(payload);
        let first = |paths: &[&str]| paths.iter().find_map(|path| top.text(path));
        let is_cursor = top.get("cursor_version").is_some();
        let native_event = first(cli.event_paths());
        let session = first(cli.session_paths())
            .or_else(|| {
                is_cursor
                    .then(|| first(AgentCli::Cursor.session_paths()))
                    .flatten()
            })
            .or_else(|| {
                // In other events, `info` is a message, and the id its own.
                let about_session = cli == AgentCli::OpenCode
                    && native_event
                        .as_deref()
                        .is_some_and(|name| name.starts_with("session."));
                about_session
                    .then(|| first(&["properties.info.id", "event.properties.info.id"]))
                    .flatten()
            });
        Self {
            native_event,
            session,
            cwd: top.text("cwd"),
            is_cursor,
            transcript_path: top.text("transcript_path"),
            is_of_subagent: top.text("agent_id").is_some(),
            has_empty_prompt: top.get("prompt").is_some_and(is_empty),
        }
    }

    /// What can be found in text that is not JSON: the first string after the session's key.
    pub fn of_broken(cli: AgentCli, text: &str) -> Self {
        let first = |paths: &[&str]| {
            paths
                .iter()
                .find_map(|path| string_after(text, path.rsplit('.').next().unwrap_or(path)))
        };
        Self {
            native_event: first(cli.event_paths()),
            session: first(cli.session_paths()),
            ..Self::default()
        }
    }
}

fn is_empty(text: &RawValue) -> bool {
    text_of(text).is_some_and(|text| text.trim().is_empty())
}

fn string_after(text: &str, key: &str) -> Option<String> {
    let quoted = format!("\"{key}\"");
    text.match_indices(&quoted).find_map(|(at, _)| {
        let value = text[at + quoted.len()..]
            .trim_start()
            .strip_prefix(':')?
            .trim_start();
        // Reads one value and leaves alone whatever is broken after it.
        let value = serde_json::Deserializer::from_str(value)
            .into_iter::<&RawValue>()
            .next()?
            .ok()?;
        present(text_of(value)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(cli: AgentCli, json: &str) -> Fields {
        Fields::of(cli, serde_json::from_str(json).unwrap())
    }

    #[test]
    fn names_round_trip_and_others_are_refused_with_the_list() {
        for cli in AgentCli::ALL {
            assert_eq!(cli.name().parse::<AgentCli>().unwrap(), cli);
        }
        let error = "claude".parse::<AgentCli>().unwrap_err().to_string();
        assert!(error.contains("claude-code, codex,"), "{error}");
    }

    #[test]
    fn session_and_event_are_found_in_every_clis_shape() {
        use AgentCli::*;
        for (cli, json) in [
            (
                ClaudeCode,
                r#"{"hook_event_name":"E","session_id":"s","x":{"session_id":"no"}}"#,
            ),
            (CodexNotify, r#"{"type":"E","thread-id":"s"}"#),
            (
                Cursor,
                r#"{"hook_event_name":"E","session_id":"","conversation_id":"s"}"#,
            ),
            (OpenCode, r#"{"type":"E","properties":{"sessionID":"s"}}"#),
            (OpenCode, r#"{"hook_type":"E","session_id":"s"}"#),
            (
                OpenCode,
                r#"{"event":{"type":"E","properties":{"info":{"id":"m","sessionID":"s"}}}}"#,
            ),
            (
                OpenCode,
                r#"{"type":"E","properties":{"part":{"sessionID":"s"}}}"#,
            ),
            (
                OpenCode,
                r#"{"type":"E","input":{"sessionID":"s","tool":"bash"}}"#,
            ),
            // Cursor, running the hooks of Claude Code.
            (
                ClaudeCode,
                r#"{"hook_event_name":"E","conversation_id":"s","cursor_version":"3"}"#,
            ),
        ] {
            let fields = fields(cli, json);
            assert_eq!(fields.native_event.as_deref(), Some("E"), "{json}");
            assert_eq!(fields.session.as_deref(), Some("s"), "{json}");
        }
    }

    #[test]
    fn an_id_of_a_message_is_not_taken_for_a_session() {
        let message = r#"{"type":"message.updated","properties":{"info":{"id":"m"}}}"#;
        assert_eq!(fields(AgentCli::OpenCode, message).session, None);
        let session = r#"{"type":"session.updated","properties":{"info":{"id":"s"}}}"#;
        assert_eq!(
            fields(AgentCli::OpenCode, session).session.as_deref(),
            Some("s")
        );
    }

    #[test]
    fn odd_documents_have_no_fields_and_do_no_harm() {
        for json in [
            "[]",
            "1",
            "null",
            r#"{"session_id":null,"hook_event_name":{}}"#,
            r#"{"\ud800":1}"#,
        ] {
            assert_eq!(
                fields(AgentCli::ClaudeCode, json),
                Fields::default(),
                "{json}"
            );
        }
        assert_eq!(
            fields(AgentCli::Codex, r#"{"session_id":7}"#)
                .session
                .as_deref(),
            Some("7")
        );
        let twice = r#"{"session_id":"old","session_id":"new"}"#;
        assert_eq!(
            fields(AgentCli::Codex, twice).session.as_deref(),
            Some("new")
        );
    }

    #[test]
    fn broken_text_still_gives_its_session() {
        let text =
            r#"{"command":"echo \"session_id\": ?? , "session_id" : "s-1","hook_event_name":"Stop"#;
        let fields = Fields::of_broken(AgentCli::Cursor, text);
        assert_eq!(fields.session.as_deref(), Some("s-1"));
        assert_eq!(fields.native_event, None);
    }
}
