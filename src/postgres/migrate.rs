//! Brings the schema to the state that this binary knows.
//!
//! The migrations are embedded. They run on a direct connection, one transaction each, under one
//! session advisory lock, so that any number of replicas may call this at once: the others wait and
//! then find nothing to do. A database that a newer release has migrated is left alone and said so.

use thiserror::Error;
use tokio_postgres::Client;

use super::StoreError;

/// 16 bits 'LK', kind 5: see migrations/0002_append.sql.
const MIGRATION_LOCK: i64 = 5_497_493_267_693_961_216;

/// The oldest major version whose SQL the migrations are written for.
pub const OLDEST_POSTGRES: i32 = 14;

struct Migration {
    name: &'static str,
    sql: &'static str,
}

macro_rules! migrations {
    ($($name:literal),* $(,)?) => {
        &[$(Migration { name: $name, sql: include_str!(concat!("../../migrations/", $name, ".sql")) }),*]
    };
}

/// In order; the number of the last one is the schema's version.
const MIGRATIONS: &[Migration] = migrations![
    "0001_tables",
    "0002_append",
    "0003_claim",
    "0004_operate",
    "0005_parked",
    "0006_claim",
    "0007_registry",
    "0008_housekeeping",
    "0009_append",
    "0010_requeue",
    "0011_token",
    "0012_sent_message",
    "0013_lifecycle",
    "0014_step",
    "0015_archive",
    "0016_look_behind",
    "0017_recent",
    "0018_place",
    "0019_newest",
    "0020_counted",
    "0021_fewer_steps",
];

/// The schema version of this binary.
pub fn latest() -> i32 {
    i32::try_from(MIGRATIONS.len()).expect("a handful of migrations")
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub from: i32,
    pub to: i32,
    pub applied: Vec<&'static str>,
}

#[derive(Debug, Error)]
pub enum MigrateError {
    #[error(
        "the server is PostgreSQL {found} and Lanekeeper needs {OLDEST_POSTGRES} or newer: nothing was changed"
    )]
    ServerTooOld { found: String },
    #[error(
        "the schema has version {found} and this binary knows {known}: a newer release has migrated it. \
         Nothing was changed; run that release or a newer one"
    )]
    SchemaTooNew { found: i32, known: i32 },
    #[error("migration {name} failed and was rolled back; those before it stand")]
    Failed {
        name: &'static str,
        #[source]
        source: tokio_postgres::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Applies what is missing. The connection must be direct: the lock is a session's.
///
/// # Errors
/// Each migration is a transaction of its own; what was applied before the failing one stands, and
/// the next call goes on from there.
pub async fn migrate(client: &mut Client) -> Result<Report, MigrateError> {
    migrate_to(client, latest()).await
}

/// Like [`migrate`], up to a version: what an upgrade test starts from.
///
/// # Errors
/// As [`migrate`].
pub async fn migrate_to(client: &mut Client, target: i32) -> Result<Report, MigrateError> {
    check_server(client).await?;
    client
        .execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK])
        .await
        .map_err(StoreError::on("waiting for the migration lock"))?;
    let result = apply_missing(client, target).await;
    // A failure here means that the connection is gone, and the lock with it.
    let unlocked = client
        .execute("SELECT pg_advisory_unlock($1)", &[&MIGRATION_LOCK])
        .await;
    let report = result?;
    unlocked.map_err(StoreError::on("releasing the migration lock"))?;
    Ok(report)
}

async fn check_server(client: &Client) -> Result<(), MigrateError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int",
            &[],
        )
        .await
        .map_err(StoreError::on("asking for the server's version"))?;
    if row.get::<_, i32>(1) < OLDEST_POSTGRES * 10_000 {
        return Err(MigrateError::ServerTooOld { found: row.get(0) });
    }
    Ok(())
}

async fn apply_missing(client: &mut Client, target: i32) -> Result<Report, MigrateError> {
    let from = version(client).await?.unwrap_or(0);
    if from > latest() {
        return Err(MigrateError::SchemaTooNew {
            found: from,
            known: latest(),
        });
    }
    let mut applied = Vec::new();
    for (number, migration) in (1..).zip(MIGRATIONS) {
        if number <= from || number > target {
            continue;
        }
        apply(client, number, migration)
            .await
            .map_err(|source| MigrateError::Failed {
                name: migration.name,
                source,
            })?;
        applied.push(migration.name);
    }
    Ok(Report {
        from,
        to: from.max(target),
        applied,
    })
}

async fn apply(
    client: &mut Client,
    number: i32,
    migration: &Migration,
) -> Result<(), tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(migration.sql).await?;
    transaction
        .execute(
            "INSERT INTO lanekeeper.schema_version (version, name) VALUES ($1, $2)",
            &[&number, &migration.name],
        )
        .await?;
    transaction.commit().await
}

/// The schema's version; `None` where nothing was ever migrated. Statements are unnamed: producers
/// ask through transaction poolers.
///
/// # Errors
/// Where the catalogue cannot be read.
pub async fn version(client: &Client) -> Result<Option<i32>, StoreError> {
    let operation = "reading the schema's version";
    let present: bool = client
        .query_typed_one(
            "SELECT to_regclass('lanekeeper.schema_version') IS NOT NULL",
            &[],
        )
        .await
        .map_err(StoreError::on(operation))?
        .get(0);
    if !present {
        return Ok(None);
    }
    let row = client
        .query_typed_one("SELECT max(version) FROM lanekeeper.schema_version", &[])
        .await
        .map_err(StoreError::on(operation))?;
    Ok(row.get(0))
}
