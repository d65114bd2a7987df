//! `/v1/ds/{stream}/{session}`: sessions as streams of the Durable Streams protocol (D7).
//!
//! | method | |
//! |---|---|
//! | PUT | creates a stream, with its first content and closed if asked for |
//! | POST | appends, closes, or both; idempotent with the producer's headers |
//! | GET | reads from an offset: once, by long poll, or as an event stream |
//! | HEAD | tells of a stream |
//! | DELETE | deletes a stream |
//!
//! A stream is a session of ours, and a name may have slashes. Any session can be read and appended to, also one that was
//! never created by PUT: it is a stream of JSON. So what one client of the protocol appends, webhooks and chats get too; and
//! what `enqueue` appends, readers of the protocol see.
//!
//! Only the streams of `durable_streams.streams` are served. An access token needs `read` for GET and HEAD, `produce` for PUT
//! and POST, which may also close, and `operate` for DELETE.
//!
//! Live reads are followers (`live`): they take no lane and no lock, and hold no connection while they wait.

mod answer;
pub mod config;
mod content;
mod offset;
mod read;
mod request;
mod sse;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use lanekeeper_postgres::token::{Grant, Scope};

use self::config::DurableStreamsConfig;
use crate::access::Peer;
use crate::events::Desk;
use crate::live::Live;
use crate::live::cors::{Allowed, allow_for};
use crate::problem::Problem;
use crate::problem_type;

const PATH: &str = "/v1/ds/{stream}/{*session}";

static CORS: Allowed = Allowed {
    methods: HeaderValue::from_static("GET, HEAD, PUT, POST, DELETE"),
    headers: HeaderValue::from_static(
        "authorization, cache-control, content-type, if-none-match, lanekeeper-event-type, producer-epoch, producer-id, \
         producer-seq, stream-closed, stream-expires-at, stream-seq, stream-ttl",
    ),
    exposed: Some(HeaderValue::from_static(
        "etag, location, producer-epoch, producer-expected-seq, producer-received-seq, producer-seq, retry-after, \
         stream-closed, stream-cursor, stream-expires-at, stream-next-offset, stream-sse-data-encoding, stream-ttl, \
         stream-up-to-date",
    )),
};

/// What these routes share.
pub struct Durable {
    desk: Arc<Desk>,
    live: Arc<Live>,
    config: DurableStreamsConfig,
}

/// Which stream a request is about.
#[derive(Clone)]
struct Name {
    stream: String,
    session: String,
}

type Named = Result<Path<(String, String)>, PathRejection>;

/// The routes.
pub fn router(desk: Arc<Desk>, live: Arc<Live>, config: &DurableStreamsConfig) -> Router {
    let durable = Arc::new(Durable {
        desk,
        live,
        config: config.clone(),
    });
    let methods = get(read::read)
        .head(read::head)
        .put(write::create)
        .post(write::append)
        .delete(write::delete)
        .options(preflight);
    Router::new()
        .route(PATH, methods)
        .method_not_allowed_fallback(not_so)
        .layer(from_fn_with_state(Arc::clone(&durable), guarded))
        .with_state(durable)
}

async fn not_so() -> Problem {
    let detail = "a durable stream takes GET, HEAD, PUT, POST and DELETE";
    Problem::new(problem_type::METHOD_NOT_ALLOWED, detail)
}

/// `guarded` answers it.
async fn preflight() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// What all answers say to browsers: to take no content for a page or a script, and which pages may read it.
async fn guarded(State(durable): State<Arc<Durable>>, request: Request, next: Next) -> Response {
    let mut response = allow_for(&durable.live, &CORS, request, next).await;
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    // It is content of strangers: opened by itself, it must not run on this origin.
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    headers.append(header::VARY, HeaderValue::from_static("authorization"));
    response
}

fn named(path: Named) -> Result<Name, Problem> {
    let Path((stream, session)) = path.map_err(|rejection| {
        request::refused(format!("the path is not what is expected ({rejection})"))
    })?;
    Ok(Name { stream, session })
}

fn missing(name: &Name) -> Problem {
    let (stream, session) = (
        Problem::excerpt(&name.stream),
        Problem::excerpt(&name.session),
    );
    let detail = format!("there is no durable stream {session:?} in {stream:?}: nothing was done");
    Problem::new(problem_type::NOT_FOUND, detail).hint("PUT creates one")
}

impl Durable {
    /// Lets a request through that may do this with the stream. Returns its token's grant; `None`: it needs none.
    async fn judge(
        &self,
        headers: &HeaderMap,
        peer: Peer,
        scope: Scope,
        name: &Name,
    ) -> Result<Option<Arc<Grant>>, Problem> {
        let access = &self.desk.access;
        let judged = access.judge_session(headers, peer, scope, &name.stream, &name.session);
        let grant = judged.await?;
        // Only then: who may not use the stream learns nothing of it.
        if !self.config.streams.contains(&name.stream) {
            let stream = Problem::excerpt(&name.stream);
            let detail =
                format!("stream {stream:?} is not served as durable streams: nothing was done");
            return Err(Problem::new(problem_type::NOT_FOUND, detail)
                .hint("add it to durable_streams.streams of the workers"));
        }
        Ok(grant)
    }
}
