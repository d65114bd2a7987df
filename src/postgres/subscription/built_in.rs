//! Adds or removes a built-in subscription, as `apply` does with those of a file: under the same lock, with a recorded
//! version for each change, and waking the lanes that had events meanwhile.
//!
//! Each worker does so when it starts, as its configuration says. So the worker that started last decides.

use lanekeeper_core::subscription::built_in::{self, NameTaken};
use lanekeeper_core::subscription::{ChangeKind, Current, Definition, Retry, Step};
use tokio_postgres::{Client, IsolationLevel};

use crate::StoreError;

use super::apply::{self, ApplyError};
use super::write::execute;

const FIND: &str = include_str!("../sql/subscription_find.sql");

/// Why a built-in subscription is not as it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum BuiltInError {
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub change: ChangeKind,
    /// Of the subscription that is in force now.
    pub subscription_id: Option<i32>,
}

/// Puts a built-in subscription in force, with the retries of its stream. Sessions that exist already get their lanes with their
/// next event, or by [`add_lanes`](super::add_lanes).
///
/// # Errors
/// Nothing was changed.
pub async fn install(
    client: &mut Client,
    name: &str,
    stream: &str,
    definition: impl Fn(Retry) -> Definition,
) -> Result<Done, BuiltInError> {
    settle(client, name, |current| {
        let stream = current.streams.get(stream).cloned().unwrap_or_default();
        built_in::install(current, name, definition(stream.retry))
    })
    .await
}

/// Takes a built-in subscription out of force; what it did stays on record.
///
/// # Errors
/// Nothing was changed.
pub async fn remove(client: &mut Client, name: &str) -> Result<Done, BuiltInError> {
    settle(client, name, |current| Ok(built_in::remove(current, name))).await
}

async fn settle(
    client: &mut Client,
    name: &str,
    step: impl Fn(&Current) -> Result<Option<Step<Definition>>, NameTaken>,
) -> Result<Done, BuiltInError> {
    let mut done = Done {
        change: ChangeKind::Unchanged,
        subscription_id: None,
    };
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await
        .map_err(StoreError::on("looking for a built-in subscription"))?;
    // Without the lock first: most starts find everything as it should be, and wait for no `apply`.
    let (current, _) = apply::current(&transaction).await?;
    if step(&current)?.is_some() {
        apply::lock(&transaction).await?;
        let (current, stream_ids) = apply::current(&transaction).await?;
        if let Some(step) = step(&current)? {
            execute(&transaction, &step, &stream_ids).await?;
            transaction
                .batch_execute("NOTIFY lanekeeper")
                .await
                .map_err(StoreError::on("notifying the workers"))?;
            done.change = step.kind;
        }
    }
    done.subscription_id = transaction
        .query_opt(FIND, &[&name])
        .await
        .and_then(|row| row.map(|row| row.try_get("subscription_id")).transpose())
        .map_err(StoreError::on("looking for a built-in subscription"))?;
    transaction
        .commit()
        .await
        .map_err(StoreError::on("committing a built-in subscription"))?;
    Ok(done)
}
