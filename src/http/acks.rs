//! `/v1/acks` and `/v1/acks/{message_id}`: consumers acknowledge what they were sent (C3).
//!
//! A late or unknown acknowledgement is answered with 200 like any other: it harms nobody.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, FromRef, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use deadpool_postgres::Object;
use lanekeeper_postgres::sent::{self, Acked};
use lanekeeper_postgres::token::{Grant, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use uuid::Uuid;

use super::access::Peer;
use super::events::{Desk, json};
use super::openapi::operation::post;
use super::problem::Problem;
use super::problem_type;
use super::routes::{Routes, Shared};

/// For Postgres to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Messages in one request.
const MOST: usize = 1_000;

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Desk>: FromRef<S>,
{
    Routes::new()
        .on(
            post("/v1/acks", "ack_many", "Acknowledge messages")
                .details("A late, repeated or unknown one harms nobody, and is no error.")
                .scopes(&[Scope::Produce])
                .query::<For>()
                .body::<Vec<Uuid>>()
                .answers::<Vec<Answer>>(200, "What came of each"),
            ack_many,
        )
        .on(
            post("/v1/acks/{message_id}", "ack_one", "Acknowledge a message")
                .scopes(&[Scope::Produce])
                .query::<For>()
                .answers::<Answer>(200, "What came of it"),
            ack_one,
        )
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "AckedFor")]
#[serde(deny_unknown_fields)]
struct For {
    /// Only for this subscription.
    subscription: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Acknowledgement")]
struct Answer {
    message_id: Uuid,
    result: Acked,
}

async fn ack_one(
    State(desk): State<Arc<Desk>>,
    path: Result<Path<Uuid>, PathRejection>,
    query: Result<Query<For>, QueryRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let judged = desk.access.judge_any(&headers, peer, Scope::Produce);
    let streams = judged.await?.and_then(|grant| streams_of(&grant));
    let Path(message_id) = path.map_err(|rejection| unreadable(&rejection))?;
    let Query(query) = query.map_err(|rejection| unreadable(&rejection))?;
    let answers = acknowledge(desk, vec![message_id], query.subscription, streams).await?;
    Ok(answer(&answers[0]))
}

async fn ack_many(
    State(desk): State<Arc<Desk>>,
    query: Result<Query<For>, QueryRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let judged = desk.access.judge_any(&headers, peer, Scope::Produce);
    let grant = judged.await?;
    let Query(query) = query.map_err(|rejection| unreadable(&rejection))?;
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let body = desk.small_body(token_id, body).await?;
    let streams = grant.and_then(|grant| streams_of(&grant));
    let message_ids: Vec<Uuid> =
        serde_json::from_slice(&body).map_err(|error| unreadable(&error))?;
    if message_ids.len() > MOST {
        let detail = format!("the request has more than {MOST} message ids: none was acknowledged");
        return Err(Problem::new(problem_type::INVALID, detail));
    }
    let answers = acknowledge(desk, message_ids, query.subscription, streams).await?;
    Ok(answer(&answers))
}

/// The streams that a token is for; `None`: all.
fn streams_of(grant: &Grant) -> Option<Vec<String>> {
    grant.streams().map(<[String]>::to_vec)
}

fn unreadable(error: &dyn std::fmt::Display) -> Problem {
    let error = Problem::excerpt(&error.to_string());
    let detail = format!("the request is not what is expected ({error}): nothing was done");
    Problem::new(problem_type::INVALID, detail)
        .hint("name one message id in the path, or send an array of them")
}

/// In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
async fn acknowledge(
    desk: Arc<Desk>,
    message_ids: Vec<Uuid>,
    subscription: Option<String>,
    streams: Option<Vec<String>>,
) -> Result<Vec<Answer>, Problem> {
    let place = desk.request()?;
    let asking = tokio::spawn(async move {
        let _held = place;
        let client = desk.pool.get().await.map_err(|_| Problem::busy())?;
        let subscription = subscription.as_deref();
        let acking = sent::ack_many(&**client, &message_ids, subscription, streams.as_deref());
        match timeout(ANSWER_WITHIN, acking).await {
            Ok(Ok(acked)) => Ok(acked),
            Ok(Err(error)) => Err(Problem::of_statement(&error)),
            Err(_) => {
                drop(Object::take(client));
                Err(Problem::away())
            }
        }
    });
    let acked = asking.await.unwrap_or_else(|_| Err(Problem::failed()))?;
    let answer = |(message_id, result)| Answer { message_id, result };
    Ok(acked.into_iter().map(answer).collect())
}

fn answer(answer: &impl Serialize) -> Response {
    let body = serde_json::to_vec(answer).expect("ids and words always serialise");
    json(StatusCode::OK, body)
}
