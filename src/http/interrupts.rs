//! `/v1/streams/{stream}/sessions/{session}/interrupt` and `/v1/messages/{message_id}/cancel` (E9).
//!
//! An interrupt appends, and takes away what others appended: its token needs both `produce` and `operate`. A cancel needs
//! `operate`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, FromRef, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use deadpool_postgres::Object;
use lanekeeper_postgres::append::{AppendError, NewEvent};
use lanekeeper_postgres::interrupt::{self, Cancel, Cancelled, Interrupt, Interrupted};
use lanekeeper_postgres::sqlstate;
use lanekeeper_postgres::token::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::timeout;
use uuid::Uuid;

use super::access::{Peer, forbidden};
use super::body::joined;
use super::events::{Desk, HeldBody, json, trace_of};
use super::openapi::operation::post;
use super::problem::Problem;
use super::problem_type;
use super::routes::{Routes, Shared};

/// For Postgres to answer: longer than the functions wait for a lock.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Desk>: FromRef<S>,
{
    Routes::new()
        .on(
            post(
                "/v1/streams/{stream}/sessions/{session}/interrupt",
                "interrupt_session",
                "Append an event that is the next one of its session",
            )
            .details("What waits is superseded, and the running delivery is cancelled.")
            .scopes(&[Scope::Produce, Scope::Operate])
            .header(
                "traceparent",
                "W3C Trace Context, for an event that brings none of its own.",
            )
            .header("tracestate", "Beside `traceparent`.")
            .body::<Body>()
            .answers::<Interrupted>(201, "It was appended")
            .answers::<Interrupted>(200, "It was there before: nothing was done")
            .problems(problem_type::OF_APPENDS),
            interrupt_session,
        )
        .on(
            post(
                "/v1/messages/{message_id}/cancel",
                "cancel_message",
                "Cancel a message that waits",
            )
            .details("May be repeated: it does nothing twice.")
            .scopes(&[Scope::Operate])
            .query::<In>()
            .answers::<Answer>(200, "What came of it"),
            cancel_message,
        )
}

/// The event, as an append has it, and what is done to the session.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Interrupt")]
#[serde(deny_unknown_fields)]
struct Body {
    event_type: String,
    payload: Box<RawValue>,
    message_id: Option<Uuid>,
    dedupe_key: Option<String>,
    #[serde(default)]
    priority: i16,
    headers: Option<Box<RawValue>>,
    #[serde(default)]
    keep_waiting: bool,
    #[serde(default = "yes")]
    cancel_running: bool,
}

fn yes() -> bool {
    true
}

async fn interrupt_session(
    State(desk): State<Arc<Desk>>,
    path: Result<Path<(String, String)>, PathRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let Path((stream, session)) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let judged = desk
        .access
        .judge_session(&headers, peer, Scope::Produce, &stream, &session);
    let grant = judged.await?;
    if let Some(grant) = &grant
        && !grant.has(Scope::Operate)
    {
        return Err(forbidden(grant, Scope::Operate, "any stream"));
    }
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let HeldBody { bytes, room } = desk.body_of_append(token_id, body).await?;
    let body: Body = read(&bytes)?;
    let given = body.headers.as_deref();
    let traced = trace_of(&headers).and_then(|trace| joined(&trace, given));
    let producer = grant.map(|grant| grant.producer());
    let place = desk.request()?;
    // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
    let interrupting = tokio::spawn(async move {
        let _held = (room, place);
        let event = NewEvent {
            message_id: body.message_id,
            dedupe_key: body.dedupe_key.as_deref(),
            priority: body.priority,
            headers: traced
                .as_deref()
                .or(body.headers.as_deref().map(RawValue::get)),
            producer: producer.as_deref(),
            ..NewEvent::new(&session, &body.event_type, body.payload.get())
        };
        let what = Interrupt {
            keep_waiting: body.keep_waiting,
            cancel_running: body.cancel_running,
        };
        let client = desk.pool.get().await.map_err(|_| Problem::busy())?;
        let asking = interrupt::interrupt(&**client, &stream, &event, what);
        match timeout(ANSWER_WITHIN, asking).await {
            Ok(Ok(done)) => {
                desk.appended(&stream, 1, done.duplicate);
                Ok(done)
            }
            Ok(Err(AppendError::Store(error))) if error.sqlstate() == Some(sqlstate::LANE_BUSY) => {
                Err(Problem::session_busy())
            }
            Ok(Err(error)) => Err(Problem::of_append(&error)),
            Err(_) => {
                drop(Object::take(client));
                Err(Problem::of_append(&AppendError::TimedOut))
            }
        }
    });
    let done = interrupting
        .await
        .unwrap_or_else(|_| Err(Problem::failed()))?;
    Ok(answer(&done))
}

