//! `/v1/streams/{stream}/sessions/{session}/events`: appends events, and reads the log.
//!
//! A request is answered after its events are committed. A client may repeat a request with message ids or dedupe keys.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use deadpool_postgres::Pool;
use http_body_util::BodyExt as _;
use lanekeeper_core::trace::TraceContext;
use lanekeeper_postgres::Database;
use lanekeeper_postgres::append::Enqueued;
use lanekeeper_postgres::appender::Appender;
use lanekeeper_postgres::inspect::{self, FindError};
use lanekeeper_postgres::log::{LineView, Reader};
use lanekeeper_postgres::token::Scope;
use lanekeeper_telemetry::Tracing;
use lanekeeper_telemetry::serving::Serving;
use lanekeeper_telemetry::span::{AppendSpan, is_well_formed};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::access::{Access, Peer};
use super::body::Body;
use super::places::{Place, Places, Room};
use super::problem::Problem;
use super::problem_type;
use crate::config::HttpConfig;

/// What W3C Trace Context asks to be passed on at least.
const LONGEST_TRACESTATE: usize = 512;
/// For Postgres to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// The longest wait for a connection to Postgres. After it, the client is asked to retry later.
pub const POOL_WITHIN: Duration = Duration::from_secs(2);
/// How long a statement waits for a session that another transaction appends to.
const LOCK_TIMEOUT: &str = "-c lock_timeout=5s";

/// For connections that requests use: none waits for a lock for long.
pub fn bound_waits(driver: &mut tokio_postgres::Config) {
    let options = driver.get_options().unwrap_or_default();
    driver.options(format!("{options} {LOCK_TIMEOUT}").trim());
}

const EVENTS: &str = "/v1/streams/{stream}/sessions/{session}/events";
/// The largest body of a request that is no append.
const SMALL_BODY: usize = 64 * 1024;

/// Events in one answer, unless asked for fewer.
const PAGE: usize = 100;

/// What the routes share.
pub struct Desk {
    pub access: Access,
    pub pool: Pool,
    appender: Appender,
    serving: Arc<Serving>,
    tracing: Tracing,
    places: Places,
    /// For a request's body to arrive.
    body_within: Duration,
}

impl Desk {
    pub fn new(
        access: Access,
        pool: Pool,
        database: Database,
        config: &HttpConfig,
        serving: Arc<Serving>,
        tracing: Tracing,
    ) -> Self {
        Self {
            serving,
            tracing,
            access,
            appender: Appender::new(pool.clone(), database),
            pool,
            places: Places::new(config),
            body_within: config.read_timeout(),
        }
    }

    /// A place for a request.
    pub(crate) fn request(&self) -> Result<Place, Problem> {
        self.places.request()
    }

    /// The body of a request that is no append.
    pub(crate) async fn small_body(
        &self,
        token_id: Option<i64>,
        body: axum::body::Body,
    ) -> Result<Vec<u8>, Problem> {
        let mut room = self.places.body(token_id)?;
        let reading = read_body(body, &mut room, SMALL_BODY);
        in_time(self.body_within, reading).await
    }
}

async fn in_time<T>(
    within: Duration,
    reading: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    timeout(within, reading).await.map_err(|_| {
        let detail = "the body took too long to arrive: nothing was done";
        Problem::new(problem_type::TIMED_OUT, detail)
    })?
}

/// The routes.
pub fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route(EVENTS, post(append_events).get(read_events))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .with_state(desk)
}

async fn nothing_here() -> Problem {
    Problem::new(problem_type::NOT_FOUND, "there is nothing at this path")
}

async fn not_so() -> Problem {
    let detail = "this path takes GET and POST";
    Problem::new(problem_type::METHOD_NOT_ALLOWED, detail)
}

async fn append_events(
    State(desk): State<Arc<Desk>>,
    path: Result<Path<(String, String)>, PathRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let Path((stream, session)) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let client = trace_of(&headers);
    let caller = Caller { peer, headers };
    if desk.tracing == Tracing::Off {
        let (answer, _) = append(desk, stream, session, caller, client, body).await?;
        return Ok(answer);
    }
    let span = AppendSpan::start(EVENTS, &stream, &session, client.as_ref());
    let stored = match desk.tracing {
        Tracing::Propagated => Some(span.context()),
        Tracing::Kept | Tracing::Off => client,
    };
    match append(desk, stream, session, caller, stored, body).await {
        Ok((answer, events)) => {
            span.end(answer.status().as_u16(), events);
            Ok(answer)
        }
        Err(problem) => {
            span.end(problem.problem_type().status.as_u16(), 0);
            Err(problem)
        }
    }
}

/// The client of a request.
struct Caller {
    peer: Peer,
    headers: HeaderMap,
}

