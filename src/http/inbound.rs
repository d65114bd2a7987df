//! `/v1/inbound/{session}`: appends what a person wrote to an agent (E1, E2). The fields are those of
//! `lanekeeper.enqueue_inbound`.
//!
//! A request is answered after its message is committed. A client may repeat a request with a source message id.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, FromRef, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use deadpool_postgres::Object;
use lanekeeper_postgres::append::{AppendError, Enqueued};
use lanekeeper_postgres::inbound::{self, MessageType, NewInbound};
use lanekeeper_postgres::token::Scope;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::access::Peer;
use super::body::joined;
use super::events::{Desk, HeldBody, json, trace_of};
use super::openapi::operation::post;
use super::problem::Problem;
use super::problem_type;
use super::routes::{Routes, Shared};

const PATH: &str = "/v1/inbound/{session}";
/// For Postgres to answer: longer than a statement waits for a producer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Desk>: FromRef<S>,
{
    Routes::new().on(
        post(
            PATH,
            "append_inbound",
            "Append what a person wrote to an agent",
        )
        .details(
            "Answered after it is committed. A request may be repeated with a source message id.",
        )
        .scopes(&[Scope::Produce])
        .header("traceparent", "W3C Trace Context.")
        .header("tracestate", "Beside `traceparent`.")
        .body::<Message<'static>>()
        .answers::<Enqueued>(201, "It was appended")
        .answers::<Enqueued>(200, "It was there before")
        .problems(problem_type::OF_APPENDS),
        append,
    )
}

/// A message as a request has it.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "InboundMessage")]
#[serde(deny_unknown_fields)]
struct Message<'a> {
    #[serde(borrow)]
    origin: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Cow<'a, str>,
    #[serde(borrow)]
    message_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    actor_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    actor_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    actor_avatar_url: Option<Cow<'a, str>>,
    #[serde(borrow)]
    source_message_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    source_channel_id: Option<Cow<'a, str>>,
}

impl<'a> Message<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Problem> {
        let text = std::str::from_utf8(body).map_err(|error| unreadable(&error))?;
        // By itself serde takes an array of the fields too.
        if !text.trim_start().starts_with('{') {
            return Err(unreadable(&"it is not an object"));
        }
        serde_json::from_str(text).map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> Problem {
    let error = Problem::excerpt(&error.to_string());
    let detail = format!("the body is not what is expected ({error}): nothing was enqueued");
    Problem::new(problem_type::INVALID, detail)
        .hint("send {\"origin\":…,\"content\":…,\"source_message_id\":…}")
}

async fn append(
    State(desk): State<Arc<Desk>>,
    path: Result<Path<String>, PathRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let Path(session) = path.map_err(|rejection| unreadable(&rejection))?;
    let judged =
        desk.access
            .judge_session(&headers, peer, Scope::Produce, inbound::STREAM, &session);
    let grant = judged.await?;
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let HeldBody { bytes, room } = desk.body_of_append(token_id, body).await?;
    // What one token's holder calls a message by name is no other's.
    let producer = grant.map(|grant| grant.producer());
    let trace = trace_of(&headers).and_then(|trace| joined(&trace, None));
    let place = desk.request()?;
    // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
    let appending = tokio::spawn(async move {
        let _held = (room, place);
        let message = Message::read(&bytes)?;
        let message = NewInbound {
            message_type: message
                .message_type
                .as_deref()
                .unwrap_or(MessageType::Text.as_str()),
            payload: message.payload.map(RawValue::get),
            actor_id: message.actor_id.as_deref(),
            actor_name: message.actor_name.as_deref(),
            actor_avatar_url: message.actor_avatar_url.as_deref(),
            source_message_id: message.source_message_id.as_deref(),
            source_channel_id: message.source_channel_id.as_deref(),
            headers: trace.as_deref(),
            // The empty name for whoever needs no token.
            producer: Some(producer.as_deref().unwrap_or_default()),
            ..NewInbound::text(&session, &message.origin, &message.content)
        };
        enqueue(&desk, &message).await
    });
    let enqueued = appending.await.unwrap_or_else(|_| Err(Problem::failed()))?;
    let status = match enqueued.duplicate {
        false => StatusCode::CREATED,
        true => StatusCode::OK,
    };
    let body = serde_json::to_vec(&enqueued).expect("ids and numbers always serialise");
    Ok(json(status, body))
}

/// Asks Postgres. A connection that does not answer in time does not go back to the pool.
async fn enqueue(desk: &Desk, message: &NewInbound<'_>) -> Result<Enqueued, Problem> {
    let client = desk.pool.get().await.map_err(|_| Problem::busy())?;
    let appending = inbound::enqueue_inbound(&**client, message);
    let Ok(appended) = timeout(ANSWER_WITHIN, appending).await else {
        drop(Object::take(client));
        return Err(Problem::of_append(&AppendError::TimedOut));
    };
    let enqueued = appended.map_err(|error| Problem::of_append(&error))?;
    desk.appended(inbound::STREAM, 1, enqueued.duplicate);
    Ok(enqueued)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_with_the_fields_of_a_message_is_one() {
        let message = Message::read(br#" {"origin":"telegram","content":"a\u001b[31m"}"#).unwrap();
        assert_eq!(
            message.content, "a\u{1b}[31m",
            "control characters are data"
        );
        for bad in [
            "",
            "[]",
            r#"["telegram","hi"]"#,
            r#"{"content":"hi"}"#,
            r#"{"origin":"telegram","content":5}"#,
            r#"{"origin":"telegram","contents":"hi"}"#,
        ] {
            assert!(Message::read(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Message::read(b"{\"origin\":\"\xff\"}").is_err());
    }
}
