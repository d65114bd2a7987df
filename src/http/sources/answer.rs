//! What a platform's verified request is answered with.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use lanekeeper_core::source::{Signature, SourceDefinition};
use lanekeeper_postgres::append::Enqueued;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::events::json as with_json;
use super::super::problem::Problem;
use super::super::problem_type;

/// What a person is answered whose command the source's `only` leaves out.
const NOT_SENT: &str = "This is not sent to an agent.";
/// A message that only its reader sees.
const EPHEMERAL: u32 = 64;
/// Tells Slack that the same request would be refused again.
const NO_RETRY: &str = "x-slack-no-retry";

/// It became no message.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "IgnoredRequest")]
pub(super) struct Ignored {
    /// Why not.
    ignored: String,
}

/// What the source's platform takes as an answer.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "PlatformAnswer")]
pub(super) enum Told {
    /// Slack: the address is ours.
    Challenge { challenge: String },
    /// Slack: what a person reads who gave a command.
    Reply {
        response_type: &'static str,
        text: String,
    },
    /// Discord: an interaction's response.
    Interaction {
        r#type: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
    },
    /// Telegram: a method of the Bot API that it carries out.
    Call {
        method: &'static str,
        #[serde(flatten)]
        parameters: Map<String, Value>,
    },
}

/// Who reads the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// A program.
    Platform,
    /// The person who gave a command in Slack.
    SlackUser,
    /// The person who gave a command in Discord.
    DiscordUser,
}

impl Told {
    /// To Discord's PING.
    pub(super) const PONG: Self = Self::Interaction {
        r#type: 1,
        data: None,
    };
    const DEFERRED: Self = Self::Interaction {
        r#type: 5,
        data: None,
    };

    /// To Discord's question how a command could go on.
    pub(super) fn no_choices() -> Self {
        Self::Interaction {
            r#type: 8,
            data: Some(json!({"choices": []})),
        }
    }

    /// Only for him who gave the command. `None`: nobody reads it.
    fn message(text: &str, reader: Reader) -> Option<Self> {
        match reader {
            Reader::Platform => None,
            Reader::SlackUser => Some(Self::Reply {
                response_type: "ephemeral",
                text: text.to_owned(),
            }),
            Reader::DiscordUser => Some(Self::Interaction {
                r#type: 4,
                data: Some(json!({
                    "content": text, "flags": EPHEMERAL, "allowed_mentions": {"parse": []},
                })),
            }),
        }
    }

    /// Has Telegram carry out a method.
    pub(super) fn call((method, parameters): (&'static str, Value)) -> Self {
        let parameters = match parameters {
            Value::Object(parameters) => parameters,
            _ => Map::new(),
        };
        Self::Call { method, parameters }
    }

    pub(super) fn response(&self) -> Response {
        with(StatusCode::OK, self)
    }
}

/// For Postgres to answer since a request came: what its platform waits, less what the answer's way takes.
pub(super) fn within(signature: Signature) -> Duration {
    match signature {
        // They give up after 10 s or more.
        Signature::Standard | Signature::Github => Duration::from_secs(9),
        // After 3 s.
        Signature::Slack | Signature::Discord => Duration::from_millis(2_500),
    }
}

/// The message is committed, or was before.
pub(super) fn enqueued(
    definition: &SourceDefinition,
    reader: Reader,
    enqueued: &Enqueued,
) -> Response {
    if definition.deferred && reader == Reader::DiscordUser {
        return Told::DEFERRED.response();
    }
    let reply = definition.reply.as_deref();
    if let Some(told) = reply.and_then(|reply| Told::message(reply, reader)) {
        return told.response();
    }
    committed(enqueued)
}

/// The same, where nobody reads it.
pub(super) fn committed(enqueued: &Enqueued) -> Response {
    let status = match enqueued.duplicate {
        false => StatusCode::CREATED,
        true => StatusCode::OK,
    };
    with(status, enqueued)
}

/// Nothing was enqueued, and nothing is wrong.
pub(super) fn ignored(reader: Reader, reason: String) -> Response {
    match Told::message(NOT_SENT, reader) {
        Some(told) => told.response(),
        None => with(StatusCode::OK, &Ignored { ignored: reason }),
    }
}

/// Nothing was enqueued, or it is not known whether.
pub(super) fn refused(signature: Option<Signature>, problem: Problem) -> Response {
    let of = problem.problem_type();
    let mut response = problem.into_response();
    let is_final = of.status.is_client_error() && of.status != StatusCode::TOO_MANY_REQUESTS;
    if signature == Some(Signature::Slack) && is_final {
        let headers = response.headers_mut();
        headers.insert(NO_RETRY, HeaderValue::from_static("1"));
    }
    response
}

/// A request of this platform has nothing that says what it is.
pub(super) fn unknown(what: &str) -> Problem {
    let detail = format!("the request is {what}: nothing was enqueued");
    Problem::new(problem_type::INVALID, detail)
        .hint("give the platform the address of the source that is made for it")
}

fn with(status: StatusCode, body: &impl Serialize) -> Response {
    let body = serde_json::to_vec(body).expect("texts, ids and numbers always serialise");
    with_json(status, body)
}
