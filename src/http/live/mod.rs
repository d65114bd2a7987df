//! Live followers: clients that read sessions while they grow, over SSE or WebSocket.
//!
//! They read the log and nothing else: no lane, no lock on lanes, no row. [`hub`] has the picture, [`follower`] what one
//! client gets, [`listen`] how this worker is notified, [`cursor`] how a client says where it stands.
//!
//! | a client that | is |
//! |---|---|
//! | takes nothing for `http.read_timeout_ms` while something is to be sent | disconnected; it holds no more than one chunk |
//! | falls `live.max_lag_events` behind after it was at the end | told so, with its cursor, and disconnected |
//! | sends something over its WebSocket | disconnected (1008) |
//! | is one too many (`live.max_followers`) | answered with 429 |
//! | has a token that expires or is revoked, or a link that expires | told so, with its cursor, and disconnected |
//! | follows a worker that stops | told so, with its cursor, and disconnected |

pub mod config;
pub mod cors;
mod cursor;
mod feed;
mod follower;
mod hub;
mod inbox;
pub mod link;
mod listen;
mod message;
mod query;
mod reader;
mod request;
pub mod single;
mod socket;
mod sse;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::rejection::PathRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Extension, FromRef, Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use deadpool_postgres::Pool;
use jiff::civil::{Date, date};
use lanekeeper_postgres::token::Scope;
use lanekeeper_postgres::{Database, pool};
use lanekeeper_telemetry::live::Instruments;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::config::LiveConfig;
use self::cors::Origins;
use self::feed::Event;
use self::follower::UNIT;
use self::hub::Hub;
use self::link::Links;
use self::request::Joined;
use crate::access::{Access, Peer};
use crate::connections::ConnectionPermit;
use crate::events::POOL_WITHIN;
use crate::openapi::operation::{Operation, get, options};
use crate::problem::Problem;
use crate::problem_type;
use crate::routes::{Routes, Shared};

const SESSION: &str = "/v1/streams/{stream}/sessions/{session}/events/live";
const STREAM: &str = "/v1/streams/{stream}/live";
/// Connections by which followers join, and read what is older than the newest events. Many may come at once, as after the
/// restart of a worker: they wait in line, since a browser does not come back after a 503.
const CONNECTIONS: usize = 2;
/// Before every day of the log.
const BEGINNING: Date = date(2000, 1, 1);

/// What all followers of a worker share.
pub struct Live {
    access: Arc<Access>,
    links: Links,
    origins: Origins,
    pool: Pool,
    pub(crate) hub: Arc<Hub>,
    heartbeat: Duration,
    max_lag_events: i64,
    /// For what clients were handed and have not taken.
    memory: Arc<Semaphore>,
    units: usize,
    instruments: Instruments,
    /// Clients that were upgraded to WebSockets.
    sockets: TaskTracker,
    /// Answers that go on are ended then.
    pub(crate) stopping: CancellationToken,
}

impl Live {
    /// Followers are served until `stopping`; the listener ends their answers.
    ///
    /// # Errors
    /// The pool cannot be made.
    pub fn start(
        config: &LiveConfig,
        access: Arc<Access>,
        links: Links,
        database: &Database,
        worker_id: i64,
        stopping: &CancellationToken,
    ) -> Result<Arc<Self>, deadpool_postgres::BuildError> {
        let pool = pool::build(database, CONNECTIONS, reader::ANSWER_WITHIN)?;
        // What is new does not wait behind those who join.
        let reading = pool::build(database, 1, POOL_WITHIN)?;
        let hub = Arc::new(Hub::new(config.buffer_bytes));
        let units = (config.buffer_bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS / 2);
        let instruments = Instruments::new(&opentelemetry::global::meter(
            lanekeeper_telemetry::names::SCOPE,
        ));
        let watched = Arc::downgrade(&hub);
        lanekeeper_telemetry::live::watch(move || {
            let inboxes = watched
                .upgrade()
                .map(|hub| hub.inboxes())
                .unwrap_or_default();
            let behind = inboxes.iter().filter_map(|inbox| inbox.behind_since());
            let lag = behind
                .map(|since| since.elapsed())
                .max()
                .unwrap_or_default();
            (inboxes.len(), lag)
        });
        let live = Arc::new(Self {
            access,
            links,
            origins: Origins::new(config.cors_origins.clone()),
            pool,
            hub: Arc::clone(&hub),
            heartbeat: config.heartbeat(),
            max_lag_events: i64::try_from(config.max_lag_events).unwrap_or(i64::MAX),
            memory: Arc::new(Semaphore::new(units)),
            units,
            instruments,
            sockets: TaskTracker::new(),
            stopping: stopping.clone(),
        });
        tokio::spawn(reader::run(Arc::clone(&hub), reading, stopping.clone()));
        tokio::spawn(listen::run(
            Arc::clone(&hub),
            database.clone(),
            worker_id,
            stopping.clone(),
        ));
        let stopping = stopping.clone();
        tokio::spawn(async move {
            stopping.cancelled().await;
            hub.end_all();
        });
        Ok(live)
    }

