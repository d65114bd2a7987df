//! PUT, POST and DELETE: creating, appending and closing, deleting.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use deadpool_postgres::Object;
use lanekeeper_postgres::append::AppendError;
use lanekeeper_postgres::durable::{
    self, Appended, Creation, NewEvents, NewStream, Outcome, Producer,
};
use lanekeeper_postgres::sqlstate;
use lanekeeper_postgres::token::Scope;
use tokio::time::timeout;

use super::answer::Answer;
use super::content::Written;
use super::offset::Offset;
use super::{Durable, Named, missing, named, request};
use crate::access::Peer;
use crate::events::HeldBody;
use crate::problem::Problem;
use crate::problem_type::{self, ProblemType};

/// For Postgres to answer: longer than an append waits for another one.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// PUT.
pub async fn create(
    State(durable): State<Arc<Durable>>,
    path: Named,
    Extension(peer): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let name = named(path)?;
    let grant = durable.judge(&headers, peer, Scope::Produce, &name).await?;
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let on_behalf_of = grant.map(|grant| grant.producer());
    if headers.contains_key("stream-forked-from") {
        let detail = "this server forks no streams: nothing was created";
        return Err(Problem::new(problem_type::NOT_IMPLEMENTED, detail)
            .hint("read the source up to the offset, and create the new stream with it"));
    }
    let content_type = request::content_type(&headers)?.to_owned();
    let event_type = request::event_type(&headers)?.map(str::to_owned);
    let expiry = request::expiry(&headers)?;
    let closed = request::closes(&headers);
    let HeldBody { bytes, room } = durable.desk.body_of_append(token_id, body).await?;
    let place = durable.desk.request()?;
    let location = location(&headers, &uri);
    let to = Arc::clone(&durable);
    // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
    let creating = tokio::spawn(async move {
        let _held = (room, place);
        let written = Written {
            session: &name.session,
            content_type: &content_type,
            event_type: event_type.as_deref(),
        };
        let events = match bytes.is_empty() {
            true => None,
            false => written.events(&bytes)?,
        };
        let new = NewStream {
            content_type: &content_type,
            ttl_seconds: expiry.ttl_seconds,
            expires_at: expiry.at,
            closed,
            events: events.as_ref().map(|(events, _)| events.as_str()),
            on_behalf_of: on_behalf_of.as_deref(),
        };
        let created = to
            .ask(async |client| durable::create(client, &name.stream, &name.session, &new).await)
            .await?;
        if created.outcome == Creation::Created {
            let count = events.as_ref().map_or(0, |(_, count)| *count);
            to.desk.appended(&name.stream, count, false);
        }
        Ok(created)
    });
    let created = creating.await.unwrap_or_else(|_| Err(Problem::failed()))?;
    let status = match created.outcome {
        Creation::Created => StatusCode::CREATED,
        Creation::There => StatusCode::OK,
        Creation::Conflict => {
            let detail = "the stream is there with another content type, expiry or closure: nothing was changed";
            let conflict = Problem::new(problem_type::STREAM_CONFLICT, detail);
            return Ok(closed_too(conflict, created.closed, created.newest));
        }
    };
    let answer = Answer::new(status)
        .with(
            "content-type",
            created.content_type.as_deref().unwrap_or(""),
        )
        .next_offset(created.newest)
        .closed(created.closed)
        .not_stored();
    Ok(match (status, location) {
        (StatusCode::CREATED, Some(location)) => answer.with("location", location),
        _ => answer,
    }
    .done())
}

/// The stream's URL, as its client knows this server.
fn location(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    // Behind a proxy that speaks TLS. Whoever sends it gets it back, and nobody else.
    let is_https = headers
        .get("x-forwarded-proto")
        .is_some_and(|given| given.as_bytes() == b"https");
    let scheme = if is_https { "https" } else { "http" };
    Some(format!("{scheme}://{host}{}", uri.path()))
}

/// POST.
pub async fn append(
    State(durable): State<Arc<Durable>>,
    path: Named,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let name = named(path)?;
    let grant = durable.judge(&headers, peer, Scope::Produce, &name).await?;
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let on_behalf_of = grant.map(|grant| grant.producer());
    let HeldBody { bytes, room } = durable.desk.body_of_append(token_id, body).await?;
    let close = request::closes(&headers);
    // What a library puts there by itself means nothing where there is no body.
    let content_type = match (request::given_content_type(&headers)?, bytes.is_empty()) {
        (_, true) if close => String::new(),
        (_, true) => {
            return Err(request::refused(
                "the body is empty, and Stream-Closed is not true",
            ));
        }
        (Some(given), false) => given.to_owned(),
        (None, false) => return Err(request::refused("there is a body without a Content-Type")),
    };
    // Checked before anything is asked of Postgres; read again where it is needed.
    let has_producer = request::producer(&headers)?.is_some();
    request::writer_seq(&headers)?;
    let event_type = request::event_type(&headers)?.map(str::to_owned);
    let place = durable.desk.request()?;
    let to = Arc::clone(&durable);
    let has_events = !bytes.is_empty();
    let given = headers.clone();
    // In a task of its own, as in `create`.
    let appending = tokio::spawn(async move {
        let _held = (room, place);
        let written = Written {
            session: &name.session,
            content_type: &content_type,
            event_type: event_type.as_deref(),
        };
        let events = match bytes.is_empty() {
            true => None,
            false => {
                let empty = || request::refused("the array has no message");
                Some(written.events(&bytes)?.ok_or_else(empty)?)
            }
        };
        let new = NewEvents {
            content_type: &content_type,
            events: events.as_ref().map(|(events, _)| events.as_str()),
            writer_seq: request::writer_seq(&given)?,
            producer: request::producer(&given)?,
            close,
            on_behalf_of: on_behalf_of.as_deref(),
        };
        let appended = to
            .ask(async |client| durable::append(client, &name.stream, &name.session, &new).await)
            .await?;
        let is_duplicate = appended.outcome == Outcome::Duplicate;
        if let (Some((_, count)), Outcome::Done | Outcome::Duplicate) = (&events, appended.outcome)
        {
            to.desk.appended(&name.stream, *count, is_duplicate);
        }
        Ok((appended, name))
    });
    let (appended, name) = appending.await.unwrap_or_else(|_| Err(Problem::failed()))?;
    let producer = request::producer(&headers)?;
    let status = match appended.outcome {
        Outcome::Done if has_producer && has_events => StatusCode::OK,
        Outcome::Done | Outcome::Duplicate => StatusCode::NO_CONTENT,
        Outcome::Missing => return Err(missing(&name)),
        refused => return Ok(refusal(refused, &appended, producer)),
    };
    let answer = Answer::new(status)
        .next_offset(appended.newest)
        .closed(appended.closed)
        .not_stored();
    // On a duplicate, where the producer stands by now, and not what it sent.
    let stands = appended.producer.filter(|_| has_producer);
    Ok(match stands {
        Some((epoch, seq)) => answer
            .with("producer-epoch", epoch.to_string())
            .with("producer-seq", seq.to_string()),
        None => answer,
    }
    .done())
}

