//! Rounds of maintenance: retention, and finishing what an `apply` began.
//!
//! Any number of workers may run a round; the advisory locks in the SQL functions let one work at a time. Work is
//! done in short turns, and a round has a limit: what is left waits for the next one.
//!
//! # Changes of subscriptions
//!
//! An `apply` changes what is to be delivered while producers append. It inserts a ready entry for every lane that
//! it sees, and lanes for every session. What it cannot see is what open transactions have written: a new session,
//! or a lane in it, made under the previous state. Such a session would be reached with its next event only. And a
//! transaction at REPEATABLE READ may go on appending under that state for as long as it lives.
//!
//! So an apply leaves a row in `stream_change`, and workers finish it (`finish_changes`, under a lock, checked at
//! the poll floor):
//!
//! ```text
//! snapshots ── no snapshot from before is held ──► transactions ── every id from before is finished ──► last
//!    │   ▲                                                                                               │
//!    └───┴─ passes in between, at growing intervals                     the pass that ends the change deletes the row
//! ```
//!
//! - A transaction gets its id with its first write, and may have read before that. So ids alone are no barrier:
//!   first every session's `backend_xmin` must have passed the apply's id. A transaction that wrote by an older
//!   snapshot had an id by then; so the barrier is drawn anew, and every id below it must be finished, prepared
//!   transactions included.
//! - A pass goes over the stream's sessions by id, 200 at a time. It adds missing lanes, and inserts a ready entry
//!   for each lane that has something to deliver. It waits for nobody: a session whose append lock a producer holds
//!   is passed over and visited once more. Deliveries come first: a turn waits for an idle moment, or takes a
//!   twentieth of one connection's time.
//! - A dump, or a forgotten prepared transaction, may hold up a barrier for ever. So there are passes before the
//!   last one: after a second, and whenever the change is twice as old, up to once an hour.
//! - `lanekeeper apply` adds lanes by the same function, 200 sessions at a time. What it cannot finish, because it
//!   ends or because of a producer, is left to the pass.
//!
//! Not every change needs this. A paused subscription gets its ready entries all the while. A parked lane is
//! visible to those who park and unpark it, and its session's append lock orders the two. Which types are critical
//! is judged at delivery; `fan_out` is resolved by the apply, into filters. A removal takes nothing that is not
//! restored when the subscription returns, which is a change again.
//!
//! # Retention
//!
//! - **Days** of the log past `retention.days` are dropped whole, oldest first, if no lane needs them. That is
//!   checked twice: the second time with the day locked against late commits, and with no `apply` under way. The
//!   last seqs of the day's sessions are committed first, and the day is dropped when every snapshot sees them: a
//!   producer at REPEATABLE READ would otherwise see neither events nor last seq, and begin at 1.
//! - **Archive.** If it is configured, a day is dropped only if a file is recorded with as many events as the day
//!   has, counted under the lock of the second check. Whatever is lost on the way leaves a day that is archived
//!   again. The day is read in pages without one snapshot over all of them, behind which hot rows would accumulate
//!   dead versions; events that are committed meanwhile are found by the count. No file is ever overwritten.
//! - **Restored days** (`lanekeeper archive restore`) are dropped after their time, once no replay needs them.
//! - **Outcomes, histories and resolved dead letters** are deleted after retention periods of their own. An outcome
//!   stays as long as its event, which would otherwise count as delivered. Dead letters that wait for an operator
//!   stay.
//! - **Dedupe keys and receivers' keys** are deleted by age.
//! - **Dormant sessions**, of which nothing but lanes is left for `retention.session_days`, lose their lanes. Name
//!   and last seq stay, since no two events may have one number; so a session costs two short rows for ever. An
//!   append that finds `lanes_version` -1 or -2 adds what is missing.
//!
//! Removing lanes is safe in two steps. The first marks the session (-1). The second waits until every snapshot
//! sees the mark, takes the append lock and the lane locks, checks again, removes lanes, progress and spare
//! entries, and writes the session's row (-2). An append with a snapshot from between the two must write that row
//! too, and is refused with 40001. One that waited for the append lock has read the mark, and looks for lanes under
//! the lock.
//!
//! **Tomorrow's partition** is created by a worker from an hour before midnight on, and a producer creates a missing
//! one itself. Every append, fetch and settlement looks into each partition from its lane's day on, so none is
//! created earlier than needed; and maintenance that stopped must not stop producers. Created after midnight it would
//! block all producers until its creator's transaction ends. So from 22:00 UTC on an append that reaches a session for
//! the first time that day, and every sixty-fourth of a session, creates tomorrow's, and never waits for it. The day of a session's events never goes back,
//! so that the newest seq is in the newest day.
//!
//! # The recent partitions
//!
//! A plan on `event` contains all its partitions. Which are read is decided at execution, but all are locked each
//! time, and a new connection takes a third of a second to plan a year of them. So there are two views:
//! `recent_event`, the log from yesterday on with that day as a constant, and `recent_since`, that day. The planner
//! excludes all other partitions. Maintenance replaces both after midnight (`move_recent`) in one transaction,
//! `recent_since` first. It asks for the locks in turns of 50 ms; if open transactions that have appended prevent
//! it each time, plans contain one more day until a later round succeeds.
//!
//! A reader of `recent_event` must not need older events, and must know that by the same state of the views. Both
//! are locked by their reader until its transaction ends, and can only be replaced together. So a function that
//! reads `recent_since` and then `recent_event` in one transaction sees one state, in whichever order the locks
//! come.
//!
//! - An append looks for the session's newest event of today or later; if there is none, `newest_event` finds it.
//! - A settlement looks for newer events from each lane's day on. If some lane's day is before the recent
//!   partitions, it asks the whole log as well.
//! - A fetch calls `require_recent`: see claiming.
//!
//! Two columns keep sessions of the past from needing old partitions. `session.newest_day` is the day of a
//! session's newest event, so `newest_event` reads one partition and not all; the first append of a day writes it
//! together with its event. `ready.day` is for a lane that was idle when its ready entry was made: everything
//! unsettled is of that day or later, however old its cursor is. A claim uses the later of the two.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use lanekeeper_postgres::maintenance::{self, Forgotten, Keep, Pending};
use lanekeeper_postgres::{StoreError, closing, host_route, restore};
use tokio::time::{Instant, sleep};

