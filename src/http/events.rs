//! `/v1/streams/{stream}/sessions/{session}/events`: appends events, and reads the log.
//!
//! A request is answered after its events are committed. A client may repeat a request with message ids or dedupe keys.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, FromRef, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deadpool_postgres::Pool;
use http_body_util::BodyExt as _;
use lanekeeper_core::trace::TraceContext;
use lanekeeper_postgres::append::Enqueued;
use lanekeeper_postgres::appender::Appender;
use lanekeeper_postgres::inspect::{self, FindError};
use lanekeeper_postgres::log::LineView;
use lanekeeper_postgres::token::Scope;
use lanekeeper_postgres::{Database, StoreError};
use lanekeeper_telemetry::Tracing;
use lanekeeper_telemetry::serving::Serving;
use lanekeeper_telemetry::sources::Became;
use lanekeeper_telemetry::span::{AppendSpan, is_well_formed};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use uuid::Uuid;

mod prefer;
mod range;
mod sent;

use self::range::Range;
use self::sent::Sent;
use super::access::{Access, Peer};
use super::body::Item;
use super::cloudevents::{Event as CloudEvent, Mode};
use super::openapi::operation;
use super::problem::Problem;
use super::problem_type;
use super::request_limits::{RequestLimits, RequestPermit, Room, Stranger};
use super::routes::{Routes, Shared};
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

/// What the routes share.
pub struct Desk {
    pub access: Arc<Access>,
    pub pool: Pool,
    pub(crate) appender: Appender,
    pub(crate) serving: Arc<Serving>,
    /// Requests that may wait at once for what they sent to be handled.
    pub(crate) waiting: Semaphore,
    tracing: Tracing,
    limits: RequestLimits,
    /// For a request's body to arrive.
    body_within: Duration,
}

impl Desk {
    pub fn new(
        access: Arc<Access>,
        pool: Pool,
        database: Database,
        config: &HttpConfig,
        serving: Arc<Serving>,
        tracing: Tracing,
    ) -> Self {
        Self {
            waiting: Semaphore::new(config.max_requests),
            serving,
            tracing,
            access,
            appender: Appender::new(pool.clone(), database),
            pool,
            limits: RequestLimits::new(config),
            body_within: config.read_timeout(),
        }
    }

    /// A place for a request.
    ///
    /// # Errors
    /// As many requests as the server takes are under way.
    pub fn request(&self) -> Result<RequestPermit, Problem> {
        self.limits.request()
    }

    /// The body of an append, with the memory that it takes.
    pub(crate) async fn body_of_append(
        &self,
        token_id: Option<i64>,
        body: axum::body::Body,
    ) -> Result<HeldBody, Problem> {
        let mut room = self.limits.body(token_id)?;
        let reading = read_body(body, &mut room, self.limits.max_body_bytes());
        let bytes = in_time(self.body_within, reading).await?;
        Ok(HeldBody { bytes, room })
    }

    /// The body of a request before it is known who sent it, with the memory that it takes.
    pub(crate) async fn body_of_stranger(
        &self,
        stranger: Stranger,
        most: usize,
        body: axum::body::Body,
    ) -> Result<HeldBody, Problem> {
        let mut room = self.limits.body_of(stranger)?;
        let reading = read_body(body, &mut room, most.min(self.limits.max_body_bytes()));
        let bytes = in_time(self.body_within, reading).await?;
        Ok(HeldBody { bytes, room })
    }

    /// The body of somebody who signs in.
    ///
    /// # Errors
    /// It is too large, takes too long, or finds no room.
    pub async fn sign_in_body(&self, body: axum::body::Body) -> Result<Vec<u8>, Problem> {
        let reading = self.body_of_stranger(Stranger::SignIn, SMALL_BODY, body);
        Ok(reading.await?.bytes)
    }