/// Returns how many events were appended, too. `trace`: of the events that bring none of their own.
async fn append(
    desk: Arc<Desk>,
    stream: String,
    session: String,
    caller: Caller,
    trace: Option<TraceContext>,
    body: axum::body::Body,
) -> Result<(Response, usize), Problem> {
    let Caller { peer, headers } = caller;
    let judged = desk.access.judge(&headers, peer, Scope::Produce, &stream);
    let grant = judged.await?;
    let mut room = desk
        .places
        .body(grant.as_ref().map(|grant| grant.token_id))?;
    // What one token's holder calls an event by name is no other's.
    let producer = grant.map(|grant| format!("token {}", grant.name));
    let reading = read_body(body, &mut room, desk.places.max_body_bytes());
    let body = in_time(desk.body_within, reading).await?;
    let place = desk.places.request()?;
    // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
    let appending = tokio::spawn(async move {
        let _held = (room, place);
        append_body(
            &desk,
            &stream,
            &session,
            trace.as_ref(),
            &body,
            producer.as_deref(),
        )
        .await
    });
    appending.await.unwrap_or_else(|_| Err(Problem::failed()))
}

async fn append_body(
    desk: &Desk,
    stream: &str,
    session: &str,
    trace: Option<&TraceContext>,
    body: &[u8],
    producer: Option<&str>,
) -> Result<(Response, usize), Problem> {
    let body = Body::read(body, session, trace)?;
    let mut events = body.events(session);
    for event in &mut events {
        event.producer = producer;
    }
    let enqueued = desk.appender.append(stream, &events).await?;
    for duplicate in [false, true] {
        let events = enqueued.iter().filter(|one| one.duplicate == duplicate);
        desk.serving
            .appended(stream, events.count() as u64, duplicate);
    }
    let events = enqueued.len();
    Ok((answer(enqueued, body.is_array), events))
}

fn answer(enqueued: Vec<Enqueued>, many: bool) -> Response {
    let new = enqueued.iter().any(|one| !one.duplicate);
    let status = if new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let body = if many {
        serde_json::to_vec(&enqueued)
    } else {
        serde_json::to_vec(&enqueued[0])
    };
    json(status, body.expect("ids and numbers always serialise"))
}

pub(crate) fn json(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Reads a body into memory that it takes as it comes.
async fn read_body(
    mut body: axum::body::Body,
    room: &mut Room,
    limit: usize,
) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            let detail = "the body did not arrive whole: nothing was enqueued";
            Problem::new(problem_type::INCOMPLETE, detail)
        })?;
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > limit {
            return Err(Problem::too_large(limit));
        }
        room.reserve(&mut bytes, data.len(), limit)?;
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// The request's trace context, for events that bring none of their own; none where it is not well-formed.
fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let trace = TraceContext {
        traceparent: text("traceparent"),
        tracestate: text("tracestate").filter(|state| state.len() <= LONGEST_TRACESTATE),
    };
    is_well_formed(&trace).then_some(trace)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: Option<i64>,
    limit: Option<usize>,
}

async fn read_events(
    State(desk): State<Arc<Desk>>,
    path: Result<Path<(String, String)>, PathRejection>,
    range: Result<Query<Range>, QueryRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path((stream, session)) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let Query(range) = range.map_err(|rejection| Problem::unreadable(&rejection))?;
    let judged = desk.access.judge(&headers, peer, Scope::Read, &stream);
    judged.await?;
    let _place = desk.places.request()?;
    let client = desk.pool.get().await.map_err(|_| Problem::busy())?;
    let reading = async {
        let session_id = inspect::find_session(&**client, &stream, &session).await?;
        let mut reader = Reader::new(session_id, range.from.unwrap_or(1).max(1));
        let events = reader.page(&**client).await?;
        Ok::<_, FindError>(events)
    };
    let read = timeout(ANSWER_WITHIN, reading).await;
    let mut events = match read {
        Ok(Ok(events)) => events,
        Ok(Err(FindError::Store(error))) => return Err(Problem::of_statement(&error)),
        Ok(Err(missing)) => {
            return Err(Problem::new(problem_type::NOT_FOUND, missing.to_string()));
        }
        Err(_) => {
            drop(deadpool_postgres::Object::take(client));
            return Err(Problem::away());
        }
    };
    events.truncate(range.limit.unwrap_or(PAGE));
    let from = range.from.unwrap_or(1);
    let page = Page {
        next: events.last().map_or(from, |last| last.seq + 1),
        events: events
            .iter()
            .map(|event| LineView::new(&stream, &session, event))
            .collect(),
    };
    let body = serde_json::to_vec(&page).expect("what came out of Postgres is JSON");
    Ok(json(StatusCode::OK, body))
}

/// Events of a session's log; `next` is the seq to go on from.
#[derive(Serialize)]
struct Page<'a> {
    events: Vec<LineView<'a>>,
    next: i64,
}
