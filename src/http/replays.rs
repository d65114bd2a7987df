//! `/v1/replays`, `/v1/replays/{id}` and `…/pause`, `…/resume`, `…/cancel`: past events are delivered again.
//!
//! All of it needs the scope `operate`, and all sessions of the subscription's stream.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, FromRef, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use deadpool_postgres::Object;
use jiff::Timestamp;
use lanekeeper_core::bucket::Rate;
use lanekeeper_postgres::replay::{self, By, Change, Pace, Plan, Range, Replay};
use lanekeeper_postgres::token::{Grant, Scope};
use lanekeeper_postgres::{StoreError, sqlstate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::access::{Peer, reason_with_name};
use super::events::json;
use super::object;
use super::openapi::operation::{Operation, get, post};
use super::operate::Operators;
use super::problem::Problem;
use super::problem_type;
use super::routes::{Routes, Shared};

/// For Postgres to count what is to be replayed. What takes longer is for the command, which waits.
const COUNT_WITHIN: Duration = Duration::from_secs(50);
/// For Postgres to answer: longer than that.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const MOST_LISTED: i64 = 1_000;

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Operators>: FromRef<S>,
{
    let change = |operation: Operation| {
        operation
            .scopes(&[Scope::Operate])
            .optional_body::<Why>()
            .answers::<Replay>(200, "The replay, as it is now")
    };
    Routes::new()
        .on(
            get("/v1/replays", "list_replays", "List replays, the newest first")
                .scopes(&[Scope::Operate])
                .query::<Which>()
                .answers::<Listed>(200, "Those that have not ended, or all"),
            list,
        )
        .on(
            post("/v1/replays", "start_replay", "Deliver past events again")
                .details(
                    "To one subscription, in each session's order. `sessions` or `all` must be given, so that a forgotten key \
                     does not replay everything. It is no step that may be repeated: look at the list of replays where the \
                     outcome is unknown.",
                )
                .scopes(&[Scope::Operate])
                .body::<Start>()
                .answers::<Replay>(201, "It was started")
                .with_header("Location", "The replay's path.")
                .answers::<Plan>(200, "With `dry_run`: what it would deliver")
                .problems(&[
                    problem_type::NOT_FOUND,
                    problem_type::REPLAY_UNDER_WAY,
                ]),
            start,
        )
        .on(
            get("/v1/replays/{replay_id}", "get_replay", "Show how far a replay is")
                .scopes(&[Scope::Operate])
                .answers::<Replay>(200, "The replay"),
            show,
        )
        .on(
            change(post("/v1/replays/{replay_id}/pause", "pause_replay", "Pause a replay"))
                .details("What it sent already is not taken back."),
            pause,
        )
        .on(
            change(post("/v1/replays/{replay_id}/resume", "resume_replay", "Go on with a paused replay")),
            resume,
        )
        .on(
            change(post("/v1/replays/{replay_id}/cancel", "cancel_replay", "End a replay before its time"))
                .details("What it sent already is not taken back."),
            cancel,
        )
}

/// What is to be replayed. `sessions` or `all` must be given, so that a forgotten key does not replay everything.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "StartReplay")]
#[serde(deny_unknown_fields)]
struct Start {
    subscription: String,
    /// A session, or a pattern in which `*` stands for any characters.
    sessions: Option<String>,
    /// All sessions; in place of `sessions`.
    #[serde(default)]
    all: bool,
    /// Of one session.
    from_seq: Option<i64>,
    to_seq: Option<i64>,
    /// Events that were appended at this instant or later.
    from: Option<Timestamp>,
    /// Events that were appended before this instant.
    to: Option<Timestamp>,
    /// Events by all workers together, such as `30/s`. Without: as fast as the destination takes them.
    #[schemars(with = "Option<String>")]
    rate: Option<Rate>,
    /// Sessions that are replayed at once.
    #[schemars(range(min = 1, max = 1000))]
    concurrency: Option<i32>,
    #[schemars(length(max = 1000))]
    reason: Option<String>,
    /// Only counts, and starts nothing.
    #[serde(default)]
    dry_run: bool,
}

impl Start {
    fn read(body: &[u8]) -> Result<Self, Problem> {
        let start: Self = object::read(body).map_err(|error| {
            invalid(format!(
                "the body is not what is expected ({}): nothing was started",
                Problem::excerpt(&error.to_string())
            ))
            .hint("send {\"subscription\":\"…\",\"sessions\":\"…\"}, or \"all\":true in place of the sessions")
        })?;
        if start.sessions.is_some() == start.all {
            let detail =
                "name the sessions, or say \"all\":true, and not both: nothing was started";
            return Err(invalid(detail));
        }
        let concurrency = start.concurrency.unwrap_or(Pace::CONCURRENCY);
        if !(1..=Pace::MOST).contains(&concurrency) {
            let most = Pace::MOST;
            return Err(invalid(format!(
                "concurrency must be from 1 to {most}: nothing was started"
            )));
        }
        if start
            .reason
            .as_ref()
            .is_some_and(|text| text.chars().count() > 1_000)
        {
            let detail = "the reason has more than 1000 characters: nothing was started";
            return Err(invalid(detail));
        }
        Ok(start)
    }

    fn range(&self) -> Range {
        Range {
            subscription: self.subscription.clone(),
            sessions: self.sessions.clone(),
            from_seq: self.from_seq,
            to_seq: self.to_seq,
            from_at: self.from,
            to_at: self.to,
        }
    }
}

async fn start(
    State(operators): State<Arc<Operators>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let grant = operators
        .desk
        .access
        .judge_any(&headers, peer, Scope::Operate)
        .await?;
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let body = operators.desk.small_body(token_id, body).await?;
    let start = Start::read(&body)?;
    let place = operators.desk.request()?;
    // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
    let starting = tokio::spawn(async move {
        let _held = place;
        // A count may take long: the other connection is left to other requests of operators.
        let _counting = operators.counting.try_acquire().map_err(|_| {
            let detail = "another replay is being counted: nothing was started";
            Problem::later(problem_type::BUSY, detail, 10)
        })?;
        let mut client = operators.pool.get().await.map_err(|_| Problem::busy())?;
        let carried_out = carry_out(&mut client, &start, grant.as_deref());
        match timeout(ANSWER_WITHIN, carried_out).await {
            Ok(done) => done,
            Err(_) => {
                drop(Object::take(client));
                let detail = "Postgres did not answer: the replay may or may not have been started";
                let hint = "look at GET /v1/replays before you repeat the request";
                Err(Problem::later(problem_type::OUTCOME_UNKNOWN, detail, 1).hint(hint))
            }
        }
    });
    starting.await.unwrap_or_else(|_| Err(Problem::failed()))
}

async fn carry_out(
    client: &mut Object,
    start: &Start,
    grant: Option<&Grant>,
) -> Result<Response, Problem> {
    let stream = replay::stream_of(&***client, &start.subscription).await;
    let stream = stream.map_err(|error| refused(&error))?;
    if !stream.is_some_and(|stream| grant.is_none_or(|grant| grant.reaches(&stream))) {
        let name = Problem::excerpt(&start.subscription);
        let detail = format!(
            "there is no subscription {name:?} in the streams of this access token: nothing was started"
        );
        return Err(Problem::new(problem_type::NOT_FOUND, detail));
    }
    let range = start.range();
    let counting = replay::bounded(client, COUNT_WITHIN).await;
    let transaction = counting.map_err(|error| refused(&error))?;
    if start.dry_run {
        let plan = replay::plan(&transaction, &range).await;
        return Ok(answer(&plan.map_err(|error| refused(&error))?));
    }
    let pace = Pace {
        rate: start.rate,
        concurrency: start.concurrency.unwrap_or(Pace::CONCURRENCY),
    };
    let name = grant.map(Grant::producer);
    let by = By {
        name: name.as_deref(),
        reason: start.reason.as_deref(),
    };
    let replay_id = replay::start(&transaction, &range, &pace, by).await;
    let replay_id = replay_id.map_err(|error| refused(&error))?;
    let started = replay::find(&transaction, replay_id).await;
    let started = started.map_err(|error| refused(&error))?;
    if transaction.commit().await.is_err() {
        let detail = "Postgres did not answer: the replay may or may not have been started";
        let hint = "look at GET /v1/replays before you repeat the request";
        return Err(Problem::later(problem_type::OUTCOME_UNKNOWN, detail, 1).hint(hint));
    }
    let mut response = answer(&started);
    *response.status_mut() = StatusCode::CREATED;
    let place = HeaderValue::try_from(format!("/v1/replays/{replay_id}")).expect("digits");
    response.headers_mut().insert(header::LOCATION, place);
    Ok(response)
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WhichReplays")]
#[serde(deny_unknown_fields)]
struct Which {
    /// Those that have ended too.
    #[serde(default)]
    all: bool,
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayList")]
struct Listed {
    replays: Vec<Replay>,
}

async fn list(
    State(operators): State<Arc<Operators>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Response, Problem> {
    let grant = operators
        .desk
        .access
        .judge_any(&headers, peer, Scope::Operate)
        .await?;
    let Query(which) = query.map_err(|rejection| {
        let detail = Problem::excerpt(&rejection.to_string());
        invalid(detail).hint("give ?all=true for those that have ended too, and ?limit=N")
    })?;
    let limit = which.limit.unwrap_or(50);
    if !(1..=MOST_LISTED).contains(&limit) {
        return Err(invalid(format!("limit must be from 1 to {MOST_LISTED}")));
    }
    let streams = grant.as_ref().and_then(|grant| grant.streams());
    let _place = operators.desk.request()?;
    let client = operators.pool.get().await.map_err(|_| Problem::busy())?;
    let reading = replay::list(&**client, which.all, limit, streams);
    match timeout(ANSWER_WITHIN, reading).await {
        Ok(Ok(replays)) => Ok(answer(&Listed { replays })),
        Ok(Err(error)) => Err(refused(&error)),
        Err(_) => Err(gone(client)),
    }
}

type Id = Result<Path<i64>, PathRejection>;

async fn show(
    State(operators): State<Arc<Operators>>,
    path: Id,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let grant = operators
        .desk
        .access
        .judge_any(&headers, peer, Scope::Operate)
        .await?;
    let Path(replay_id) = path.map_err(|_| no_such())?;
    let _place = operators.desk.request()?;
    let client = operators.pool.get().await.map_err(|_| Problem::busy())?;
    match timeout(ANSWER_WITHIN, find(&client, replay_id, grant.as_deref())).await {
        Ok(found) => Ok(answer(&found?)),
        Err(_) => Err(gone(client)),
    }
}

async fn pause(
    operators: State<Arc<Operators>>,
    path: Id,
    peer: Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    change(operators, path, peer, headers, body, Change::Pause).await
}

async fn resume(
    operators: State<Arc<Operators>>,
    path: Id,
    peer: Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    change(operators, path, peer, headers, body, Change::Resume).await
}

async fn cancel(
    operators: State<Arc<Operators>>,
    path: Id,
    peer: Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    change(operators, path, peer, headers, body, Change::Cancel).await
}

/// The body of a change; an empty one says nothing.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "ChangeReplay")]
#[serde(deny_unknown_fields)]
struct Why {
    #[schemars(length(max = 1000))]
    reason: Option<String>,
}

async fn change(
    State(operators): State<Arc<Operators>>,
    path: Id,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
    change: Change,
) -> Result<Response, Problem> {
    let grant = operators
        .desk
        .access
        .judge_any(&headers, peer, Scope::Operate)
        .await?;
    let Path(replay_id) = path.map_err(|_| no_such())?;
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let body = operators.desk.small_body(token_id, body).await?;
    let why = if body.is_empty() {
        Why::default()
    } else {
        object::read(&body).map_err(|_| {
            invalid("the body is not what is expected: nothing was changed")
                .hint("send {\"reason\":\"…\"}, or no body")
        })?
    };
    if why
        .reason
        .as_ref()
        .is_some_and(|text| text.chars().count() > 1_000)
    {
        let detail = "the reason has more than 1000 characters: nothing was changed";
        return Err(invalid(detail));
    }
    let place = operators.desk.request()?;
    let changing = tokio::spawn(async move {
        let _held = place;
        let client = operators.pool.get().await.map_err(|_| Problem::busy())?;
        let carried_out = async {
            find(&client, replay_id, grant.as_deref()).await?;
            let reason = reason_with_name(grant.as_deref(), why.reason.as_deref());
            let changed = replay::change(&**client, replay_id, change, Some(&reason)).await;
            changed.map_err(|error| refused(&error))?;
            find(&client, replay_id, grant.as_deref()).await
        };
        match timeout(ANSWER_WITHIN, carried_out).await {
            Ok(changed) => Ok(answer(&changed?)),
            Err(_) => {
                drop(Object::take(client));
                let detail = "Postgres did not answer: the replay may or may not have been changed";
                let hint = "repeat the request: it does nothing twice";
                Err(Problem::later(problem_type::OUTCOME_UNKNOWN, detail, 1).hint(hint))
            }
        }
    });
    changing.await.unwrap_or_else(|_| Err(Problem::failed()))
}

/// A replay that the token reaches.
async fn find(client: &Object, replay_id: i64, grant: Option<&Grant>) -> Result<Replay, Problem> {
    let found = replay::find(&***client, replay_id).await;
    let found = found.map_err(|error| refused(&error))?;
    found
        .filter(|replay| grant.is_none_or(|grant| grant.reaches(&replay.stream)))
        .ok_or_else(no_such)
}

fn no_such() -> Problem {
    let detail = "there is no such replay in the streams of this access token";
    Problem::new(problem_type::NOT_FOUND, detail).hint("list them with GET /v1/replays?all=true")
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(problem_type::INVALID, detail)
}

/// A connection that does not answer does not go back to the pool.
fn gone(client: Object) -> Problem {
    drop(Object::take(client));
    Problem::away()
}

fn refused(error: &StoreError) -> Problem {
    // query_canceled
    if error.sqlstate() == Some("57014") {
        let seconds = COUNT_WITHIN.as_secs();
        let detail = format!(
            "counting what is to be replayed took more than {seconds} s: nothing was started"
        );
        let hint = "start it with `lanekeeper replay start`, which waits, or ask for less";
        return Problem::later(problem_type::UNAVAILABLE, detail, 60).hint(hint);
    }
    let Some(refusal) = error.refusal() else {
        return Problem::of_statement(error);
    };
    let of = match error.sqlstate() {
        Some(sqlstate::LANE_BUSY) => {
            return Problem::later(problem_type::BUSY, refusal.message, 1);
        }
        Some(sqlstate::NO_SESSION) => problem_type::NOT_FOUND,
        Some(sqlstate::REPLAY_UNDER_WAY) => problem_type::REPLAY_UNDER_WAY,
        _ => problem_type::INVALID,
    };
    let problem = Problem::new(of, refusal.message);
    match refusal.hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

fn answer(done: &impl Serialize) -> Response {
    let body = serde_json::to_vec(done).expect("numbers and texts always serialise");
    json(StatusCode::OK, body)
}