    /// Asks Postgres. A connection that does not answer in time does not go back to the pool.
    pub(crate) async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, StoreError>,
    ) -> Result<T, Problem> {
        let client = self.pool.get().await.map_err(|_| Problem::busy())?;
        match timeout(ANSWER_WITHIN, question(&client)).await {
            Ok(answer) => answer.map_err(|error| Problem::of_statement(&error)),
            Err(_) => {
                drop(deadpool_postgres::Object::take(client));
                Err(Problem::away())
            }
        }
    }

    /// Counts events that were appended.
    pub(crate) fn appended(&self, stream: &str, events: u64, duplicate: bool) {
        self.serving.appended(stream, events, duplicate);
    }

    /// Counts a request of a source that became no message.
    pub(crate) fn ignored(&self, source: &str) {
        self.serving.ignored(source);
    }

    /// Counts an update of a chat.
    pub(crate) fn updated(&self, source: &str, became: Became) {
        self.serving.updates().count(source, became);
    }

    /// The body of a request that is no append.
    ///
    /// # Errors
    /// It is too large, takes too long, or finds no room.
    pub async fn small_body(
        &self,
        token_id: Option<i64>,
        body: axum::body::Body,
    ) -> Result<Vec<u8>, Problem> {
        let mut room = self.limits.body(token_id)?;
        let reading = read_body(body, &mut room, SMALL_BODY);
        in_time(self.body_within, reading).await
    }
}

/// A body in the memory that was reserved for it.
pub(crate) struct HeldBody {
    pub(crate) bytes: Vec<u8>,
    pub(crate) room: Room,
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
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Desk>: FromRef<S>,
{
    Routes::new()
        .on(
            operation::post(EVENTS, "append_events", "Append events to a session")
                .details(
                    "One event, or an array of up to 1,000, of which all are appended or none. Answered after they are \
                     committed. A request may be repeated with message ids or dedupe keys: what is there is not \
                     appended again.",
                )
                .scopes(&[Scope::Produce])
                .header("Prefer", "`wait=30` waits so many seconds for another agent's answer to one event.")
                .header("traceparent", "W3C Trace Context, for events that bring none of their own.")
                .header("tracestate", "Beside `traceparent`.")
                .body::<Item<'static>>()
                .header("ce-specversion", "With `ce-id`, `ce-source` and `ce-type`: the body is a CloudEvent's data.")
                .body::<Vec<Item<'static>>>()
                .body_of::<CloudEvent<'static>>("application/cloudevents+json", true)
                .body_of::<Vec<CloudEvent<'static>>>("application/cloudevents-batch+json", true)
                .answers::<prefer::Answer<'static>>(201, "They were appended")
                .answers::<Vec<Enqueued>>(201, "")
                .answers::<prefer::Answer<'static>>(200, "All of them were there before")
                .answers::<Vec<Enqueued>>(200, "")
                .problems(problem_type::OF_APPENDS)
                .problems(&[problem_type::SEQ_CONFLICT, problem_type::UNSUPPORTED_MEDIA_TYPE]),
            append_events,
        )
        .on(
            operation::get(EVENTS, "read_events", "Read events of a session's log")
                .scopes(&[Scope::Read])
                .query::<Range>()
                .answers::<Page<'static>>(200, "The events from a seq on")
                .problems(&[problem_type::NOT_FOUND]),
            read_events,
        )
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
    let wait = prefer::wait(&headers);
    let judged = desk
        .access
        .judge_session(&headers, peer, Scope::Produce, &stream, &session);
    let grant = judged.await?;
    let cloudevents = Mode::of(&headers)?;
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let HeldBody { bytes, room } = desk.body_of_append(token_id, body).await?;
    // What one token's holder calls an event by name is no other's.
    let producer = grant.map(|grant| grant.producer());
    let place = desk.limits.request()?;
    // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
    let to = Arc::clone(&desk);
    let awaited = wait.map(|wait| (wait, stream.clone()));
    let appending = tokio::spawn(async move {
        let _held = (room, place);
        let append = Append {
            stream: &stream,
            session: &session,
            producer: producer.as_deref(),
            awaits_response: wait.is_some(),
        };
        let sent = Sent::read(cloudevents, &headers, &bytes, &session, trace.as_ref())?;
        append.all(&to, &sent).await
    });
    let (enqueued, is_array) = appending.await.unwrap_or_else(|_| Err(Problem::failed()))?;
    let events = enqueued.len();
    // Here nothing is held, and a client that leaves ends the wait.
    match awaited {
        Some((wait, stream)) if !is_array => {
            let answer = prefer::answer_with_response(&desk, &stream, &enqueued[0], wait).await;
            Ok((answer, events))
        }
        _ => Ok((answer(enqueued, is_array), events)),
    }
}

/// What is appended to, and for whom.
struct Append<'a> {
    stream: &'a str,
    session: &'a str,
    producer: Option<&'a str>,
    /// The client waits for the answer to the event, which is a request to another agent.
    awaits_response: bool,
}

