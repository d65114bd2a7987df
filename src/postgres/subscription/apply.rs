//! Brings the subscriptions to what a file asks for, in one transaction.
//!
//! One `apply` runs at a time: the second waits for the first's commit and then compares with what
//! that left. A dry run is the same comparison in a read-only transaction.
//!
//! Two changes leave lanes that have events to deliver and no ready entry (I13): a subscription
//! that comes back after its removal, and one whose filter changes. Their lanes are woken in the
//! same transaction. An append that still sees the old state holds its session's append lock until
//! it commits, so that the holder of a woken lane cannot go idle before that.

use std::collections::BTreeMap;

use lanekeeper_core::subscription::{
    Change, ChangeKind, Current, Events, Existing, FileError, Plan, Retry, StreamDefinition,
};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, IsolationLevel, Row, Transaction};

use crate::StoreError;

use crate::source;

use super::write::{execute, put_stream};
use super::{load, row};

/// Bounds the wait for another `apply`.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '30s'";

pub const LOCK: &str = include_str!("../sql/apply_lock.sql");
pub const STREAM_LIST: &str = include_str!("../sql/stream_list.sql");
pub const LACKS_LANES: &str = include_str!("../sql/subscription_lacks_lanes.sql");
pub const ADD_LANES: &str = include_str!("../sql/add_lanes.sql");

/// Why nothing was applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("another apply is under way and did not finish within 30 s; nothing was changed")]
    Busy(#[source] tokio_postgres::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was done, or what a dry run would have done.
#[derive(Clone, Debug)]
pub struct Applied {
    pub changes: Vec<Change>,
    /// In force, not in the file, and left alone.
    pub unlisted: Vec<String>,
    /// Subscriptions that start at the earliest event and lack lanes: loop [`add_lanes`] over
    /// each. Empty after a dry run.
    pub backfills: Vec<Backfill>,
}

/// A subscription whose lanes are still to be created for sessions that existed before it.
#[derive(Clone, Debug)]
pub struct Backfill {
    pub subscription_id: i32,
    pub name: String,
}

/// Has `plan` compare what is in force with what is asked for and, unless it is a dry run, applies it.
///
/// # Errors
/// Nothing was changed, unless the connection broke during the commit: then apply again, which
/// does what is missing.
pub async fn apply(
    client: &mut Client,
    dry_run: bool,
    plan: impl FnOnce(&Current) -> Result<Plan, FileError>,
) -> Result<Applied, ApplyError> {
    // Read committed: what is read after the lock must include what its last holder committed.
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(dry_run)
        .start()
        .await
        .map_err(StoreError::on("starting the apply"))?;
    lock(&transaction).await?;

    let (current, mut stream_ids) = current(&transaction).await?;
    let plan = plan(&current)?;
    let mut backfills = Vec::new();
    if !dry_run {
        for step in plan
            .streams
            .iter()
            .filter(|step| step.kind != ChangeKind::Unchanged)
        {
            let id = put_stream(&transaction, step).await?;
            stream_ids.insert(step.name.clone(), id);
        }
        for step in &plan.subscriptions {
            execute(&transaction, step, &stream_ids).await?;
        }
        for step in &plan.sources {
            source::execute(&transaction, step).await?;
        }
        backfills = lacking_lanes(&transaction, &plan).await?;
        if !plan.is_empty() {
            transaction
                .batch_execute("NOTIFY lanekeeper")
                .await
                .map_err(StoreError::on("notifying the workers"))?;
        }
    }
    transaction
        .commit()
        .await
        .map_err(StoreError::on("committing the apply"))?;
    Ok(Applied {
        changes: plan.changes(),
        unlisted: plan.unlisted,
        backfills,
    })
}

/// Adds the lanes of up to `limit` sessions after `after_session`. Returns the last session
/// handled; `None` when all are done.
///
/// # Errors
/// Nothing of this call was done; it can be repeated.
pub async fn add_lanes(
    client: &Client,
    subscription_id: i32,
    after_session: i64,
    limit: i32,
) -> Result<Option<i64>, StoreError> {
    let operation = "adding lanes to sessions that exist already";
    let row = client
        .query_one(ADD_LANES, &[&subscription_id, &after_session, &limit])
        .await
        .map_err(StoreError::on(operation))?;
    row.try_get("last_session")
        .map_err(StoreError::on(operation))
}

pub(super) async fn lock(transaction: &Transaction<'_>) -> Result<(), ApplyError> {
    let operation = "waiting for another apply";
    transaction
        .batch_execute(LOCK_TIMEOUT)
        .await
        .map_err(StoreError::on(operation))?;
    match transaction.execute(LOCK, &[]).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            Err(ApplyError::Busy(error))
        }
        Err(error) => Err(StoreError::on(operation)(error).into()),
    }
}

