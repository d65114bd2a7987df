//! Finds advisory locks with Lanekeeper's keys whose holder is no worker, operator or producer.

use std::fmt;

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::read;
use crate::StoreError;

/// A backend that holds or awaits some, as `lanekeeper.foreign_lock` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForeignLock {
    pub backend_pid: i32,
    pub role: Option<String>,
    pub application: Option<String>,
    pub held: i64,
    pub awaited: i64,
    /// Others wait for one of its locks.
    pub blocks: bool,
}

impl ForeignLock {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            backend_pid: row.try_get("backend_pid")?,
            role: row.try_get("role")?,
            application: row.try_get("application")?,
            held: row.try_get("held")?,
            awaited: row.try_get("awaited")?,
            blocks: row.try_get("blocks")?,
        })
    }
}

impl fmt::Display for ForeignLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            backend_pid,
            held,
            awaited,
            ..
        } = self;
        let role = self.role.as_deref().unwrap_or("unknown");
        let application = self.application.as_deref().unwrap_or("");
        write!(
            f,
            "pid {backend_pid}, role {role}, application {application:?}, holds {held} and awaits {awaited} of Lanekeeper's advisory locks"
        )?;
        if self.blocks {
            f.write_str(", and others wait for it")
        } else {
            Ok(())
        }
    }
}

/// At most `limit`, those that block others first.
///
/// # Errors
/// Where they cannot be read.
pub async fn foreign_locks(
    client: &impl GenericClient,
    limit: i64,
) -> Result<Vec<ForeignLock>, StoreError> {
    let statement = include_str!("../sql/foreign_lock_list.sql");
    read(
        client,
        "reading the locks of others",
        statement,
        &[(&limit, Type::INT8)],
        ForeignLock::from_row,
    )
    .await
}
