//! F1: documents, each written together with its event, in the caller's transaction.

mod api;
mod commands;
mod cost;
mod delivered;
mod many;
mod merge_patch;
mod names;
mod racing;
mod reading;
mod retention;
mod roles;
mod writing;

use lanekeeper_postgres::document::{self, Change, DocumentError, Expect, Operation, Written};
use tokio_postgres::{Client, GenericClient};

/// Puts a document of the kind `k`.
async fn put(
    client: &impl GenericClient,
    id: &str,
    body: &str,
    expect: Expect,
) -> Result<Written, DocumentError> {
    let put = Change {
        expect,
        ..Change::new("k", id, Operation::Put(body))
    };
    document::change(client, &put).await
}

/// The version that a refused change was told.
fn conflict<T: std::fmt::Debug>(result: Result<T, DocumentError>) -> i64 {
    match result {
        Err(DocumentError::Conflict { version, .. }) => version,
        other => panic!("{other:?}"),
    }
}

/// The SQLSTATE with which a statement was refused.
async fn refusal(client: &Client, statement: &str) -> String {
    let error = client.query(statement, &[]).await.unwrap_err();
    let code = error.code().expect("the server refused it");
    code.code().to_owned()
}

/// (seq, type, payload) of the events of the document `k/{id}`.
async fn events(client: &Client, id: &str) -> Vec<(i64, String, serde_json::Value)> {
    let rows = client
        .query(
            "SELECT DISTINCT seq, event_type, payload FROM lanekeeper.message
             WHERE stream = 'documents' AND session = 'k/' || $1 ORDER BY seq",
            &[&id],
        )
        .await
        .unwrap();
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}
