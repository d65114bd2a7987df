//! Sources as rows: loaded by workers, written by `apply`.

use jiff::Timestamp;
use lanekeeper_core::source::Definition;
use lanekeeper_core::subscription::{ChangeKind, Step};
use serde::Serialize;
use serde_json::json;
use tokio_postgres::types::Json;
use tokio_postgres::{GenericClient, Row, Transaction};

use super::StoreError;

pub const LIST: &str = include_str!("sql/source_list.sql");
pub const PUT: &str = include_str!("sql/source_put.sql");

/// A source that is in force.
#[derive(Clone, Debug, Serialize)]
pub struct Source {
    #[serde(skip)]
    pub id: i32,
    pub name: String,
    /// Grows with every change of its definition.
    pub version: i64,
    #[serde(flatten)]
    pub definition: Definition,
    pub changed_at: Timestamp,
}

impl Source {
    fn of(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let Json(definition) = row.try_get("definition")?;
        Ok(Self {
            id: row.try_get("source_id")?,
            name: row.try_get("name")?,
            version: row.try_get("version")?,
            definition,
            changed_at: row.try_get("changed_at")?,
        })
    }
}

/// Every source that is in force, by name.
///
/// # Errors
/// Where the rows cannot be read, or hold a word that this release does not know.
pub async fn list(client: &impl GenericClient) -> Result<Vec<Source>, StoreError> {
    let operation = "loading the sources";
    let rows = client
        .query(LIST, &[])
        .await
        .map_err(StoreError::on(operation))?;
    rows.iter()
        .map(Source::of)
        .collect::<Result<_, _>>()
        .map_err(StoreError::on(operation))
}

/// Does what the plan says about one source.
pub(super) async fn execute(
    transaction: &Transaction<'_>,
    step: &Step<Definition>,
) -> Result<(), StoreError> {
    let definition = match step.kind {
        ChangeKind::Unchanged => return Ok(()),
        ChangeKind::Removed => None,
        ChangeKind::Created | ChangeKind::Changed | ChangeKind::Revived => {
            Some(json!(step.definition))
        }
    };
    transaction
        .execute(PUT, &[&step.name, &definition])
        .await
        .map(drop)
        .map_err(StoreError::on("writing a source"))
}
