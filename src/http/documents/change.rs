//! Changing documents over HTTP.
//!
//! A change runs in a task of its own: a client that leaves must not leave its statement behind, waiting at the server.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use lanekeeper_core::trace::TraceContext;
use lanekeeper_postgres::document::{
    self, Change, DocumentError, Expect, Operation, STREAM, Written,
};
use lanekeeper_postgres::token::{Grant, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::super::access::{Peer, Reach, may_reach};
use super::super::events::{HeldBody, POOL_WITHIN, json, trace_of};
use super::super::problem::{Problem, etag};
use super::super::problem_type;
use super::super::request_limits::Room;
use super::precondition::expected;
use super::{ANSWER_WITHIN, Documents, Named, answered, unreadable};

/// What a patch may say it is.
pub const PATCHES: [&str; 2] = ["application/merge-patch+json", "application/json"];

/// The event that tells of the change, instead of the usual one.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ToldAs")]
#[serde(deny_unknown_fields)]
pub struct ExtraHeader {
    event_type: Option<String>,
}

type Queried = Result<Query<ExtraHeader>, QueryRejection>;

pub async fn put(
    State(documents): State<Arc<Documents>>,
    path: Named,
    query: Queried,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let name = named(path)?;
    let caller = Caller::judged(&documents, &headers, peer, &name).await?;
    let expect = expected(&headers)?;
    let (room, body) = text(&documents, &caller, body).await?;
    let one = One::new(name, query, expect, &headers)?;
    one.write(documents, caller, room, Method::Put, body).await
}

pub async fn patch(
    State(documents): State<Arc<Documents>>,
    path: Named,
    query: Queried,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let name = named(path)?;
    let caller = Caller::judged(&documents, &headers, peer, &name).await?;
    let expect = expected(&headers)?;
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if !kind.is_some_and(|kind| PATCHES.iter().any(|one| one.eq_ignore_ascii_case(kind))) {
        let detail = "a document is patched by a JSON Merge Patch: nothing was changed";
        return Err(Problem::new(problem_type::UNSUPPORTED_MEDIA_TYPE, detail)
            .hint("send Content-Type: application/merge-patch+json"));
    }
    let (room, body) = text(&documents, &caller, body).await?;
    let one = One::new(name, query, expect, &headers)?;
    one.write(documents, caller, room, Method::Patch, body)
        .await
}

pub async fn delete(
    State(documents): State<Arc<Documents>>,
    path: Named,
    query: Queried,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let name = named(path)?;
    let caller = Caller::judged(&documents, &headers, peer, &name).await?;
    let expect = expected(&headers)?;
    let (room, body) = text(&documents, &caller, body).await?;
    if !body.is_empty() {
        return Err(unreadable(&"a deletion has no body"));
    }
    let one = One::new(name, query, expect, &headers)?;
    one.write(documents, caller, room, Method::Delete, body)
        .await
}

pub async fn put_many(
    State(documents): State<Arc<Documents>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let access = &documents.desk.access;
    let judged = access.judge_reach(&headers, peer, Scope::Produce, STREAM, Reach::Named);
    let caller = Caller {
        grant: judged.await?,
    };
    let (room, body) = text(&documents, &caller, body).await?;
    caller.may_change(&body)?;
    let written = carried_out(documents, room, caller, Work::Many { body }).await?;
    Ok(answer(StatusCode::OK, &written))
}

fn named(path: Named) -> Result<(String, String), Problem> {
    let Path(name) = path.map_err(|rejection| unreadable(&rejection))?;
    Ok(name)
}

/// Who sent a request. `None`: somebody who needs no token.
struct Caller {
    grant: Option<Arc<Grant>>,
}

impl Caller {
    async fn judged(
        documents: &Documents,
        headers: &HeaderMap,
        peer: Peer,
        (kind, id): &(String, String),
    ) -> Result<Self, Problem> {
        let judged = documents.judge_one(headers, peer, Scope::Produce, (kind, id));
        let grant = judged.await?;
        Ok(Self { grant })
    }

    /// Whether all documents that a body names are of sessions that the token reaches.
    fn may_change(&self, body: &str) -> Result<(), Problem> {
        /// A member that comes twice is refused.
        #[derive(Deserialize)]
        struct Name<'a> {
            #[serde(borrow)]
            kind: Cow<'a, str>,
            #[serde(borrow)]
            id: Cow<'a, str>,
        }

        let grant = self.grant.as_deref();
        // Postgres reads the body of everybody else.
        if grant.is_none_or(Grant::reaches_all_sessions) {
            return Ok(());
        }
        let names: Vec<Name<'_>> =
            serde_json::from_str(body).map_err(|error| unreadable(&error))?;
        for Name { kind, id } in names {
            may_reach(
                grant,
                Scope::Produce,
                STREAM,
                &document::session(&kind, &id),
            )?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Method {
    Put,
    Patch,
    Delete,
}

/// One document, and what is asked of it.
struct One {
    kind: String,
    id: String,
    expect: Expect,
    event_type: Option<String>,
    headers: Option<String>,
}

impl One {
    fn new(
        (kind, id): (String, String),
        query: Queried,
        expect: Expect,
        headers: &HeaderMap,
    ) -> Result<Self, Problem> {
        let Query(ExtraHeader { event_type }) =
            query.map_err(|rejection| unreadable(&rejection))?;
        Ok(Self {
            kind,
            id,
            expect,
            event_type,
            headers: trace_of(headers).map(|trace| event_headers(&trace)),
        })
    }

    async fn write(
        self,
        documents: Arc<Documents>,
        caller: Caller,
        room: Room,
        method: Method,
        body: String,
    ) -> Result<Response, Problem> {
        let work = Work::One {
            one: self,
            method,
            body,
        };
        let written = carried_out(documents, room, caller, work).await?[0];
        let status = match written.created {
            true => StatusCode::CREATED,
            false => StatusCode::OK,
        };
        let mut answer = answer(status, &written);
        if !matches!(method, Method::Delete) {
            let tag = etag(written.version);
            answer.headers_mut().insert(header::ETAG, tag);
        }
        Ok(answer)
    }
}

/// What a request asks of Postgres.
enum Work {
    One {
        one: One,
        method: Method,
        body: String,
    },
    Many {
        body: String,
    },
}

impl Work {
    async fn carry_out(
        &self,
        client: &Client,
        producer: Option<&str>,
    ) -> Result<Vec<Written>, DocumentError> {
        let (one, method, body) = match self {
            Self::Many { body } => return document::put_many(client, body, producer).await,
            Self::One { one, method, body } => (one, method, body),
        };
        let operation = match method {
            Method::Put => Operation::Put(body),
            Method::Patch => Operation::Patch(body),
            Method::Delete => Operation::Delete,
        };
        let change = Change {
            expect: one.expect,
            event_type: one.event_type.as_deref(),
            headers: one.headers.as_deref(),
            producer,
            ..Change::new(&one.kind, &one.id, operation)
        };
        Ok(vec![document::change(client, &change).await?])
    }
}

/// The request's trace context as headers of an event.
fn event_headers(trace: &TraceContext) -> String {
    let mut headers = Map::new();
    for (name, value) in [
        ("traceparent", &trace.traceparent),
        ("tracestate", &trace.tracestate),
    ] {
        if let Some(value) = value {
            headers.insert(name.to_owned(), Value::from(value.as_str()));
        }
    }
    Value::Object(headers).to_string()
}

async fn text(
    documents: &Documents,
    caller: &Caller,
    body: axum::body::Body,
) -> Result<(Room, String), Problem> {
    let token_id = caller.grant.as_ref().map(|grant| grant.token_id);
    let HeldBody { bytes, room } = documents.desk.body_of_append(token_id, body).await?;
    let text = String::from_utf8(bytes).map_err(|error| unreadable(&error.utf8_error()))?;
    Ok((room, text))
}

/// Changes documents, on a connection of the pool.
async fn carried_out(
    documents: Arc<Documents>,
    room: Room,
    caller: Caller,
    work: Work,
) -> Result<Vec<Written>, Problem> {
    let place = documents.desk.request()?;
    let changing = tokio::spawn(async move {
        let _held = (room, place);
        let turn = timeout(POOL_WITHIN, documents.changes.acquire()).await;
        let _turn = turn.map_err(|_| Problem::busy())?;
        let client = documents.desk.pool.get().await;
        let client = client.map_err(|_| Problem::busy())?;
        let producer = caller.grant.map(|grant| grant.producer());
        let changing = work.carry_out(&client, producer.as_deref());
        let changed = timeout(ANSWER_WITHIN, changing).await;
        let written = answered(changed, client, unknown)?;
        let events = written.len() as u64;
        documents.desk.appended(STREAM, events, false);
        Ok(written)
    });
    changing.await.unwrap_or_else(|_| Err(Problem::failed()))
}

fn unknown() -> Problem {
    let detail = "Postgres did not answer: the documents may or may not have been changed";
    let hint = "read them: their versions tell";
    Problem::later(problem_type::OUTCOME_UNKNOWN, detail, 1).hint(hint)
}

fn answer(status: StatusCode, written: &impl Serialize) -> Response {
    let body = serde_json::to_vec(written).expect("ids and numbers always serialise");
    json(status, body)
}
