//! The worker's share of what must be done by somebody: retention, and what applies left to finish.
//!
//! Any number of workers may be at it; the advisory locks in the SQL functions make it one at a time.
//! Work is done in short turns, and a round has a bound: what is left waits for the next one.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::housekeeping::{self, Forgotten, Keep};

use super::archive;
use super::shared::Shared;

/// Turns in one round; a round comes every ten minutes, and at the poll floor while a change is
/// unfinished.
const TURNS: usize = 200;
/// Records of each kind that one turn forgets.
const RECORDS: i32 = 5_000;
/// Sessions that one turn walks; those that lack lanes are locked against appends until its end.
const SESSIONS: i32 = 200;

/// How long a round of retention waits for a lull: a worker that starts has a backlog to deliver first.
const LULL_WITHIN: Duration = Duration::from_secs(60);

/// One round of retention. A step that fails does not keep the others from theirs. While one waits or is at work,
/// another is not begun: each connection that is opened for control begins one.
pub async fn keep_house(shared: Arc<Shared>) {
    let Ok(_round) = shared.housekeeping.try_lock() else {
        return;
    };
    tokio::select! {
        () = shared.stopping.cancelled() => return,
        () = shared.idle.lull() => {}
        () = tokio::time::sleep(LULL_WITHIN) => {}
    }
    // A long day keeps no connection of the pool, and no other round from what comes after it.
    archive::run(&shared).await;
    let Some(client) = connection(&shared).await else {
        return;
    };
    told("partitions and keys", keep_log(&client, &shared).await);
    told("recent days", move_recent(&client).await);
    told("records", forget_records(&client, &shared).await);
    told(
        "messages that were sent",
        forget_sent_messages(&client, &shared).await,
    );
    told("silent sessions", rest_sessions(&client, &shared).await);
}

fn told(step: &'static str, done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            step,
            "housekeeping failed; it is tried again"
        );
    }
}

async fn keep_log(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    let settings = &shared.settings;
    for _ in 0..TURNS {
        let report = housekeeping::run(
            client,
            settings.retention_days,
            settings.dedupe_days,
            settings.archive_dir.is_some(),
        )
        .await?;
        if !report.is_empty() {
            tracing::info!(?report, "housekeeping");
        }
        if !report.more() || shared.stopping.is_cancelled() {
            break;
        }
    }
    Ok(())
}

async fn move_recent(client: &Object) -> Result<(), StoreError> {
    if housekeeping::move_recent(client).await? {
        tracing::info!("the recent part of the log begins yesterday");
    }
    Ok(())
}

async fn forget_records(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    let settings = &shared.settings;
    let keep = Keep {
        outcome_days: settings.outcome_days,
        history_days: settings.history_days,
        dead_letter_days: settings.dead_letter_days,
    };
    let mut forgotten = Forgotten::default();
    for _ in 0..TURNS {
        let turn = housekeeping::forget_records(client, keep, RECORDS).await?;
        forgotten += turn;
        if !turn.reached(RECORDS) || shared.stopping.is_cancelled() {
            break;
        }
    }
    if forgotten != Forgotten::default() {
        tracing::info!(?forgotten, "old records forgotten");
    }
    Ok(())
}

async fn forget_sent_messages(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    let mut forgotten = 0;
    for _ in 0..TURNS {
        let days = shared.settings.outcome_days;
        let turn = housekeeping::forget_sent_messages(client, days, RECORDS).await?;
        forgotten += turn;
        if turn < i64::from(RECORDS) || shared.stopping.is_cancelled() {
            break;
        }
    }
    if forgotten > 0 {
        tracing::info!(forgotten, "messages that were sent long ago forgotten");
    }
    Ok(())
}

async fn rest_sessions(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    let mut rested = 0;
    for _ in 0..TURNS {
        let turn =
            housekeeping::rest_sessions(client, shared.settings.session_days, SESSIONS).await?;
        rested += turn.rested;
        if !turn.more || shared.stopping.is_cancelled() {
            break;
        }
    }
    if rested > 0 {
        tracing::info!(rested, "lanes of silent sessions removed");
    }
    Ok(())
}

/// One round of what applies left to finish.
pub async fn finish_changes(shared: Arc<Shared>) {
    let Some(client) = connection(&shared).await else {
        return;
    };
    for _ in 0..TURNS {
        match housekeeping::finish_changes(&client, SESSIONS).await {
            Ok(turn) if turn.more && !shared.stopping.is_cancelled() => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a change of subscriptions could not be finished; it is tried again"
                );
                return;
            }
        }
    }
}

async fn connection(shared: &Shared) -> Option<Object> {
    shared
        .pool
        .get()
        .await
        .inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "no connection for housekeeping"
            );
        })
        .ok()
}
