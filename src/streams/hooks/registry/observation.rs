//! What one event tells about its session: read from headers and payload, without a database.
//!
//! Formats of CLIs grow, so that whatever is not needed may be missing or of another kind. What a
//! type must have is what its action needs:
//!
//! | type | must have |
//! |---|---|
//! | all but `error` | a session id: the header `native_session_id`, or the payload's own |
//! | `user_prompt_submit` | `prompt`, empty or not; not so OpenCode's, whose plugins decide what they pass on |
//! | `notification` | a message, or the tool that asks for permission |
//! | `error` | a message, or a native event that says what it is |
//!
//! A payload that Lanekeeper itself put in place of one that could not be stored has none of that:
//! there the headers tell what they can. An `error` that a native event became for want of a readable
//! payload still means to the turn what that event means: an unreadable `Stop` closes it.

use std::borrow::Cow;

use lanekeeper_core::event::Event;
use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::super::event_type::{ERROR, SESSION_STATUS, event_type};
use super::super::members::Members;
use super::super::shape::{AgentCli, Fields};
use super::limits;
use super::shape::{Payload, Text};

/// What an event means to the turn of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Turn {
    Opens,
    /// It is over, also where its begin was not seen.
    Closes,
    /// One that is open is over.
    Cuts,
}

/// What an event means to the session as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Life {
    Starts,
    Ends,
}

/// Who knows the transcript's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TranscriptFrom {
    /// The agent's payload.
    Cli,
    /// A look into the agent's folders, by the session's id.
    Lookup,
}

/// What `lanekeeper.observe_hook` enters. What is absent changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Observation {
    #[serde(rename = "type")]
    pub event_type: String,
    pub native_session_id: String,
    /// As the CLI calls it; the type where that is not known.
    pub native_event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cli: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcript_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcript_from: Option<TranscriptFrom>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notification: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life: Option<Life>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
}

/// Why an event cannot be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    #[error("neither headers nor payload have a session id")]
    NoSession,
    #[error("a user_prompt_submit must have `prompt`, as text")]
    NoPrompt,
    #[error("a notification must have `message`, as text")]
    NoMessage,
    #[error("an error must have `message`, as text")]
    NoErrorMessage,
}

/// What `hook` wrote beside the payload.
#[derive(Default)]
struct Headers {
    cli: Option<AgentCli>,
    native_event: Option<String>,
    native_session_id: Option<String>,
    unattributed: bool,
    host: Option<String>,
    cwd: Option<String>,
    transcript_path: Option<String>,
}

impl Headers {
    fn of(json: Option<&str>) -> Self {
        let Some(document) = json.and_then(|json| serde_json::from_str::<&RawValue>(json).ok())
        else {
            return Self::default();
        };
        let members = Members::of(document);
        Self {
            cli: members.text("cli").and_then(|name| name.parse().ok()),
            native_event: members.text("native_event"),
            native_session_id: members.text("native_session_id"),
            unattributed: members
                .get("unattributed")
                .is_some_and(|value| value.get() == "true"),
            host: members.text("host"),
            cwd: members.text("cwd"),
            transcript_path: members.text("transcript_path"),
        }
    }
}

impl Observation {
    /// `None`: an error of nobody's session, complete as it is, of which the registry has no row.
    ///
    /// # Errors
    /// Where the event lacks what its type must have.
    pub fn of(event: &Event) -> Result<Option<Self>, Unfit> {
        let headers = Headers::of(event.headers.as_deref());
        let payload = Payload::of(&event.payload);
        let kind = &*event.event_type;
        let error = match kind {
            ERROR => Some(error_text(&headers, &payload)?),
            _ => None,
        };
        let Some(session) = session(&headers, &event.payload) else {
            return if error.is_some() {
                Ok(None)
            } else {
                Err(Unfit::NoSession)
            };
        };
        let native_event = headers.native_event.as_deref().unwrap_or(kind);
        let mut observation = Self {
            event_type: kind.to_owned(),
            native_session_id: limits::short(session, limits::NAME),
            native_event: limits::short(native_event.to_owned(), limits::NAME),
            cli: headers.cli.map(|cli| cli.agent().to_owned()),
            host: headers
                .host
                .clone()
                .map(|host| limits::short(host, limits::NAME)),
            ..Self::default()
        };
        if kind == "notification" {
            let text = match payload.notification() {
                None if !payload.is_stand_in() => return Err(Unfit::NoMessage),
                text => text,
            };
            observation.notification = text.map(|text| limits::short(text, limits::MESSAGE));
        }
        if error.is_some() {
            let code = payload.error_code();
            observation.error_code = code.map(|code| limits::short(code, limits::NAME));
            observation.error = error.map(|text| limits::short(text, limits::MESSAGE));
        }
        if !payload.is_of_subagent() {
            observation.of_the_session(&headers, &payload)?;
        }
        Ok(Some(observation))
    }