impl Append<'_> {
    /// Appends the events of a request; returns whether they were an array, too.
    async fn all(&self, desk: &Desk, sent: &Sent<'_>) -> Result<(Vec<Enqueued>, bool), Problem> {
        let stream = self.stream;
        let mut events = sent.events(self.session);
        if events.is_empty() {
            // A batch of CloudEvents may be empty.
            return Ok((Vec::new(), true));
        }
        for event in &mut events {
            event.producer = self.producer;
        }
        let awaits = self.awaits_response && !sent.is_array();
        if awaits {
            // Before it can be answered.
            let request_id = *events[0].message_id.get_or_insert_with(Uuid::now_v7);
            prefer::expect(desk, stream, request_id).await?;
        }
        let enqueued = desk.appender.append(stream, &events).await?;
        if awaits && events[0].message_id != Some(enqueued[0].message_id) {
            // It was there under another id.
            prefer::expect(desk, stream, enqueued[0].message_id).await?;
        }
        for duplicate in [false, true] {
            let events = enqueued.iter().filter(|one| one.duplicate == duplicate);
            desk.serving
                .appended(stream, events.count() as u64, duplicate);
        }
        Ok((enqueued, sent.is_array()))
    }
}

/// The status of an answer to an append.
fn status(enqueued: &[Enqueued]) -> StatusCode {
    if enqueued.iter().any(|one| !one.duplicate) {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    }
}

fn answer(enqueued: Vec<Enqueued>, many: bool) -> Response {
    let status = status(&enqueued);
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
pub(crate) fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let trace = TraceContext {
        traceparent: text("traceparent"),
        tracestate: text("tracestate").filter(|state| state.len() <= LONGEST_TRACESTATE),
    };
    is_well_formed(&trace).then_some(trace)
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
    let judged = desk
        .access
        .judge_session(&headers, peer, Scope::Read, &stream, &session);
    judged.await?;
    let _place = desk.limits.request()?;
    let client = desk.pool.get().await.map_err(|_| Problem::busy())?;
    let reading = async {
        let session_id = inspect::find_session(&**client, &stream, &session).await?;
        let mut reader = range.reader(session_id);
        let events = reader.page(&**client).await?;
        Ok::<_, FindError>(events)
    };
    let read = timeout(ANSWER_WITHIN, reading).await;
    let events = match read {
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
    let (events, next) = range.of(events);
    let page = Page {
        next,
        events: events
            .iter()
            .map(|event| LineView::new(&stream, &session, event))
            .collect(),
    };
    let body = serde_json::to_vec(&page).expect("what came out of Postgres is JSON");
    Ok(json(StatusCode::OK, body))
}

/// Events of a session's log; `next` is the seq to go on from: the same as `from` at the end of the log.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LogPage")]
struct Page<'a> {
    events: Vec<LineView<'a>>,
    next: i64,
}
