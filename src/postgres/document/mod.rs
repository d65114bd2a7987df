//! Documents: a body, its version and the event that tells of the change, written in one step (F1).
//!
//! Everything goes through `lanekeeper.put_document`, `patch_document`, `delete_document` and `put_documents`, in the
//! caller's transaction where it wants one. Bodies are JSON text here and are passed through, as payloads are in
//! [`append`](crate::append). [`put`] and [`get`] take and give types of the caller's own.
//!
//! ```no_run
//! use lanekeeper_postgres::document::{self, Expect};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Commitment {
//!     text: String,
//!     done: bool,
//! }
//!
//! # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let transaction = client.transaction().await?;
//! if let Some(found) = document::get::<Commitment>(&transaction, "commitment", "c1").await? {
//!     let done = Commitment { done: true, ..found.body };
//!     // Refused with the version that there is, if another one was written since.
//!     document::put(&transaction, "commitment", "c1", &done, Expect::Version(found.version)).await?;
//! }
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```

mod error;
mod read;

use serde::{Deserialize, Serialize};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

pub use error::DocumentError;
pub use read::{At, Document, Listed, PastVersion, get, get_at, history, list};

/// The stream whose sessions are documents: `kind/id`.
pub const STREAM: &str = "documents";

/// The session of a document's events.
pub fn session(kind: &str, id: &str) -> String {
    format!("{kind}/{id}")
}
/// The most documents of one [`put_many`], and the most rows of a page.
pub const MOST: i32 = 1_000;

const PUT: &str = include_str!("../sql/document_put.sql");
const PATCH: &str = include_str!("../sql/document_patch.sql");
const DELETE: &str = include_str!("../sql/document_delete.sql");
const PUT_MANY: &str = include_str!("../sql/document_put_many.sql");

/// What a change expects of the document that it meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    #[default]
    Anything,
    /// It is not there: never was, or was deleted.
    Absent,
    /// It is there, at whatever version.
    Present,
    /// It is at this version, from 1.
    Version(i64),
}

impl Expect {
    fn as_sql(self) -> Option<i64> {
        match self {
            Self::Anything => None,
            Self::Absent => Some(0),
            Self::Present => Some(-1),
            Self::Version(version) => Some(version),
        }
    }
}

/// What is done to a document. JSON text.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Creates or replaces it.
    Put(&'a str),
    /// A JSON Merge Patch (RFC 7396).
    Patch(&'a str),
    Delete,
}

/// A change of one document.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// 1 to 100 bytes without a slash.
    pub kind: &'a str,
    /// 1 to 400 bytes.
    pub id: &'a str,
    pub operation: Operation<'a>,
    pub expect: Expect,
    /// In place of `DocumentCreated`, `DocumentUpdated` and `DocumentDeleted`.
    pub event_type: Option<&'a str>,
    /// JSON text, in place of an event with the document's kind, id, version and body. Needs an `event_type`.
    pub event: Option<&'a str>,
    /// JSON text of an object, which travels with the event.
    pub headers: Option<&'a str>,
    /// For a program that writes for others, as the HTTP listener does: who they are. Only from the owner of the schema
    /// does it mean anything.
    pub producer: Option<&'a str>,
}

impl<'a> Change<'a> {
    /// A change of whatever is there, told by the usual event.
    pub fn new(kind: &'a str, id: &'a str, operation: Operation<'a>) -> Self {
        Self {
            kind,
            id,
            operation,
            expect: Expect::Anything,
            event_type: None,
            event: None,
            headers: None,
            producer: None,
        }
    }
}

/// Where a document and its event stand, once the transaction has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[schemars(rename = "DocumentWritten")]
pub struct Written {
    /// The document's, from 1 and without gaps.
    pub version: i64,
    /// Of the event.
    pub message_id: Uuid,
    /// Of the event, in the document's session.
    pub seq: i64,
    /// It was not there before.
    pub created: bool,
}

/// Changes a document and appends its event.
///
/// # Errors
/// Nothing was changed, except as [`AppendError::Store`](crate::append::AppendError::Store) says.
pub async fn change(
    client: &impl GenericClient,
    change: &Change<'_>,
) -> Result<Written, DocumentError> {
    let expected = change.expect.as_sql();
    let headers = change.headers.unwrap_or("{}");
    let of_delete: [(&(dyn ToSql + Sync), Type); 7] = [
        (&change.kind, Type::TEXT),
        (&change.id, Type::TEXT),
        (&expected, Type::INT8),
        (&change.event_type, Type::TEXT),
        (&change.event, Type::TEXT),
        (&headers, Type::TEXT),
        (&change.producer, Type::TEXT),
    ];
    let row = match &change.operation {
        Operation::Delete => client.query_typed_one(DELETE, &of_delete).await,
        Operation::Put(body) | Operation::Patch(body) => {
            let statement = match change.operation {
                Operation::Patch(_) => PATCH,
                _ => PUT,
            };
            let mut parameters = of_delete.to_vec();
            parameters.insert(2, (body, Type::TEXT));
            client.query_typed_one(statement, &parameters).await
        }
    };
    row.and_then(|row| written(&row))
        .map_err(DocumentError::new)
}

/// Creates or replaces a document, from a type of the caller's own.
///
/// # Errors
/// As [`change`].
pub async fn put<T: Serialize + ?Sized>(
    client: &impl GenericClient,
    kind: &str,
    id: &str,
    body: &T,
    expect: Expect,
) -> Result<Written, DocumentError> {
    let body = serde_json::to_string(body).map_err(DocumentError::Body)?;
    let operation = Operation::Put(&body);
    let put = Change {
        expect,
        ..Change::new(kind, id, operation)
    };
    change(client, &put).await
}

/// Changes a document by a JSON Merge Patch (RFC 7396).
///
/// # Errors
/// As [`change`].
pub async fn patch<T: Serialize + ?Sized>(
    client: &impl GenericClient,
    kind: &str,
    id: &str,
    patch: &T,
    expect: Expect,
) -> Result<Written, DocumentError> {
    let patch = serde_json::to_string(patch).map_err(DocumentError::Body)?;
    let patch = Change {
        expect,
        ..Change::new(kind, id, Operation::Patch(&patch))
    };
    change(client, &patch).await
}

/// Deletes a document. Its number goes on with the one that is created after it.
///
/// # Errors
/// As [`change`].
pub async fn delete(
    client: &impl GenericClient,
    kind: &str,
    id: &str,
    expect: Expect,
) -> Result<Written, DocumentError> {
    let delete = Change {
        expect,
        ..Change::new(kind, id, Operation::Delete)
    };
    change(client, &delete).await
}

/// Changes up to [`MOST`] documents, all or none, in the order of a JSON array as `lanekeeper.put_documents` takes it.
/// Such calls never deadlock one another.
///
/// # Errors
/// As [`change`]; one element that is refused refuses all.
pub async fn put_many(
    client: &impl GenericClient,
    documents: &str,
    producer: Option<&str>,
) -> Result<Vec<Written>, DocumentError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 2] =
        [(&documents, Type::TEXT), (&producer, Type::TEXT)];
    let rows = client.query_typed(PUT_MANY, &parameters).await;
    rows.and_then(|rows| rows.iter().map(written).collect())
        .map_err(DocumentError::new)
}

fn written(row: &Row) -> Result<Written, tokio_postgres::Error> {
    Ok(Written {
        version: row.try_get("version")?,
        message_id: row.try_get("message_id")?,
        seq: row.try_get("seq")?,
        created: row.try_get("created")?,
    })
}
