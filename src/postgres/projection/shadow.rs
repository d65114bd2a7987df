//! The schema in which a rebuild fills a projection's tables anew: `lanekeeper_rebuild_ID`, owned by Lanekeeper, in which
//! the projection's role may create tables. Its comment says of which function and tables it is. How far the rebuild is
//! stands in tables of the role's own there, so that it commits with what the function wrote.

use tokio_postgres::Client;

use super::rebuild::RebuildError;
use super::{Projection, quoted};
use crate::StoreError;

pub const SOURCE: &str = include_str!("../sql/projection_source.sql");
pub const COLUMN: &str = include_str!("../sql/projection_column.sql");

/// What a rebuild starts from.
pub(super) struct Source {
    digest: String,
    /// The tables that readers use, by oid.
    pub(super) tables: Vec<u32>,
    owns_shadow: Option<bool>,
    left_by: Option<String>,
    /// The log may have had every event of the stream's sessions for the projection.
    pub(super) has_every_session: bool,
}

/// The schema of a subscription's rebuild.
pub(super) fn name(subscription_id: i32) -> String {
    format!("lanekeeper_rebuild_{subscription_id}")
}

impl Source {
    pub(super) async fn read(
        owner: &Client,
        projection: &Projection,
        subscription_id: i32,
    ) -> Result<Self, RebuildError> {
        if projection.tables.is_empty() {
            return Err(RebuildError::NoTables);
        }
        let operation = "looking at a projection's tables";
        let function = projection.qualified(&projection.function);
        let row = owner
            .query_one(
                SOURCE,
                &[
                    &function,
                    &projection.schema,
                    &projection.tables,
                    &subscription_id,
                    &name(subscription_id),
                ],
            )
            .await
            .map_err(StoreError::on(operation))?;
        let read = || {
            let referring: Vec<String> = row.try_get("referring")?;
            let digest: Option<String> = row.try_get("digest")?;
            let source = Self {
                digest: digest.clone().unwrap_or_default(),
                tables: row.try_get("tables")?,
                owns_shadow: row.try_get("owns_shadow")?,
                left_by: row.try_get("left_by")?,
                has_every_session: row.try_get("has_every_session")?,
            };
            Ok::<_, tokio_postgres::Error>((source, referring, digest.is_some()))
        };
        let (source, referring, has_function) = read().map_err(StoreError::on(operation))?;
        if !has_function {
            return Err(RebuildError::Missing(format!(
                "there is no function {function}(jsonb)"
            )));
        }
        if source.tables.len() != projection.tables.len() {
            return Err(RebuildError::Missing(format!(
                "the schema {} lacks one of the tables {}",
                projection.schema,
                projection.tables.join(", ")
            )));
        }
        if !referring.is_empty() {
            return Err(RebuildError::Referred(referring.join(", ")));
        }
        Ok(source)
    }

    /// Whether nothing changed of which a rebuild is made.
    pub(super) fn is_of_the_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// Makes the schema, unless an earlier rebuild of the same function and tables left it. Returns whether one did.
    pub(super) async fn make_shadow(
        &self,
        owner: &Client,
        role: &Client,
        projection: &Projection,
        subscription_id: i32,
        afresh: bool,
    ) -> Result<bool, RebuildError> {
        let schema = name(subscription_id);
        if self.owns_shadow == Some(false) {
            return Err(RebuildError::ForeignShadow(schema));
        }
        if !afresh && self.left_by.as_ref() == Some(&self.digest) {
            return Ok(true);
        }
        drop_shadow(owner, subscription_id).await?;
        let shadow = quoted(&schema);
        let making = format!(
            "CREATE SCHEMA {shadow}; GRANT USAGE, CREATE ON SCHEMA {shadow} TO {}",
            quoted(&projection.role)
        );
        owner
            .batch_execute(&making)
            .await
            .map_err(StoreError::on("making the schema of a rebuild"))?;
        let mut tables = String::from("BEGIN;");
        for table in &projection.tables {
            tables += &format!(
                "CREATE TABLE {shadow}.{0} (LIKE {1} INCLUDING ALL);",
                quoted(table),
                projection.qualified(table)
            );
        }
        tables += &format!(
            "CREATE TABLE {shadow}.lanekeeper_done (lane_id bigint PRIMARY KEY, seq bigint NOT NULL);
             CREATE TABLE {shadow}.lanekeeper_left_out (lane_id bigint, seq bigint, PRIMARY KEY (lane_id, seq)); COMMIT"
        );
        role.batch_execute(&tables)
            .await
            .map_err(StoreError::on("making the tables of a rebuild"))?;
        // Last: a schema without it is made again.
        let digest = format!("COMMENT ON SCHEMA {shadow} IS '{}'", self.digest);
        owner
            .batch_execute(&digest)
            .await
            .map_err(StoreError::on("noting what a rebuild is of"))?;
        Ok(false)
    }
}

pub(super) async fn drop_shadow(owner: &Client, subscription_id: i32) -> Result<(), StoreError> {
    let shadow = quoted(&name(subscription_id));
    owner
        .batch_execute(&format!("DROP SCHEMA IF EXISTS {shadow} CASCADE"))
        .await
        .map_err(StoreError::on("dropping the schema of a rebuild"))
}

/// The statements that put the shadow's rows in the place of those that readers see, in one transaction.
pub(super) async fn switch_statements(
    owner: &Client,
    projection: &Projection,
    subscription_id: i32,
) -> Result<String, StoreError> {
    let operation = "reading the columns of a read model";
    let shadow = quoted(&name(subscription_id));
    let mut text = String::from(
        "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL search_path TO pg_catalog, pg_temp;",
    );
    for table in projection.tables.iter().rev() {
        text += &format!("DELETE FROM {};", projection.qualified(table));
    }
    for table in &projection.tables {
        let rows = owner
            .query(COLUMN, &[&projection.schema, table])
            .await
            .map_err(StoreError::on(operation))?;
        let mut columns = Vec::new();
        let mut identities = Vec::new();
        for row in &rows {
            let name: String = row.try_get("name").map_err(StoreError::on(operation))?;
            if row
                .try_get("is_identity")
                .map_err(StoreError::on(operation))?
            {
                identities.push(name.clone());
            }
            columns.push(quoted(&name));
        }
        let (live, columns) = (projection.qualified(table), columns.join(", "));
        text += &format!(
            "INSERT INTO {live} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {shadow}.{};",
            quoted(table)
        );
        for name in identities {
            // Names are plain: see the settings of projections. Columns need not be.
            let (literal, column) = (name.replace('\'', "''"), quoted(&name));
            text += &format!(
                "SELECT setval(pg_get_serial_sequence('{live}', '{literal}'), greatest(max({column}), 1), max({column}) IS NOT NULL) FROM {live};"
            );
        }
    }
    text += "COMMIT";
    Ok(text)
}
