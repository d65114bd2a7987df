//! The doorbell connection: queues for the doorbell while the worker is quiet, and gives it up when there is
//! activity (I8).
//!
//! The doorbell is an exclusive advisory lock for which idle workers queue. A producer that inserted a ready entry
//! tries it in shared mode, without waiting, and notifies only if it does not get it.
//!
//! **Leaving the queue.** A worker that waits for the doorbell also makes producers notify, and the doorbell
//! belongs to each producer that did not have to notify until that producer's transaction ends, however long that
//! takes. So a worker leaves the queue on contention. It asks the server to cancel the wait, and the lock may have
//! been granted by then: a session keeps its lock when its statement fails. So a worker that gives up waiting for
//! the doorbell releases whatever its session holds. The request to cancel may fall between two messages; it is
//! repeated until the wait has ended.
//!
//! Whatever happens to the connection, neither the doorbell nor a place in its queue may stay with it:
//!
//! | what happens | what is done |
//! |---|---|
//! | the lock is granted while the wait is being cancelled: the statement fails, and the session has the lock | the session releases all its locks each time |
//! | the request to cancel arrives between two messages and has no effect | it is repeated until the wait has ended |
//! | the request to cancel arrives late and cancels the release | the release is repeated |
//! | the server does not answer, or ends the connection | the backend is ended over another connection, and a new one is opened |
//! | the process is killed in the queue | the server checks once a second whether the client exists |
//! | the process is frozen | peers end the connection; its name contains the worker's id (`terminate_frozen`) |
//!
//! A producer that got the doorbell in shared mode keeps it until its transaction ends. A worker that becomes idle
//! meanwhile is granted it after that, and scans.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_fault::Mutation;
use lanekeeper_postgres::lane_connection::Opened;
use lanekeeper_postgres::{StoreError, lane_connection};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Statement};
use tokio_util::task::AbortOnDropHandle;

use crate::shared::Shared;

const REOPEN_DELAY: Duration = Duration::from_millis(500);
/// The limit for statements that wait for no lock.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Between two requests to cancel the wait.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Queues for the doorbell, or holds it, whenever the worker is quiet, until the worker stops.
pub async fn run(shared: Arc<Shared>) {
    loop {
        let Err(error) = tokio::select! {
            () = shared.stopping.cancelled() => return,
            ended = run_connection(&shared) => ended,
        };
        shared.waking.idle.set_notified(false);
        shared.waking.wake_all();
        tracing::warn!(
            error = &*error,
            "no doorbell connection; this worker is not notified of events and scans for them until it is back"
        );
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(REOPEN_DELAY) => {}
        }
    }
}

async fn run_connection(shared: &Shared) -> Result<Infallible, Failure> {
    let name = format!("doorbell {}", shared.peers.worker_id());
    let Opened {
        client,
        task,
        backend,
    } = lane_connection::open(&shared.database, &name).await?;
    // Not left alone: it would wait for an outstanding answer, and so for the doorbell.
    let mut connection = AbortOnDropHandle::new(task);
    let ended = tokio::select! {
        biased;
        _ = &mut connection => Err("the connection has ended".into()),
        ended = run_cycles(shared, &client) => ended,
    };
    shared.peers.abandoned.enter(backend);
    ended
}

async fn run_cycles(shared: &Shared, client: &Client) -> Result<Infallible, Failure> {
    let (lock, unlock) = answered(prepare(client)).await?;
    loop {
        let quiet_since = shared.waking.idle.quiet().await;
        shared.waking.idle.set_notified(true);
        let mut notified = true;
        let acquired = acquire(shared, client, &lock, quiet_since).await?;
        if acquired {
            // A producer that tested the doorbell before this worker queued may have committed since.
            shared.waking.wake_all();
            #[cfg(feature = "crash-points")]
            if Mutation::DoorbellKept.is_on() {
                std::future::pending::<()>().await;
            }
            notified = shared.waking.idle.active_after(quiet_since).await;
        }
        shared.waking.idle.set_notified(false);
        if !notified {
            // Connections that sleep rely on notifications, which stop now.
            shared.waking.wake_all();
        }
        if !acquired && Mutation::DoorbellLeftBehind.is_on() {
            continue;
        }
        answered(release(client, &unlock)).await?;
    }
}

async fn answered<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, Failure> {
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err("Postgres does not answer".into()),
    }
}

async fn prepare(client: &Client) -> Result<(Statement, Statement), StoreError> {
    let failed = "preparing to wait for the doorbell";
    // This connection is meant to wait in the queue.
    client
        .batch_execute("SET statement_timeout = 0; SET lock_timeout = 0")
        .await
        .map_err(StoreError::on(failed))?;
    // Not supported on every platform. Without it a killed worker keeps its place in the queue until it is granted the
    // doorbell.
    if let Err(error) = client
        .batch_execute("SET client_connection_check_interval = '1s'")
        .await
    {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "this server cannot check for the client of a waiting backend"
        );
    }
    let prepare = async |statement| {
        let prepared = client.prepare(statement).await;
        prepared.map_err(StoreError::on(failed))
    };
    Ok((
        // Not by the default of the argument, a function of its own: this runs after each quiet period.
        prepare(
            "SELECT pg_advisory_lock(lanekeeper.doorbell_lock(
                (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))",
        )
        .await?,
        prepare("SELECT pg_advisory_unlock_all()").await?,
    ))
}

/// Waits for the doorbell. Returns false if there was contention meanwhile: waiting for the doorbell makes producers
/// notify, and a producer that got it in shared mode keeps it until its transaction ends.
async fn acquire(
    shared: &Shared,
    client: &Client,
    lock: &Statement,
    quiet_since: Instant,
) -> Result<bool, Failure> {
    let leaving = async {
        shared.waking.idle.contention_after(quiet_since).await;
        let token = client.cancel_token();
        let ask = async {
            loop {
                if let Err(error) = shared.database.cancel(&token).await {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "the wait could not be cancelled; trying again"
                    );
                }
                sleep(CANCEL_AGAIN).await;
            }
        };
        let _: Result<Infallible, _> = timeout(ANSWER_WITHIN, ask).await;
    };
    let acquired = tokio::select! {
        biased;
        acquired = client.execute(lock, &[]) => acquired,
        () = leaving => return Err("the wait for the doorbell does not end".into()),
    };
    match acquired {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => Ok(false),
        Err(error) => Err(StoreError::on("waiting for the doorbell")(error).into()),
    }
}

/// Releases all locks of the session: it has no other than the doorbell.
async fn release(client: &Client, unlock: &Statement) -> Result<(), StoreError> {
    loop {
        match client.execute(unlock, &[]).await {
            Ok(_) => return Ok(()),
            // A late request to cancel, meant for the wait.
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {}
            Err(error) => return Err(StoreError::on("giving up the doorbell")(error)),
        }
    }
}