/// An object, and nothing else: serde takes an array of the fields too.
fn read(body: &[u8]) -> Result<Body, Problem> {
    let refused = |detail: &dyn std::fmt::Display| {
        Problem::unreadable(detail).hint(
            "send {\"event_type\":\"…\",\"payload\":…}, with keep_waiting and cancel_running where wanted",
        )
    };
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(refused(&"an interrupt is one object"));
    }
    serde_json::from_slice(body).map_err(|error| refused(&error))
}

fn answer(done: &Interrupted) -> Response {
    let status = if done.duplicate {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let body = serde_json::to_vec(done).expect("ids and numbers always serialise");
    json(status, body)
}

/// Where a message is; without, the day of the message is read.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "CancelledIn")]
#[serde(deny_unknown_fields)]
struct In {
    stream: Option<String>,
    session: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Cancellation")]
struct Answer {
    message_id: Uuid,
    result: Cancelled,
}

async fn cancel_message(
    State(desk): State<Arc<Desk>>,
    path: Result<Path<Uuid>, PathRejection>,
    query: Result<Query<In>, QueryRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // Who names the session needs to reach no other: a message elsewhere is unknown.
    let grant = match &query {
        Ok(Query(In {
            stream: Some(stream),
            session: Some(session),
        })) => {
            let judged = desk
                .access
                .judge_session(&headers, peer, Scope::Operate, stream, session);
            judged.await?
        }
        _ => {
            desk.access
                .judge_any(&headers, peer, Scope::Operate)
                .await?
        }
    };
    let Path(message_id) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let Query(place) = query.map_err(|rejection| Problem::unreadable(&rejection))?;
    if place.stream.is_some() != place.session.is_some() {
        let detail = "a stream and a session go together: nothing was done";
        return Err(Problem::new(problem_type::INVALID, detail)
            .hint("give ?stream=…&session=…, or neither"));
    }
    let request = desk.request()?;
    let cancelling = tokio::spawn(async move {
        let _held = request;
        let streams = grant.as_ref().and_then(|grant| grant.streams());
        let producer = grant.as_ref().map(|grant| grant.producer());
        let which = Cancel {
            message_id,
            session: place.stream.as_deref().zip(place.session.as_deref()),
            streams,
            producer: producer.as_deref(),
        };
        let client = desk.pool.get().await.map_err(|_| Problem::busy())?;
        match timeout(ANSWER_WITHIN, interrupt::cancel(&**client, which)).await {
            Ok(Ok(result)) => Ok(Answer { message_id, result }),
            Ok(Err(error)) => Err(match (error.sqlstate(), error.refusal()) {
                (Some(sqlstate::LANE_BUSY), Some(refusal)) => {
                    Problem::later(problem_type::SESSION_BUSY, refusal.message, 1)
                }
                (Some(sqlstate::NOT_A_PRODUCER), Some(refusal)) => {
                    Problem::new(problem_type::FORBIDDEN, refusal.message)
                }
                _ => Problem::of_statement(&error),
            }),
            Err(_) => {
                drop(Object::take(client));
                let detail = "Postgres did not answer: the message may or may not be cancelled";
                let hint = "repeat the request: it does nothing twice";
                Err(Problem::later(problem_type::OUTCOME_UNKNOWN, detail, 1).hint(hint))
            }
        }
    });
    let answer = cancelling
        .await
        .unwrap_or_else(|_| Err(Problem::failed()))?;
    let body = serde_json::to_vec(&answer).expect("ids and words always serialise");
    Ok(json(StatusCode::OK, body))
}