use crate::maintenance::archive;
use crate::shared::Shared;

/// The most turns in one round. A round comes every ten minutes, and at the poll floor while a change is unfinished.
const TURNS: usize = 200;
/// Records of each kind that one turn deletes.
const RECORDS: i32 = 5_000;
/// Sessions that one turn visits. Those that lack lanes are locked against appends until the turn ends.
const SESSIONS: i32 = 200;

/// How long a retention round waits for an idle moment: a worker that starts has a backlog to deliver first.
const IDLE_MOMENT_WITHIN: Duration = Duration::from_secs(60);

/// Beside deliveries, turns of finishing changes take at most this part of one connection's time, unless the pause
/// would exceed `LONGEST_PAUSE`.
const TIME_SHARE: u32 = 20;
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs one round of retention. A step that fails does not stop the others. While a round waits or runs, no other
/// begins: each new control connection starts one.
pub async fn run(shared: Arc<Shared>) {
    let Ok(_round) = shared.maintenance.retention_round.try_lock() else {
        return;
    };
    tokio::select! {
        () = shared.stopping.cancelled() => return,
        () = shared.waking.idle.idle_moment() => {}
        () = sleep(IDLE_MOMENT_WITHIN) => {}
    }
    // Archiving a long day occupies no connection of the pool.
    archive::run(&shared).await;
    let Some(client) = connection(&shared).await else {
        return;
    };
    warn_of("partitions and keys", keep_log(&client, &shared).await);
    warn_of("recent partitions", move_recent(&client).await);
    warn_of("restored days", drop_restored(&client).await);
    warn_of("records", forget_records(&client, &shared).await);
    warn_of(
        "versions of documents",
        forget_document_versions(&client, &shared).await,
    );
    warn_of(
        "sent messages",
        forget_sent_messages(&client, &shared).await,
    );
    warn_of(
        "acknowledged messages",
        forget_acked(&client, &shared).await,
    );
    warn_of("dormant sessions", expire_sessions(&client, &shared).await);
}

fn warn_of(step: &'static str, done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            step,
            "a maintenance step failed; it is tried again"
        );
    }
}

async fn keep_log(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    let settings = &shared.settings;
    for _ in 0..TURNS {
        let report = maintenance::run(
            client,
            settings.retention_days,
            settings.dedupe_days,
            settings.archive_dir.is_some(),
        )
        .await?;
        if !report.is_empty() {
            tracing::info!(?report, "old partitions and keys deleted");
        }
        if !report.more() || shared.stopping.is_cancelled() {
            break;
        }
    }
    Ok(())
}

async fn move_recent(client: &Object) -> Result<(), StoreError> {
    if maintenance::move_recent(client).await? {
        tracing::info!("the recent partitions begin yesterday now");
    }
    Ok(())
}

async fn drop_restored(client: &Object) -> Result<(), StoreError> {
    let days = restore::drop_days(&***client).await?;
    if days > 0 {
        tracing::info!(days, "restored days were dropped; their files have them");
    }
    Ok(())
}

