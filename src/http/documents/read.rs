//! Reading documents over HTTP.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use deadpool_postgres::Object;
use jiff::Timestamp;
use lanekeeper_postgres::document::{self, At, Listed, MOST, PastVersion};
use lanekeeper_postgres::token::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::super::access::Peer;
use super::super::events::json;
use super::super::problem::{Problem, etag};
use super::super::problem_type;
use super::super::request_limits::RequestPermit;
use super::precondition::has_version;
use super::{ANSWER_WITHIN, Documents, Named, answered, unreadable};

/// Rows of a page, unless asked for fewer or more.
const PAGE: i32 = 100;

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "DocumentAt")]
#[serde(deny_unknown_fields)]
pub struct Which {
    version: Option<i64>,
    at: Option<Timestamp>,
}

pub async fn get(
    State(documents): State<Arc<Documents>>,
    path: Named,
    query: Result<Query<Which>, QueryRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path((kind, id)) = path.map_err(|rejection| unreadable(&rejection))?;
    let judged = documents.judge_one(&headers, peer, Scope::Read, (&kind, &id));
    judged.await?;
    let Query(which) = query.map_err(|rejection| unreadable(&rejection))?;
    let at = match which {
        Which {
            version: None,
            at: None,
        } => At::Now,
        Which {
            version: Some(version),
            at: None,
        } => At::Version(version),
        Which {
            version: None,
            at: Some(instant),
        } => At::Instant(instant),
        Which {
            version: Some(_),
            at: Some(_),
        } => {
            return Err(unreadable(&"version and at exclude each other"));
        }
    };
    let found = {
        let (_place, client) = documents.reader().await?;
        let reading = document::get_at(&**client, &kind, &id, at);
        let read = timeout(ANSWER_WITHIN, reading).await;
        answered(read, client, Problem::away)?
    };
    let missing = |detail: String| Problem::new(problem_type::NOT_FOUND, detail);
    let name = Problem::excerpt(&format!("{kind}/{id}"));
    let Some(found) = found else {
        return Err(match at {
            At::Now => missing(format!("there is no document {name:?}")),
            At::Version(_) | At::Instant(_) => missing(format!(
                "there is no such version of the document {name:?}, or it is past its retention"
            ))
            .hint("GET …/history lists the versions that there are"),
        });
    };
    let Some(body) = found.body else {
        let version = found.version;
        return Err(missing(format!(
            "the document {name:?} was deleted, as version {version}"
        )));
    };
    let tag = etag(found.version);
    let cache = HeaderValue::from_static("no-cache");
    if has_version(&headers, found.version) {
        let told = [(header::ETAG, tag), (header::CACHE_CONTROL, cache)];
        return Ok((StatusCode::NOT_MODIFIED, told).into_response());
    }
    let mut answer = json(StatusCode::OK, body.into_bytes());
    answer.headers_mut().insert(header::ETAG, tag);
    // Others may keep it, and ask whether it is still the newest.
    answer.headers_mut().insert(header::CACHE_CONTROL, cache);
    Ok(answer)
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "DocumentsAfter")]
#[serde(deny_unknown_fields)]
pub struct Page {
    after: Option<String>,
    limit: Option<i32>,
}

/// `next`: the id after which the next page begins; absent on the last one.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DocumentPage")]
pub struct List {
    documents: Vec<Listed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub async fn list(
    State(documents): State<Arc<Documents>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<Page>, QueryRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let access = &documents.desk.access;
    access
        .judge(&headers, peer, Scope::Read, document::STREAM)
        .await?;
    let Path(kind) = path.map_err(|rejection| unreadable(&rejection))?;
    let Query(page) = query.map_err(|rejection| unreadable(&rejection))?;
    let limit = limit(page.limit)?;
    let after = page.after.as_deref();
    let listed = {
        let (_place, client) = documents.reader().await?;
        let reading = document::list(&**client, &kind, after, limit);
        let read = timeout(ANSWER_WITHIN, reading).await;
        answered(read, client, Problem::away)?
    };
    let is_full = i32::try_from(listed.len()) == Ok(limit);
    let last = listed.last().filter(|_| is_full);
    Ok(page_of(&List {
        next: last.map(|last| last.id.clone()),
        documents: listed,
    }))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "VersionsBefore")]
#[serde(deny_unknown_fields)]
pub struct Before {
    before: Option<i64>,
    limit: Option<i32>,
}

/// `next`: the version before which the next page begins; absent on the last one.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DocumentHistory")]
pub struct History {
    versions: Vec<PastVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

pub async fn history(
    State(documents): State<Arc<Documents>>,
    path: Named,
    query: Result<Query<Before>, QueryRejection>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path((kind, id)) = path.map_err(|rejection| unreadable(&rejection))?;
    let judged = documents.judge_one(&headers, peer, Scope::Read, (&kind, &id));
    judged.await?;
    let Query(page) = query.map_err(|rejection| unreadable(&rejection))?;
    let limit = limit(page.limit)?;
    let versions = {
        let (_place, client) = documents.reader().await?;
        let reading = document::history(&**client, &kind, &id, page.before, limit);
        let read = timeout(ANSWER_WITHIN, reading).await;
        answered(read, client, Problem::away)?
    };
    let is_full = i32::try_from(versions.len()) == Ok(limit);
    let last = versions.last().filter(|_| is_full);
    Ok(page_of(&History {
        next: last.map(|last| last.version),
        versions,
    }))
}

fn limit(asked: Option<i32>) -> Result<i32, Problem> {
    match asked.unwrap_or(PAGE) {
        limit @ 1..=MOST => Ok(limit),
        _ => Err(unreadable(&format!("limit takes 1 to {MOST}"))),
    }
}

fn page_of(page: &impl Serialize) -> Response {
    let body = serde_json::to_vec(page).expect("texts and numbers always serialise");
    json(StatusCode::OK, body)
}

impl Documents {
    async fn reader(&self) -> Result<(RequestPermit, Object), Problem> {
        let place = self.desk.request()?;
        let client = self.desk.pool.get().await.map_err(|_| Problem::busy())?;
        Ok((place, client))
    }
}
