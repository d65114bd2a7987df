//! Reading documents: as they are, as they were, and by the page.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::DocumentError;

const GET: &str = include_str!("../sql/document_get.sql");
const LIST: &str = include_str!("../sql/document_list.sql");
const HISTORY: &str = include_str!("../sql/document_history.sql");

/// Which version of a document is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    #[default]
    Now,
    Version(i64),
    /// The newest that was written by then.
    Instant(Timestamp),
}

/// A version of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<T> {
    pub version: i64,
    pub body: T,
    /// Of the event that was appended with it.
    pub event_type: String,
    pub message_id: Uuid,
    pub seq: i64,
    pub changed_at: Timestamp,
}

/// A document in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "ListedDocument")]
pub struct Listed {
    pub id: String,
    pub version: i64,
    /// Of its newest event.
    pub event_type: String,
    pub seq: i64,
    pub changed_at: Timestamp,
}

/// A version in a document's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "DocumentVersion")]
pub struct PastVersion {
    pub version: i64,
    /// The version is a deletion.
    pub deleted: bool,
    pub event_type: String,
    pub message_id: Uuid,
    pub seq: i64,
    pub changed_at: Timestamp,
}

/// A document as it is; `None` where it is not there.
///
/// # Errors
/// Where it cannot be read, or its body is not of this type.
pub async fn get<T: DeserializeOwned>(
    client: &impl GenericClient,
    kind: &str,
    id: &str,
) -> Result<Option<Document<T>>, DocumentError> {
    let Some(found) = get_at(client, kind, id, At::Now).await? else {
        return Ok(None);
    };
    let Some(body) = found.body else {
        return Ok(None);
    };
    Ok(Some(Document {
        version: found.version,
        body: serde_json::from_str(&body).map_err(DocumentError::Body)?,
        event_type: found.event_type,
        message_id: found.message_id,
        seq: found.seq,
        changed_at: found.changed_at,
    }))
}

/// A version of a document, with its body as JSON text; without one where the version is a deletion. `None` where the
/// document was not there yet, or where the version is past its retention.
///
/// # Errors
/// Where it cannot be read.
pub async fn get_at(
    client: &impl GenericClient,
    kind: &str,
    id: &str,
    at: At,
) -> Result<Option<Document<Option<String>>>, DocumentError> {
    let (version, instant) = match at {
        At::Now => (None, None),
        At::Version(version) => (Some(version), None),
        At::Instant(instant) => (None, Some(instant)),
    };
    let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
        (&kind, Type::TEXT),
        (&id, Type::TEXT),
        (&version, Type::INT8),
        (&instant, Type::TIMESTAMPTZ),
    ];
    let rows = client.query_typed(GET, &parameters).await;
    let found = |row: &Row| {
        Ok(Document {
            version: row.try_get("version")?,
            body: row.try_get("body")?,
            event_type: row.try_get("event_type")?,
            message_id: row.try_get("message_id")?,
            seq: row.try_get("seq")?,
            changed_at: row.try_get("changed_at")?,
        })
    };
    rows.and_then(|rows| rows.first().map(found).transpose())
        .map_err(DocumentError::reading)
}

/// A page of the documents of a kind that are there, by id, behind the id `after`: up to `rows`, from 1 to
/// [`MOST`](super::MOST).
///
/// # Errors
/// Where they cannot be read.
pub async fn list(
    client: &impl GenericClient,
    kind: &str,
    after: Option<&str>,
    rows: i32,
) -> Result<Vec<Listed>, DocumentError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 3] = [
        (&kind, Type::TEXT),
        (&after, Type::TEXT),
        (&rows, Type::INT4),
    ];
    let rows = client.query_typed(LIST, &parameters).await;
    let listed = |row: &Row| {
        Ok(Listed {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            event_type: row.try_get("event_type")?,
            seq: row.try_get("seq")?,
            changed_at: row.try_get("changed_at")?,
        })
    };
    rows.and_then(|rows| rows.iter().map(listed).collect())
        .map_err(DocumentError::reading)
}

/// A page of the versions of a document, the newest first, before the version `before`: up to `rows`, from 1 to
/// [`MOST`](super::MOST).
///
/// # Errors
/// Where they cannot be read.
pub async fn history(
    client: &impl GenericClient,
    kind: &str,
    id: &str,
    before: Option<i64>,
    rows: i32,
) -> Result<Vec<PastVersion>, DocumentError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
        (&kind, Type::TEXT),
        (&id, Type::TEXT),
        (&before, Type::INT8),
        (&rows, Type::INT4),
    ];
    let rows = client.query_typed(HISTORY, &parameters).await;
    let past = |row: &Row| {
        Ok(PastVersion {
            version: row.try_get("version")?,
            deleted: row.try_get("deleted")?,
            event_type: row.try_get("event_type")?,
            message_id: row.try_get("message_id")?,
            seq: row.try_get("seq")?,
            changed_at: row.try_get("changed_at")?,
        })
    };
    rows.and_then(|rows| rows.iter().map(past).collect())
        .map_err(DocumentError::reading)
}