/// The answer to an append that was refused.
fn refusal(outcome: Outcome, appended: &Appended, sent: Option<Producer<'_>>) -> Response {
    let (epoch, seq) = appended.producer.unwrap_or((0, -1));
    let (of, detail): (ProblemType, _) = match outcome {
        Outcome::Closed => (problem_type::SESSION_CLOSED, "the stream is closed"),
        Outcome::OtherContentType => (
            problem_type::STREAM_CONFLICT,
            "the stream is of another content type",
        ),
        Outcome::StaleEpoch => (
            problem_type::PRODUCER_FENCED,
            "a later epoch of this producer has written",
        ),
        Outcome::NewEpoch => (
            problem_type::BAD_REQUEST,
            "a new epoch of a producer begins with Producer-Seq 0",
        ),
        Outcome::Gap => (
            problem_type::STREAM_CONFLICT,
            "Producer-Seq is not the next one: what comes before it is missing",
        ),
        _ => (
            problem_type::STREAM_CONFLICT,
            "Stream-Seq is not above the last one",
        ),
    };
    let problem = Problem::new(of, format!("{detail}: nothing was appended"));
    let mut response = closed_too(problem, appended.closed, appended.newest);
    let headers = response.headers_mut();
    match (outcome, sent) {
        (Outcome::StaleEpoch, _) => {
            headers.insert("producer-epoch", HeaderValue::from(epoch));
        }
        (Outcome::Gap, Some(sent)) => {
            headers.insert("producer-expected-seq", HeaderValue::from(seq + 1));
            headers.insert("producer-received-seq", HeaderValue::from(sent.seq));
        }
        _ => {}
    }
    response
}

/// A refusal that also says that the stream is closed, and where it ends.
fn closed_too(problem: Problem, is_closed: bool, newest: i64) -> Response {
    let mut response = problem.into_response();
    if is_closed {
        let headers = response.headers_mut();
        headers.insert("stream-closed", HeaderValue::from_static("true"));
        if let Ok(offset) = HeaderValue::try_from(Offset(newest).to_string()) {
            headers.insert(HeaderName::from_static("stream-next-offset"), offset);
        }
    }
    response
}

/// DELETE.
pub async fn delete(
    State(durable): State<Arc<Durable>>,
    path: Named,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let name = named(path)?;
    durable.judge(&headers, peer, Scope::Operate, &name).await?;
    let place = durable.desk.request()?;
    let to = Arc::clone(&durable);
    // In a task of its own, as in `create`.
    let deleting = tokio::spawn(async move {
        let _held = place;
        let deleted = to
            .ask(async |client| {
                durable::delete(client, &name.stream, &name.session)
                    .await
                    .map_err(AppendError::from)
            })
            .await?;
        if deleted { Ok(()) } else { Err(missing(&name)) }
    });
    deleting.await.unwrap_or_else(|_| Err(Problem::failed()))?;
    Ok(Answer::new(StatusCode::NO_CONTENT).not_stored().done())
}

impl Durable {
    /// Asks Postgres for a change. A connection that does not answer in time does not go back to the pool.
    async fn ask<T>(
        &self,
        change: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, AppendError>,
    ) -> Result<T, Problem> {
        let client = self.desk.pool.get().await.map_err(|_| Problem::busy())?;
        match timeout(ANSWER_WITHIN, change(&client)).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(of_append(&error)),
            Err(_) => {
                drop(Object::take(client));
                Err(of_append(&AppendError::TimedOut))
            }
        }
    }
}

/// What is wrong with a change, in the statuses of the protocol: it has no 422.
fn of_append(error: &AppendError) -> Problem {
    if let AppendError::Store(store) = error
        && store.sqlstate() == Some(sqlstate::LANE_BUSY)
    {
        return Problem::session_busy();
    }
    let problem = Problem::of_append(error);
    if error.is_outcome_unknown() {
        return problem.hint("repeat the request with the same Producer-Id, Producer-Epoch and Producer-Seq: what is there is not appended again");
    }
    if problem.problem_type().status != StatusCode::UNPROCESSABLE_ENTITY {
        return problem;
    }
    let refused = Problem::new(problem_type::BAD_REQUEST, problem.detail());
    match problem.advice() {
        Some(advice) => refused.hint(advice),
        None => refused,
    }
}
