//! Where each CLI puts what the registry wants to know.
//!
//! | told | members |
//! |---|---|
//! | prompt | `prompt`; OpenCode `output.parts[].text`; Codex notify the last of `input-messages` |
//! | notification | `message`, `title`, the tool of a permission request, OpenCode's `properties` and its questions |
//! | error | `message`, `error_details`, `last_assistant_message`; `error` is Claude Code's code; OpenCode's `properties.error` |
//! | turn | `turn_id` of Codex, `turn-id` of its notify. Other CLIs have ids that change within a turn |

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::members::{Members, present};
use super::super::string::text_of;

/// A member that is text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Not there, or no text.
    Absent,
    /// There, and empty: a prompt may be a picture alone.
    Blank,
    Said(String),
}

impl Text {
    pub fn said(self) -> Option<String> {
        match self {
            Self::Said(text) => Some(text),
            Self::Absent | Self::Blank => None,
        }
    }

    fn of(value: Option<&RawValue>) -> Self {
        match value.and_then(text_of) {
            None => Self::Absent,
            Some(text) => present(text).map_or(Self::Blank, Self::Said),
        }
    }
}

/// The members of one payload.
pub struct Payload<'a>(Members<'a>);

impl<'a> Payload<'a> {
    pub fn of(json: &'a str) -> Self {
        let document = serde_json::from_str::<&RawValue>(json).unwrap_or(RawValue::NULL);
        Self(Members::of(document))
    }

    fn first(&self, paths: &[&str]) -> Option<String> {
        paths.iter().find_map(|path| self.0.text(path))
    }

    pub fn text(&self, path: &str) -> Option<String> {
        self.0.text(path)
    }

    /// Put in its place by `hook` or the spool: the CLI's own payload could not be stored.
    pub fn is_stand_in(&self) -> bool {
        ["undecodable", "rejected"]
            .iter()
            .any(|key| self.0.get(key).and_then(text_of).is_some())
    }

    /// Of an agent that works for the session's own.
    pub fn is_of_subagent(&self) -> bool {
        self.0.text("agent_id").is_some()
    }

    pub fn prompt(&self) -> Text {
        match Text::of(self.0.get("prompt")) {
            Text::Absent => self
                .last_input_message()
                .or_else(|| self.open_code_prompt())
                .map_or(Text::Absent, Text::Said),
            prompt => prompt,
        }
    }

    fn last_input_message(&self) -> Option<String> {
        let messages: Vec<&RawValue> =
            serde_json::from_str(self.0.get("input-messages")?.get()).ok()?;
        present(text_of(messages.last()?)?)
    }

    fn open_code_prompt(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Output<'p> {
            #[serde(borrow)]
            parts: Vec<&'p RawValue>,
        }
        let output: Output<'_> = serde_json::from_str(self.0.get("output")?.get()).ok()?;
        let texts = output.parts.into_iter().map(Members::of);
        let texts: Vec<String> = texts.filter_map(|part| part.text("text")).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    pub fn notification(&self) -> Option<String> {
        self.first(&["message", "title", "properties.message", "properties.title"])
            .or_else(|| self.question())
            .or_else(|| {
                self.first(&[
                    "tool_name",
                    "properties.permission",
                    "properties.action",
                    "properties.type",
                ])
                .map(|tool| format!("permission for {tool}"))
            })
    }

    /// The first of the questions that OpenCode's agent asks at once.
    fn question(&self) -> Option<String> {
        let properties = Members::of(self.0.get("properties")?);
        let questions: Vec<&RawValue> =
            serde_json::from_str(properties.get("questions")?.get()).ok()?;
        Members::of(questions.first()?).text("question")
    }

    /// What OpenCode's `session.status` says: idle, busy or retry.
    pub fn status(&self) -> Option<String> {
        self.first(&["properties.status.type", "properties.status"])
    }

    pub fn notification_type(&self) -> Option<String> {
        self.text("notification_type")
    }

