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

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRef, Path};
use axum::http::HeaderMap;
use deadpool_postgres::Object;
use lanekeeper_postgres::document::{self, DocumentError, STREAM, Written};
use lanekeeper_postgres::token::{Grant, Scope};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;

use super::access::Peer;
use super::events::Desk;
use super::problem::Problem;
use super::problem_type;
use crate::openapi::operation::{Operation, delete, get, patch, post, put};
use crate::routes::{Routes, Shared};

/// For Postgres to answer: longer than a change waits for another one.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

type Named = Result<Path<(String, String)>, PathRejection>;

/// What these routes share.
pub struct Documents {
    desk: Arc<Desk>,
    /// Changes that are under way: reads have a connection left.
    changes: Semaphore,
}

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Documents>: FromRef<S>,
{
    const ONE: &str = "/v1/documents/{kind}/{id}";
    const IF_MATCH: &str = "The `ETag` of the version that is expected, or `*` for any.";
    const IF_NONE_MATCH: &str = "`*`: the document must not be there.";
    let writes = |operation: Operation| {
        operation
            .scopes(&[Scope::Produce])
            .query::<change::ExtraHeader>()
            .header("If-Match", IF_MATCH)
            .header("If-None-Match", IF_NONE_MATCH)
            .header("traceparent", "W3C Trace Context.")
            .header("tracestate", "Beside `traceparent`.")
            .problems(&[problem_type::VERSION_CONFLICT])
            .problems(problem_type::OF_APPENDS)
    };
    Routes::new()
        .on(
            post(
                "/v1/documents",
                "put_documents",
                "Change documents in one transaction",
            )
            .details(
                "All are changed or none. Their members are those of `lanekeeper.put_documents`.",
            )
            .scopes(&[Scope::Produce])
            .body::<Vec<Map<String, Value>>>()
            .answers::<Vec<Written>>(200, "They were changed")
            .problems(&[problem_type::NOT_FOUND, problem_type::VERSION_CONFLICT])
            .problems(problem_type::OF_APPENDS),
            change::put_many,
        )
        .on(
            get(
                "/v1/documents/{kind}",
                "list_documents",
                "List the documents of a kind",
            )
            .scopes(&[Scope::Read])
            .query::<read::Page>()
            .answers::<read::List>(200, "A page"),
            read::list,
        )
        .on(
            get(ONE, "get_document", "Read a document")
                .scopes(&[Scope::Read])
                .query::<read::Which>()
                .header(
                    "If-None-Match",
                    "The `ETag` of a version that the client has.",
                )
                .answers::<Value>(200, "The document's body")
                .with_header("ETag", "Its version.")
                .answers_empty(304, "The client has this version")
                .with_header("ETag", "Its version."),
            read::get,
        )
        .on(
            writes(put(ONE, "put_document", "Write a document"))
                .body::<Value>()
                .answers::<Written>(201, "It was created")
                .with_header("ETag", "Its version.")
                .answers::<Written>(200, "It was changed")
                .with_header("ETag", "Its version."),
            change::put,
        )
        .on(
            writes(patch(
                ONE,
                "patch_document",
                "Change a document by a JSON Merge Patch",
            ))
            .body_of::<Value>(change::PATCHES[0], true)
            .body_of::<Value>(change::PATCHES[1], true)
            .answers::<Written>(200, "It was changed")
            .with_header("ETag", "Its version.")
            .answers::<Written>(201, "It was created")
            .with_header("ETag", "Its version.")
            .problems(&[problem_type::UNSUPPORTED_MEDIA_TYPE]),
            change::patch,
        )
        .on(
            writes(delete(ONE, "delete_document", "Delete a document"))
                .answers::<Written>(200, "It was deleted")
                .problems(&[
                    problem_type::INCOMPLETE,
                    problem_type::TIMED_OUT,
                    problem_type::PAYLOAD_TOO_LARGE,
                ]),
            change::delete,
        )
        .on(
            get(
                "/v1/documents/{kind}/{id}/history",
                "document_history",
                "List the versions of a document, the newest first",
            )
            .scopes(&[Scope::Read])
            .query::<read::Before>()
            .answers::<read::History>(200, "A page"),
            read::history,
        )
}

impl Documents {
    pub fn new(desk: Arc<Desk>) -> Self {
        let connections = desk.pool.status().max_size;
        let changes = Semaphore::new(connections.saturating_sub(1).max(1));
        Self { desk, changes }
    }

    /// For one document, whose events are a session.
    async fn judge_one(
        &self,
        headers: &HeaderMap,
        peer: Peer,
        scope: Scope,
        (kind, id): (&str, &str),
    ) -> Result<Option<Arc<Grant>>, Problem> {
        let session = document::session(kind, id);
        let access = &self.desk.access;
        access
            .judge_session(headers, peer, scope, STREAM, &session)
            .await
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
