//! `/v1/sessions/{stream}/{session}/close`, `…/reopen` and `…/bind`: what operators do to a session.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::post;
use deadpool_postgres::Object;
use lanekeeper_postgres::token::Scope;
use lanekeeper_postgres::{StoreError, closing, host_route, sqlstate};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::access::Peer;
use super::events::{Desk, json};
use super::problem::Problem;
use super::problem_type;

/// For Postgres to answer: longer than the function waits for a producer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

type Named = Result<Path<(String, String)>, PathRejection>;

/// The routes.
pub fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/v1/sessions/{stream}/{session}/close", post(close))
        .route("/v1/sessions/{stream}/{session}/reopen", post(reopen))
        .route("/v1/sessions/{stream}/{session}/bind", post(bind))
        .method_not_allowed_fallback(not_so)
        .with_state(desk)
}

async fn not_so() -> Problem {
    Problem::new(problem_type::METHOD_NOT_ALLOWED, "this path takes POST")
}

/// The body of a close; an empty one asks for what is usual.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Close {
    reason: Option<String>,
    drain: bool,
}

#[derive(Serialize)]
struct Closed {
    expired: i64,
}

#[derive(Serialize)]
struct Bound {
    changed: bool,
}

#[derive(Serialize)]
struct Reopened {
    reopened: bool,
}

async fn close(
    State(desk): State<Arc<Desk>>,
    path: Named,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let Path((stream, session)) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let judged = desk
        .access
        .judge_session(&headers, peer, Scope::Operate, &stream, &session);
    let token_id = judged.await?.map(|grant| grant.token_id);
    let body = desk.small_body(token_id, body).await?;
    let Close { reason, drain } = if body.is_empty() {
        Close::default()
    } else {
        // Not at once: a struct may be read from an array too.
        let object = serde_json::from_slice::<Map<String, Value>>(&body);
        let close = object.and_then(|object| serde_json::from_value(Value::Object(object)));
        close.map_err(|error| {
            let detail = format!("the body is not what is expected ({error}): nothing was done");
            Problem::new(problem_type::INVALID, detail)
                .hint("send {\"reason\":\"…\",\"drain\":false}, or no body")
        })?
    };
    change(desk, stream, session, Change::Close { reason, drain }).await
}

async fn reopen(
    State(desk): State<Arc<Desk>>,
    path: Named,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path((stream, session)) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let judged = desk
        .access
        .judge_session(&headers, peer, Scope::Operate, &stream, &session);
    judged.await?;
    change(desk, stream, session, Change::Reopen).await
}

async fn bind(
    State(desk): State<Arc<Desk>>,
    path: Named,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let Path((stream, session)) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let judged = desk
        .access
        .judge_session(&headers, peer, Scope::Operate, &stream, &session);
    let token_id = judged.await?.map(|grant| grant.token_id);
    let body = desk.small_body(token_id, body).await?;
    // A body without the key must not unbind.
    let object = serde_json::from_slice::<Map<String, Value>>(&body).unwrap_or_default();
    let host = match object.get("host") {
        Some(Value::String(host)) if object.len() == 1 => Some(host.clone()),
        Some(Value::Null) if object.len() == 1 => None,
        _ => {
            let detail = "the body is not what is expected: nothing was done";
            return Err(Problem::new(problem_type::INVALID, detail).hint(
                "send {\"host\":\"…\"}, or {\"host\":null} for the host of the agent registry",
            ));
        }
    };
    change(desk, stream, session, Change::Bind { host }).await
}

/// What is done to a session.
enum Change {
    Bind { host: Option<String> },
    Close { reason: Option<String>, drain: bool },
    Reopen,
}

/// In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
async fn change(
    desk: Arc<Desk>,
    stream: String,
    session: String,
    change: Change,
) -> Result<Response, Problem> {
    let place = desk.request()?;
    let changing = tokio::spawn(async move {
        let _held = place;
        carry_out(&desk, &stream, &session, change).await
    });
    changing.await.unwrap_or_else(|_| Err(Problem::failed()))
}

/// Asks Postgres. A connection that does not answer in time does not go back to the pool.
async fn carry_out(
    desk: &Desk,
    stream: &str,
    session: &str,
    change: Change,
) -> Result<Response, Problem> {
    let client = desk.pool.get().await.map_err(|_| Problem::busy())?;
    let asking = async {
        match &change {
            Change::Close { reason, drain } => {
                let reason = reason.as_deref();
                let expired =
                    closing::close_session(&**client, stream, session, reason, *drain).await?;
                Ok::<_, StoreError>(answer(&Closed { expired }))
            }
            Change::Bind { host } => {
                let host = host.as_deref();
                let changed = host_route::bind_session(&**client, stream, session, host).await?;
                Ok(answer(&Bound { changed }))
            }
            Change::Reopen => {
                let reopened = closing::reopen_session(&**client, stream, session).await?;
                Ok(answer(&Reopened { reopened }))
            }
        }
    };
    match timeout(ANSWER_WITHIN, asking).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(refused(&error)),
        Err(_) => {
            drop(Object::take(client));
            let detail = "Postgres did not answer: the session may or may not have been changed";
            let hint = "repeat the request: it does nothing twice";
            Err(Problem::later(problem_type::OUTCOME_UNKNOWN, detail, 1).hint(hint))
        }
    }
}

fn refused(error: &StoreError) -> Problem {
    let Some(refusal) = error.refusal() else {
        return Problem::of_statement(error);
    };
    let of = match error.sqlstate() {
        Some(sqlstate::LANE_BUSY) => {
            return Problem::later(problem_type::SESSION_BUSY, refusal.message, 1);
        }
        Some(sqlstate::NO_SESSION) => problem_type::NOT_FOUND,
        Some(sqlstate::UNKNOWN_STREAM) => problem_type::UNKNOWN_STREAM,
        _ => problem_type::INVALID,
    };
    let problem = Problem::new(of, refusal.message);
    match refusal.hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

fn answer(done: &impl Serialize) -> Response {
    let body = serde_json::to_vec(done).expect("numbers and truth values always serialise");
    json(StatusCode::OK, body)
}
