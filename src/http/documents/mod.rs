//! `/v1/documents`: documents, each written together with its event (F1).
//!
//! | path | |
//! |---|---|
//! | `/v1/documents` | POST changes many in one transaction |
//! | `/v1/documents/{kind}` | GET lists a kind |
//! | `/v1/documents/{kind}/{id}` | GET, PUT, PATCH (RFC 7396), DELETE |
//! | `/v1/documents/{kind}/{id}/history` | GET lists the versions |
//!
//! A document's version is its ETag; `If-Match` and `If-None-Match: *` are what a change expects. The stream of the access
//! token is `documents`: scope `read` to read, `produce` to change. A kind or an id with reserved characters is
//! percent-encoded, a slash in an id as `%2F`.
//!
//! A change may wait five seconds for somebody else's transaction that changed the same document. All such requests
//! together occupy all but one of the connections of `http.pool_size`.

mod change;
mod precondition;
mod read;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use deadpool_postgres::Object;
use lanekeeper_postgres::document::{DocumentError, STREAM};
use lanekeeper_postgres::token::{Grant, Scope};
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;

use super::access::Peer;
use super::events::Desk;
use super::problem::Problem;
use super::problem_type;

/// For Postgres to answer: longer than a change waits for another one.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

type Named = Result<Path<(String, String)>, PathRejection>;

/// What these routes share.
struct Documents {
    desk: Arc<Desk>,
    /// Changes that are under way: reads have a connection left.
    changes: Semaphore,
}

/// The routes.
pub fn router(desk: Arc<Desk>) -> Router {
    let connections = desk.pool.status().max_size;
    let changes = Semaphore::new(connections.saturating_sub(1).max(1));
    Router::new()
        .route("/v1/documents", post(change::put_many))
        .route("/v1/documents/{kind}", get(read::list))
        .route(
            "/v1/documents/{kind}/{id}",
            get(read::get)
                .put(change::put)
                .patch(change::patch)
                .delete(change::delete),
        )
        .route("/v1/documents/{kind}/{id}/history", get(read::history))
        .method_not_allowed_fallback(not_so)
        .with_state(Arc::new(Documents { desk, changes }))
}

async fn not_so() -> Problem {
    let detail = "a document takes GET, PUT, PATCH and DELETE, a list GET, and /v1/documents POST";
    Problem::new(problem_type::METHOD_NOT_ALLOWED, detail)
}

impl Documents {
    async fn judge(
        &self,
        headers: &HeaderMap,
        peer: Peer,
        scope: Scope,
    ) -> Result<Option<Arc<Grant>>, Problem> {
        self.desk.access.judge(headers, peer, scope, STREAM).await
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> Problem {
    let error = Problem::excerpt(&error.to_string());
    let detail = format!("the request is not what is expected ({error}): nothing was done");
    Problem::new(problem_type::INVALID, detail)
}

/// What came of asking Postgres. A connection that did not answer in time does not go back to the pool.
fn answered<T>(
    asked: Result<Result<T, DocumentError>, Elapsed>,
    client: Object,
    late: impl FnOnce() -> Problem,
) -> Result<T, Problem> {
    match asked {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Problem::of_document(&error)),
        Err(_) => {
            drop(Object::take(client));
            Err(late())
        }
    }
}