async fn forget_records(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    let settings = &shared.settings;
    let keep = Keep {
        outcome_days: settings.outcome_days,
        history_days: settings.history_days,
        dead_letter_days: settings.dead_letter_days,
        operation_days: settings.operation_days,
    };
    let mut forgotten = Forgotten::default();
    for _ in 0..TURNS {
        let turn = maintenance::forget_records(client, keep, RECORDS).await?;
        forgotten += turn;
        if !turn.reached(RECORDS) || shared.stopping.is_cancelled() {
            break;
        }
    }
    if forgotten != Forgotten::default() {
        tracing::info!(?forgotten, "old records deleted");
    }
    Ok(())
}

async fn forget_document_versions(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    for _ in 0..TURNS {
        let days = shared.settings.document_days;
        let turn = maintenance::forget_document_versions(client, days, RECORDS).await?;
        if turn < i64::from(RECORDS) || shared.stopping.is_cancelled() {
            break;
        }
    }
    Ok(())
}

async fn forget_sent_messages(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    let mut forgotten = 0;
    for _ in 0..TURNS {
        let days = shared.settings.outcome_days;
        let turn = maintenance::forget_sent_messages(client, days, RECORDS).await?;
        forgotten += turn;
        if turn < i64::from(RECORDS) || shared.stopping.is_cancelled() {
            break;
        }
    }
    if forgotten > 0 {
        tracing::info!(forgotten, "old records of sent messages deleted");
    }
    Ok(())
}

async fn forget_acked(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    for _ in 0..TURNS {
        let turn = maintenance::forget_acked(client, RECORDS).await?;
        if turn < i64::from(RECORDS) || shared.stopping.is_cancelled() {
            break;
        }
    }
    Ok(())
}

async fn expire_sessions(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    let mut rested = 0;
    for _ in 0..TURNS {
        let turn =
            maintenance::expire_sessions(client, shared.settings.session_days, SESSIONS).await?;
        rested += turn.rested;
        if !turn.more || shared.stopping.is_cancelled() {
            break;
        }
    }
    if rested > 0 {
        tracing::info!(rested, "lanes of dormant sessions removed");
    }
    Ok(())
}

/// Runs one round of finishing closes of sessions, moves to other hosts, and changes of subscriptions.
pub async fn finish(shared: Arc<Shared>, pending: Pending) {
    if pending.closes
        && let Some(client) = connection(&shared).await
    {
        warn_of(
            "closed and interrupted sessions",
            finish_closes(&client, &shared).await,
        );
    }
    if pending.moves {
        warn_of("sessions of other hosts", finish_moving(&shared).await);
    }
    if pending.changes {
        warn_of("changes of subscriptions", finish_changes(&shared).await);
    }
}

async fn finish_closes(client: &Object, shared: &Shared) -> Result<(), StoreError> {
    for _ in 0..TURNS {
        let finished = closing::finish(&***client, None, None).await?;
        if finished.lanes > 0 || finished.drained > 0 {
            tracing::info!(?finished, "closes and interrupts of sessions finished");
            // Whoever is not notified has their deliveries cancelled only now that they are finished.
            let pending = maintenance::change_pending(client).await?;
            shared.waking.interruptions.read(&pending.interruptions);
        }
        // Where most of a call's sessions have drained, there are more.
        if finished.drained < 100 || shared.stopping.is_cancelled() {
            break;
        }
    }
    Ok(())
}

/// Without a pause between turns: each locks some sessions against appends until it ends, and messages wait for the move.
async fn finish_moving(shared: &Shared) -> Result<(), StoreError> {
    let mut lanes = 0;
    for _ in 0..TURNS {
        let Some(client) = connection(shared).await else {
            break;
        };
        let turn = host_route::finish_moving(&client, SESSIONS).await?;
        lanes += turn.lanes;
        if !turn.more || shared.stopping.is_cancelled() {
            break;
        }
    }
    if lanes > 0 {
        tracing::info!(lanes, "lanes moved to the hosts of their sessions");
    }
    Ok(())
}

/// Deliveries come first: between its turns it waits for an idle moment, or so long that turns take a small part of the
/// time.
async fn finish_changes(shared: &Shared) -> Result<(), StoreError> {
    for _ in 0..TURNS {
        let Some(client) = connection(shared).await else {
            return Ok(());
        };
        let asked_at = Instant::now();
        let turn = maintenance::finish_changes(&client, SESSIONS).await?;
        if !turn.more {
            break;
        }
        drop(client);
        tokio::select! {
            () = shared.stopping.cancelled() => break,
            () = shared.waking.idle.idle_moment() => {}
            () = sleep(pause_beside_deliveries(asked_at.elapsed())) => {}
        }
    }
    Ok(())
}

/// The pause after a turn that took `took` while the worker delivers. It has a limit, because sessions may wait for
/// what the turns do.
fn pause_beside_deliveries(took: Duration) -> Duration {
    (took * TIME_SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

async fn connection(shared: &Shared) -> Option<Object> {
    shared
        .pool
        .get()
        .await
        .inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "no connection for maintenance"
            );
        })
        .ok()
}