    pub fn error(&self) -> Option<String> {
        self.first(&[
            "message",
            "error_details",
            "error.message",
            "properties.message",
            "properties.error.data.message",
            "properties.error.message",
            "properties.error.name",
            // Claude Code's StopFailure: what it showed in place of an answer.
            "last_assistant_message",
            "error",
        ])
    }

    pub fn error_code(&self) -> Option<String> {
        self.first(&["code", "error.code", "properties.error.name", "error"])
    }

    pub fn turn_id(&self) -> Option<String> {
        self.first(&["turn_id", "turn-id"])
    }

    pub fn transcript_path(&self) -> Option<String> {
        self.text("transcript_path")
    }

    pub fn cwd(&self) -> Option<String> {
        self.first(&["cwd", "properties.info.directory"])
            .or_else(|| {
                let roots: Vec<&RawValue> =
                    serde_json::from_str(self.0.get("workspace_roots")?.get()).ok()?;
                present(text_of(roots.first()?)?)
            })
    }

    pub fn model(&self) -> Option<String> {
        self.first(&["model", "input.model.modelID"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_found_in_every_clis_shape() {
        for (json, prompt) in [
            (r#"{"prompt":"do it"}"#, Text::Said("do it".to_owned())),
            (r#"{"prompt":7}"#, Text::Said("7".to_owned())),
            (r#"{"prompt":" "}"#, Text::Blank),
            (r#"{"prompt":{}}"#, Text::Absent),
            (
                r#"{"input-messages":["a","b"]}"#,
                Text::Said("b".to_owned()),
            ),
            (r#"{"input-messages":[]}"#, Text::Absent),
            (
                r#"{"output":{"parts":[{"type":"text","text":"a"},{"type":"file"},{"text":"b"}]}}"#,
                Text::Said("a\nb".to_owned()),
            ),
            (r#"{"output":{"parts":{}}}"#, Text::Absent),
            ("[]", Text::Absent),
        ] {
            assert_eq!(Payload::of(json).prompt(), prompt, "{json}");
        }
    }

    #[test]
    fn errors_have_their_text_and_their_code() {
        for (json, text, code) in [
            (r#"{"message":"m","code":"c"}"#, Some("m"), Some("c")),
            (
                r#"{"error":"rate_limit"}"#,
                Some("rate_limit"),
                Some("rate_limit"),
            ),
            (
                r#"{"error":"overloaded","error_details":"529"}"#,
                Some("529"),
                Some("overloaded"),
            ),
            (
                r#"{"properties":{"error":{"name":"APIError","data":{"message":"Overloaded"}}}}"#,
                Some("Overloaded"),
                Some("APIError"),
            ),
            (
                r#"{"error":"server_error","last_assistant_message":"API Error: 500"}"#,
                Some("API Error: 500"),
                Some("server_error"),
            ),
            ("{}", None, None),
        ] {
            let payload = Payload::of(json);
            assert_eq!(payload.error().as_deref(), text, "{json}");
            assert_eq!(payload.error_code().as_deref(), code, "{json}");
        }
    }

    #[test]
    fn notifications_say_what_the_agent_waits_for() {
        for (json, text) in [
            (
                r#"{"tool_name":"Bash","tool_input":{}}"#,
                Some("permission for Bash"),
            ),
            (
                r#"{"properties":{"permission":"bash"}}"#,
                Some("permission for bash"),
            ),
            (r#"{"message":"waiting","title":"t"}"#, Some("waiting")),
            (
                r#"{"properties":{"questions":[{"header":"h","question":"which?"},{"question":"b"}]}}"#,
                Some("which?"),
            ),
            (
                r#"{"properties":{"action":"edit","resources":["a"]}}"#,
                Some("permission for edit"),
            ),
            (r#"{"properties":{"questions":[]}}"#, None),
            (r#"{"notification_type":"x"}"#, None),
        ] {
            assert_eq!(Payload::of(json).notification().as_deref(), text, "{json}");
        }
    }
}
