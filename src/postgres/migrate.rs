//! Brings the schema of a database to this release's, and lists the differences.
//!
//! The schema is two kinds of files, embedded by build.rs. Numbered migrations change tables and are applied once.
//! Functions and views have one file each and are applied again whenever it changes, in the order in which they need
//! each other; those that a release no longer has are dropped. migrations/README.md has the rules.
//!
//! One run is one transaction, under one session advisory lock on a direct connection: any number of processes may call
//! this at once, and the others wait and then find nothing to do.
//!
//! | what happens | what becomes of it |
//! |---|---|
//! | the process or the server dies in the middle | the transaction is rolled back, the lock is free; the next run begins anew |
//! | a transaction of somebody else keeps a table locked | the run is rolled back after [`LOCK_TIMEOUT`] and tried again, for half a minute |
//! | workers and producers go on meanwhile | replacing a function locks no table; they wait for a table's lock no longer than that |
//! | an older release migrates a newer schema | refused, nothing changed |
//! | an older release migrates a schema of its own version with a newer release's functions | refused, unless it is asked to put its own back |
//! | a worker of the release before starts on the newer schema | it may: each migration says which workers may use the schema |
//! | somebody altered a function in the database | it is applied again |

pub mod difference;
mod lock;
mod release;
pub mod schema;
mod version;

use std::collections::BTreeSet;
use std::time::Duration;

use thiserror::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, GenericClient, Transaction};

use self::difference::{Difference, Part, State};
use self::schema::{Kind, Release, Schema};
pub use self::version::{Unfit, Version, version};
use super::StoreError;

/// The oldest major version whose SQL the schema is written for.
pub const OLDEST_POSTGRES: i32 = 14;

/// For how long a run waits for a lock on a table: producers queue behind a request that waits.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);
/// Runs before a lock that is not granted is an error.
const TRIES: u32 = 100;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(200);

/// The schema version of this program.
pub fn latest() -> i32 {
    Schema::of_this_release().version()
}

/// Whether a run may replace a newer release's functions by older ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Any,
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub from: i32,
    pub to: i32,
    /// Numbered migrations.
    pub applied: Vec<String>,
    /// Functions and views that were missing or otherwise.
    pub replaced: Vec<String>,
    /// Functions and views that this release no longer has.
    pub dropped: Vec<String>,
}

impl Report {
    pub fn changed_nothing(&self) -> bool {
        self.applied.is_empty() && self.replaced.is_empty() && self.dropped.is_empty()
    }
}