    /// What only the session's own agent can tell.
    fn of_the_session(&mut self, headers: &Headers, payload: &Payload<'_>) -> Result<(), Unfit> {
        let meaning = meaning(&self.event_type, headers);
        let meaning = meaning.as_deref().unwrap_or_default();
        self.turn = turn(meaning, payload);
        self.turn_id = payload.turn_id().map(|id| limits::short(id, limits::NAME));
        self.life = match meaning {
            "session_start" if !is_compaction(payload) => Some(Life::Starts),
            "session_end" => Some(Life::Ends),
            _ => None,
        };
        if self.turn == Some(Turn::Opens) || self.turn == Some(Turn::Closes) {
            let prompt = payload.prompt();
            let optional = self.event_type != "user_prompt_submit"
                || headers.cli == Some(AgentCli::OpenCode)
                || payload.is_stand_in();
            if prompt == Text::Absent && !optional {
                return Err(Unfit::NoPrompt);
            }
            self.prompt = prompt
                .said()
                .map(|prompt| limits::short(prompt, limits::PROMPT));
        }
        self.model = payload
            .model()
            .map(|model| limits::short(model, limits::NAME));
        self.cwd = (headers.cwd.clone())
            .or_else(|| payload.cwd())
            .and_then(limits::path);
        let given = payload.transcript_path().and_then(limits::path);
        let found = headers.transcript_path.clone().and_then(limits::path);
        (self.transcript_path, self.transcript_from) = match (given, found) {
            (Some(path), _) => (Some(path), Some(TranscriptFrom::Cli)),
            (None, Some(path)) => (Some(path), Some(TranscriptFrom::Lookup)),
            (None, None) => (None, None),
        };
        Ok(())
    }
}

fn error_text(headers: &Headers, payload: &Payload<'_>) -> Result<String, Unfit> {
    payload
        .error()
        .or_else(|| headers.native_event.clone())
        .ok_or(Unfit::NoErrorMessage)
}

fn session(headers: &Headers, payload: &str) -> Option<String> {
    if headers.unattributed {
        return None;
    }
    headers.native_session_id.clone().or_else(|| {
        // Not reported by `hook`: somebody else's event in its shape.
        let document = serde_json::from_str::<&RawValue>(payload).ok()?;
        let named = headers.cli.into_iter().chain(AgentCli::ALL);
        named
            .map(|cli| Fields::of(cli, document).session)
            .find(Option::is_some)
            .flatten()
    })
}

/// The type by which life and turn are judged. An error is judged by its native event: one that
/// takes a `Stop`'s place (`StopFailure`, `session.error`), or the event whose payload was unreadable.
/// Without a native event it says nothing of the turn.
fn meaning<'a>(kind: &'a str, headers: &Headers) -> Option<Cow<'a, str>> {
    match kind {
        ERROR => headers.native_event.as_deref().map(event_type),
        kind => Some(Cow::Borrowed(kind)),
    }
}

fn turn(meaning: &str, payload: &Payload<'_>) -> Option<Turn> {
    match meaning {
        "user_prompt_submit" => Some(Turn::Opens),
        "agent_stop" => Some(Turn::Closes),
        ERROR | "session_end" => Some(Turn::Cuts),
        "session_start" if !is_compaction(payload) => Some(Turn::Cuts),
        "notification" if waits_for_prompt(payload) => Some(Turn::Cuts),
        SESSION_STATUS if payload.status().as_deref() == Some("idle") => Some(Turn::Cuts),
        _ => None,
    }
}

/// Claude Code and Codex start a session anew when they shorten its history, in the middle of a turn.
fn is_compaction(payload: &Payload<'_>) -> bool {
    payload.text("source").as_deref() == Some("compact")
}

fn waits_for_prompt(payload: &Payload<'_>) -> bool {
    matches!(
        payload.notification_type().as_deref(),
        Some("idle_prompt" | "idle")
    )
}