pub(super) async fn current(
    transaction: &Transaction<'_>,
) -> Result<(Current, BTreeMap<String, i32>), StoreError> {
    let operation = "loading the streams";
    let mut current = Current::default();
    let mut ids = BTreeMap::new();
    let rows = transaction
        .query(STREAM_LIST, &[])
        .await
        .map_err(StoreError::on(operation))?;
    for row in &rows {
        let (name, id, definition) = stream_from_row(row).map_err(StoreError::on(operation))?;
        ids.insert(name.clone(), id);
        current.streams.insert(name, definition);
    }
    let sources = source::list(transaction).await?;
    let definitions = sources.into_iter().map(|it| (it.name, it.definition));
    current.sources = definitions.collect();
    for subscription in load(transaction).await? {
        let (id, removed) = (subscription.id, subscription.removed);
        let name = subscription.name.as_ref().to_owned();
        let existing = Existing {
            id,
            definition: subscription.definition(),
        };
        if removed {
            let stream = existing.definition.stream.clone();
            current.removed.insert((name, stream), existing);
        } else {
            current.live.insert(name, existing);
        }
    }
    Ok((current, ids))
}

fn stream_from_row(row: &Row) -> Result<(String, i32, StreamDefinition), tokio_postgres::Error> {
    let definition = StreamDefinition {
        max_payload_bytes: row::count(row, "max_payload_bytes")?,
        fan_out: Events::from_column(row.try_get("fan_out")?),
        critical: Events::from_column(row.try_get("critical")?),
        retry: Retry {
            schedule: row::schedule(row)?,
            max_attempts: row::count(row, "max_attempts")?,
            on_exhausted: row::on_exhausted(row)?,
        },
        pending: row::pending(row)?,
        delivery: row::delivery(row)?,
        acknowledge: row::acknowledge(row)?,
        keep_events: row.try_get("keep_events")?,
        terminal: row
            .try_get::<_, Option<Vec<String>>>("terminal")?
            .unwrap_or_default(),
        a2a: row::a2a(row)?,
        schemas: row::schemas(row)?,
    };
    Ok((row.try_get("name")?, row.try_get("stream_id")?, definition))
}

/// Looks at unchanged subscriptions too: an earlier apply may have ended before its backfill did.
async fn lacking_lanes(
    transaction: &Transaction<'_>,
    plan: &Plan,
) -> Result<Vec<Backfill>, StoreError> {
    let operation = "looking for sessions without a lane";
    let names: Vec<&str> = plan
        .subscriptions
        .iter()
        .filter(|step| step.kind != ChangeKind::Removed)
        .map(|step| step.name.as_str())
        .collect();
    let rows = transaction
        .query(LACKS_LANES, &[&names])
        .await
        .map_err(StoreError::on(operation))?;
    let backfill = |row: &Row| {
        let (subscription_id, name) = (row.try_get("subscription_id")?, row.try_get("name")?);
        Ok(Backfill {
            subscription_id,
            name,
        })
    };
    rows.iter()
        .map(backfill)
        .collect::<Result<_, _>>()
        .map_err(StoreError::on(operation))
}