#[derive(Debug, Error)]
pub enum MigrateError {
    #[error(
        "the server is PostgreSQL {found} and Lanekeeper needs {OLDEST_POSTGRES} or newer: nothing was changed"
    )]
    ServerTooOld { found: String },
    #[error(
        "the schema has version {found} and this program knows {known}: a newer release has migrated it. \
         Nothing was changed; run that release or a newer one"
    )]
    SchemaTooNew { found: i32, known: i32 },
    #[error(
        "release {found} migrated this schema last, and {own} is older: it would put its own functions back. Nothing was \
         changed; run `lanekeeper migrate` of release {found} or a newer one, or with --put-back if the way back is what \
         you want"
    )]
    NewerFunctions { found: Release, own: Release },
    #[error(
        "migration {name} is not the one that this database was made with: released migrations are never changed. \
         Nothing was changed"
    )]
    Rewritten { name: String },
    #[error("{name} failed: nothing was changed")]
    Failed {
        name: String,
        #[source]
        source: tokio_postgres::Error,
    },
    #[error(
        "{name} waited for a lock for half a minute, in short turns: a transaction that uses the table stays open. \
         Nothing was changed; run this again when it is over"
    )]
    Locked {
        name: String,
        #[source]
        source: tokio_postgres::Error,
    },
    #[error(
        "function {name} would have two signatures: one whose parameters change needs a new name. Nothing was changed"
    )]
    TwoSignatures { name: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Applies what differs. The connection must be direct: the lock is a session's.
///
/// # Errors
/// Nothing was changed then, unless the answer to the COMMIT was lost.
pub async fn migrate(client: &mut Client) -> Result<Report, MigrateError> {
    migrate_to(client, Schema::of_this_release()).await
}

/// Like [`migrate`], also where a newer release of the same schema version was there: its functions and views are replaced
/// by this release's.
///
/// # Errors
/// As [`migrate`].
pub async fn put_back(client: &mut Client) -> Result<Report, MigrateError> {
    put_back_to(client, Schema::of_this_release()).await
}

/// Like [`put_back`], to a schema of the caller's.
///
/// # Errors
/// As [`migrate`].
pub async fn put_back_to(client: &mut Client, schema: &Schema) -> Result<Report, MigrateError> {
    run_locked(client, schema, Direction::Any).await
}

/// Like [`migrate`], to a schema of the caller's: what upgrade tests do.
///
/// # Errors
/// As [`migrate`].
pub async fn migrate_to(client: &mut Client, schema: &Schema) -> Result<Report, MigrateError> {
    run_locked(client, schema, Direction::Forward).await
}

async fn run_locked(
    client: &mut Client,
    schema: &Schema,
    direction: Direction,
) -> Result<Report, MigrateError> {
    check_server(client).await?;
    let key = lock::lock(client).await?;
    let result = try_until_unlocked(client, schema, direction).await;
    // A failure here means that the connection is gone, and the lock with it.
    let unlocked = lock::unlock(client, key).await;
    let report = result?;
    unlocked?;
    Ok(report)
}

/// What the database has otherwise than this program wants it. Writes nothing.
///
/// # Errors
/// Where a newer release migrated it: this one does not know what that wants.
pub async fn check(client: &mut Client) -> Result<Vec<Difference>, MigrateError> {
    check_against(client, Schema::of_this_release()).await
}

/// Like [`check`], against a schema of the caller's.
///
/// # Errors
/// As [`check`].
pub async fn check_against(
    client: &mut Client,
    schema: &Schema,
) -> Result<Vec<Difference>, MigrateError> {
    check_server(client).await?;
    let transaction = client
        .build_transaction()
        .read_only(true)
        .start()
        .await
        .map_err(StoreError::on("beginning a transaction"))?;
    pin(&transaction).await?;
    if known_version(&transaction, schema).await?.is_none() {
        let missing = |migration: &schema::Numbered| Difference {
            part: Part::Migration,
            name: migration.name.clone(),
            state: State::Missing,
        };
        return Ok(schema.numbered().iter().map(missing).collect());
    }
    let mut found = difference::of_numbered(&transaction, schema).await?;
    found.extend(difference::of_objects(&transaction, schema).await?);
    Ok(found)
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

async fn try_until_unlocked(
    client: &mut Client,
    schema: &Schema,
    direction: Direction,
) -> Result<Report, MigrateError> {
    for _ in 1..TRIES {
        match run(client, schema, direction).await {
            Err(MigrateError::Locked { .. }) => tokio::time::sleep(PAUSE).await,
            result => return result,
        }
    }
    run(client, schema, direction).await
}

async fn run(
    client: &mut Client,
    schema: &Schema,
    direction: Direction,
) -> Result<Report, MigrateError> {
    let transaction = client
        .transaction()
        .await
        .map_err(StoreError::on("beginning a transaction"))?;
    pin(&transaction).await?;
    let timeout = format!("SET LOCAL lock_timeout = {}", LOCK_TIMEOUT.as_millis());
    transaction
        .batch_execute(&timeout)
        .await
        .map_err(StoreError::on("setting a lock timeout"))?;

    let from = known_version(&transaction, schema).await?;
    if from.is_some() && direction == Direction::Forward {
        release::refuse_older(&transaction, schema).await?;
    }
    let applied = apply_numbered(&transaction, schema, from).await?;
    let differing = difference::of_objects(&transaction, schema).await?;
    let replaced = replace(&transaction, schema, &differing).await?;
    let dropped = drop_obsolete(&transaction, &differing).await?;
    release::record(&transaction, schema).await?;
    if from.is_none() {
        for statement in [
            "SELECT lanekeeper.create_event_partitions()",
            "SELECT lanekeeper.move_recent()",
        ] {
            execute(&transaction, statement, statement).await?;
        }
    }
    transaction
        .commit()
        .await
        .map_err(StoreError::on("committing the migration"))?;
    Ok(Report {
        from: from.unwrap_or(0),
        to: schema.version(),
        applied,
        replaced,
        dropped,
    })
}

/// Definitions are read, and printed, by names with their schema.
async fn pin(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    transaction
        .batch_execute(
            "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL check_function_bodies = on",
        )
        .await
        .map_err(StoreError::on("setting the search path"))
}

/// `None` where nothing was ever migrated.
async fn known_version(
    client: &impl GenericClient,
    schema: &Schema,
) -> Result<Option<i32>, MigrateError> {
    let found = version(client).await?.map(|version| version.number);
    match found {
        Some(found) if found > schema.version() => Err(MigrateError::SchemaTooNew {
            found,
            known: schema.version(),
        }),
        found => Ok(found),
    }
}

async fn apply_numbered(
    transaction: &Transaction<'_>,
    schema: &Schema,
    from: Option<i32>,
) -> Result<Vec<String>, MigrateError> {
    if from.is_some() {
        let differing = difference::of_numbered(transaction, schema).await?;
        if let Some(changed) = differing.into_iter().find(|it| it.state == State::Changed) {
            return Err(MigrateError::Rewritten { name: changed.name });
        }
    }
    let mut applied = Vec::new();
    for (number, migration) in (1..).zip(schema.numbered()) {
        if number <= from.unwrap_or(0) {
            continue;
        }
        execute(transaction, &migration.name, &migration.sql).await?;
        transaction
            .execute(
                "INSERT INTO lanekeeper.schema_version (version, name, hash, oldest_worker) VALUES ($1, $2, $3, $4)",
                &[&number, &migration.name, &migration.hash, &migration.oldest_worker],
            )
            .await
            .map_err(StoreError::on("recording a migration"))?;
        applied.push(migration.name.clone());
    }
    Ok(applied)
}

/// Applies the functions and views that are missing or otherwise, and opens none of them to PUBLIC.
async fn replace(
    transaction: &Transaction<'_>,
    schema: &Schema,
    differing: &[Difference],
) -> Result<Vec<String>, MigrateError> {
    let wanted: BTreeSet<(Part, &str)> = differing
        .iter()
        .filter(|it| matches!(it.state, State::Missing | State::Changed | State::Altered))
        .map(|it| (it.part, &*it.name))
        .collect();
    let mut applied = BTreeSet::new();
    for object in schema.objects() {
        if !wanted.contains(&(object.kind.into(), &*object.name)) {
            continue;
        }
        execute(transaction, &object.name, &object.sql).await?;
        if object.kind == Kind::Function {
            only_signature(transaction, &object.name).await?;
            let closed = format!(
                "REVOKE ALL ON FUNCTION lanekeeper.{} FROM PUBLIC",
                object.name
            );
            execute(transaction, &object.name, &closed).await?;
        }
        applied.insert((object.kind, &*object.name));
    }
    if !applied.is_empty() {
        difference::record(transaction, schema, &applied).await?;
    }
    Ok(applied
        .into_iter()
        .map(|(_, name)| name.to_owned())
        .collect())
}

/// CREATE OR REPLACE makes a second function where the parameters are others.
async fn only_signature(transaction: &Transaction<'_>, name: &str) -> Result<(), MigrateError> {
    let row = transaction
        .query_one(
            "SELECT count(*) FROM pg_proc WHERE pronamespace = 'lanekeeper'::regnamespace AND proname = $1",
            &[&name],
        )
        .await
        .map_err(StoreError::on("reading a function's signatures"))?;
    match row.get::<_, i64>(0) {
        1 => Ok(()),
        _ => Err(MigrateError::TwoSignatures {
            name: name.to_owned(),
        }),
    }
}

/// Views first: they may use functions.
async fn drop_obsolete(
    transaction: &Transaction<'_>,
    differing: &[Difference],
) -> Result<Vec<String>, MigrateError> {
    let mut dropped = Vec::new();
    for (part, word) in [(Part::View, "VIEW"), (Part::Function, "FUNCTION")] {
        let names: Vec<String> = differing
            .iter()
            .filter(|it| it.part == part && it.state == State::Obsolete)
            .map(|it| it.name.clone())
            .collect();
        if names.is_empty() {
            continue;
        }
        let listed: Vec<String> = names.iter().map(|it| format!("lanekeeper.{it}")).collect();
        // All at once: they may need each other.
        let statement = format!("DROP {word} IF EXISTS {}", listed.join(", "));
        execute(
            transaction,
            &format!("dropping {}", names.join(", ")),
            &statement,
        )
        .await?;
        transaction
            .execute(
                "DELETE FROM lanekeeper.schema_object WHERE name = ANY ($1)",
                &[&names],
            )
            .await
            .map_err(StoreError::on("forgetting what was dropped"))?;
        dropped.extend(names);
    }
    Ok(dropped)
}

async fn execute(transaction: &Transaction<'_>, name: &str, sql: &str) -> Result<(), MigrateError> {
    transaction.batch_execute(sql).await.map_err(|source| {
        let name = name.to_owned();
        match source.code() {
            Some(code)
                if *code == SqlState::LOCK_NOT_AVAILABLE
                    || *code == SqlState::T_R_DEADLOCK_DETECTED =>
            {
                MigrateError::Locked { name, source }
            }
            _ => MigrateError::Failed { name, source },
        }
    })
}
