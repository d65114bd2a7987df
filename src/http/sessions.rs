//! `/v1/sessions/{stream}/{session}/close`, `…/reopen` and `…/bind`: what operators do to a session.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, FromRef, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use deadpool_postgres::Object;
use lanekeeper_postgres::token::Scope;
use lanekeeper_postgres::{StoreError, closing, host_route};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::access::Peer;
use super::events::{Desk, json};
use super::object;
use super::openapi::operation::post;
use super::problem::Problem;
use super::problem_type;
use super::routes::{Routes, Shared};

/// For Postgres to answer: longer than the function waits for a producer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

type Named = Result<Path<(String, String)>, PathRejection>;

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Desk>: FromRef<S>,
{
    Routes::new()
        .on(
            post("/v1/sessions/{stream}/{session}/close", "close_session", "Close a session")
                .details(
                    "It takes no more events. What is not delivered expires, or with `drain` is delivered first. May be \
                     repeated.",
                )
                .scopes(&[Scope::Operate])
                .optional_body::<Close>()
                .answers::<Closed>(200, "It is closed")
                .problems(&[problem_type::UNKNOWN_STREAM]),
            close,
        )
        .on(
            post("/v1/sessions/{stream}/{session}/reopen", "reopen_session", "Reopen a session")
                .details("What has expired stays expired.")
                .scopes(&[Scope::Operate])
                .answers::<Reopened>(200, "It is open")
                .problems(&[problem_type::UNKNOWN_STREAM]),
            reopen,
        )
        .on(
            post(
                "/v1/sessions/{stream}/{session}/bind",
                "bind_session",
                "Bind a session to a host",
            )
            .scopes(&[Scope::Operate])
            .body::<Bind>()
            .answers::<Bound>(200, "It is bound")
            .problems(&[problem_type::UNKNOWN_STREAM]),
            bind,
        )
}

/// The body of a close; an empty one asks for what is usual.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "CloseSession")]
#[serde(default, deny_unknown_fields)]
struct Close {
    reason: Option<String>,
    drain: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ClosedSession")]
struct Closed {
    expired: i64,
}

/// The body of a binding. One without the key must not unbind.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "BindSession", extend("required" = ["host"]))]
#[serde(deny_unknown_fields)]
struct Bind {
    /// `null`: the host of the agent registry.
    #[serde(deserialize_with = "Option::deserialize")]
    host: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BoundSession")]
struct Bound {
    changed: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReopenedSession")]
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
        object::read(&body).map_err(|error| {
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
    let Bind { host } = object::read(&body).map_err(|error| {
        let detail = format!("the body is not what is expected ({error}): nothing was done");
        Problem::new(problem_type::INVALID, detail)
            .hint("send {\"host\":\"…\"}, or {\"host\":null} for the host of the agent registry")
    })?;
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
        Ok(Err(error)) => Err(Problem::of_operation(&error, problem_type::SESSION_BUSY)),
        Err(_) => {
            drop(Object::take(client));
            Err(Problem::unknown_action())
        }
    }
}

fn answer(done: &impl Serialize) -> Response {
    let body = serde_json::to_vec(done).expect("numbers and truth values always serialise");
    json(StatusCode::OK, body)
}