    /// Waits until the last WebSocket is closed, which [`Self::start`]'s `stopping` begins.
    pub async fn closed(&self) {
        self.sockets.close();
        self.sockets.wait().await;
    }

    /// Waits for memory; `None` where there will never be any. What is larger than all of it takes half.
    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = (bytes / UNIT + 1).min((self.units / 2).max(1));
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.memory);
        memory.acquire_many_owned(units).await.ok()
    }

    /// An event is handed to a client as it comes.
    fn published(&self, event: &Event) {
        let now = jiff::Timestamp::now();
        let age = now.duration_since(event.created_at);
        let age = Duration::try_from(age).unwrap_or_default();
        self.instruments.published(age);
    }
}

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Live>: FromRef<S>,
{
    let follow = |operation: Operation| {
        operation
            .details(
                "Server-sent events, or a WebSocket where the request asks for one; docs/live.md says what they carry.",
            )
            .scopes(&[Scope::Read])
            .or_link()
            .header("Last-Event-ID", "The cursor to go on from; it stands over `cursor`.")
            .answers_as::<String>(200, "Events as they come", "text/event-stream")
            .answers_empty(101, "A WebSocket")
            .answers_empty(204, "All that was asked for was sent, and nothing more can come")
            .problems(&[
                problem_type::NOT_FOUND,
                problem_type::CURSOR_AHEAD,
                problem_type::FOREIGN_CURSOR,
            ])
    };
    let asked = "What a browser asks before a page of another origin follows";
    Routes::new()
        .on(
            follow(get(
                SESSION,
                "follow_session",
                "Follow a session while it grows",
            ))
            .query::<query::OfSession>(),
            follow_session,
        )
        .on(
            options(SESSION, "may_follow_session", asked).answers_empty(204, "Its headers say it"),
            preflight,
        )
        .on(
            follow(get(STREAM, "follow_stream", "Follow sessions of a stream"))
                .query::<query::OfStream>(),
            follow_stream,
        )
        .on(
            options(STREAM, "may_follow_stream", asked).answers_empty(204, "Its headers say it"),
            preflight,
        )
}

/// `cors` answers it.
async fn preflight() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// A request that may become a WebSocket.
type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// A client's request, as both paths read it.
struct Client {
    peer: Peer,
    permit: Arc<ConnectionPermit>,
    headers: HeaderMap,
    uri: Uri,
    upgrade: Upgrade,
}

async fn follow_session(
    State(live): State<Arc<Live>>,
    path: Result<Path<(String, String)>, PathRejection>,
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Result<Response, Problem> {
    let Path((stream, session)) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let client = Client {
        peer,
        permit,
        headers,
        uri,
        upgrade,
    };
    follow(live, stream, Some(session), client).await
}

async fn follow_stream(
    State(live): State<Arc<Live>>,
    path: Result<Path<String>, PathRejection>,
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Result<Response, Problem> {
    let Path(stream) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let client = Client {
        peer,
        permit,
        headers,
        uri,
        upgrade,
    };
    follow(live, stream, None, client).await
}

async fn follow(
    live: Arc<Live>,
    stream: String,
    session: Option<String>,
    client: Client,
) -> Result<Response, Problem> {
    let wants_socket = client.headers.contains_key(header::UPGRADE);
    let upgrade = match (client.upgrade, wants_socket) {
        (Ok(upgrade), true) => Some(upgrade),
        (Err(rejection), true) => {
            let detail =
                format!("this is no WebSocket's handshake ({rejection}): nothing was done");
            return Err(Problem::new(problem_type::INVALID, detail));
        }
        (_, false) => None,
    };
    let Some(following) = client.permit.follow() else {
        return Err(Problem::too_many_followers());
    };
    let headers = &client.headers;
    let joined = request::join(&live, stream, session, headers, client.peer, &client.uri).await?;
    let Joined::Follower(follower) = joined else {
        // By which a browser knows that it need not come back.
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    Ok(match upgrade {
        Some(upgrade) => socket::answer(&live, upgrade, follower, following),
        None => sse::answer(*follower, following),
    })
}

/// The path and query of a signed link, which expires at an instant.
pub fn link(
    links: &Links,
    stream: &str,
    sessions: &[String],
    types: &[String],
    expires: SystemTime,
) -> Option<String> {
    let part =
        |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    // In a path a space is no plus.
    let segment = |text: &str| part(text).replace('+', "%20");
    let expires = expires
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?
        .as_secs();
    let mut path = match sessions {
        [session] => format!(
            "/v1/streams/{}/sessions/{}/events/live?",
            segment(stream),
            segment(session)
        ),
        _ => format!("/v1/streams/{}/live?", segment(stream)),
    };
    if sessions.len() > 1 {
        let names: Vec<String> = sessions.iter().map(|name| part(name)).collect();
        path.push_str(&format!("session={}&", names.join(",")));
    }
    if !types.is_empty() {
        let names: Vec<String> = types.iter().map(|name| part(name)).collect();
        path.push_str(&format!("types={}&", names.join(",")));
    }
    path.push_str(&format!("expires={expires}"));
    links.sign(&path)
}
