//! The doorbell: who wants to be told of new events, and when (I8).
//!
//! NOTIFY takes one lock for the whole server until its commit is on disk, so producers use it only when
//! somebody needs it. While this worker is calm (idle.rs), it waits for the doorbell, one exclusive advisory
//! lock that such workers queue for. A producer that inserted a token tries the lock in shared mode, without
//! waiting: it gets it only if nobody holds it or waits for it, and then notifies nobody. At the first
//! notification, or the first event that is found without one, the doorbell is given up, until the worker is calm
//! again:
//!
//! ```text
//! busy ── calm for a while ─► queues for the doorbell ── granted ─► holds it ── told, or found something ─► busy
//!                              ├── granted, but something stirred meanwhile: gives it up at once ──────────► busy
//!                              └── producers stand in line: leaves the queue ──────────────────────────────► busy
//! ```
//!
//! Held for longer, many producers with a slow disk stay in line for the NOTIFY lock, one commit each: fewer events come
//! than the workers could deliver, so a worker is always idle, and the line never ends. So whatever happens to the
//! connection, neither the doorbell nor a place in its queue may stay with it:
//!
//! | what happens | what is done |
//! |---|---|
//! | it is granted while the server is asked to give the wait up: the statement fails, the session has the lock | whatever the session has is given back each time |
//! | the request to give up comes between two messages, and is passed over | it is made again until the wait has ended |
//! | such a request comes late, and ends what gives the lock back | that is done again |
//! | the server does not answer, or ends the connection | its backend is ended over another connection, and one opened anew |
//! | the process is killed in the queue | the server looks whether the client is there, once a second |
//! | the process is frozen | peers end the connection, by the worker in its name (`terminate_frozen`) |
//!
//! A producer that found the doorbell free has it in shared mode until its transaction ends: a worker that goes idle
//! meanwhile is granted it after that, and looks. What nobody tells of is found at short, growing intervals (walk.rs).

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

use super::shared::Shared;

const REOPEN_DELAY: Duration = Duration::from_millis(500);
/// How long the server may take for what waits for nobody.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Until the server is asked once more to give the wait up.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Holds, or queues for, the doorbell while the worker is calm, until it stops.
pub async fn ring_me(shared: Arc<Shared>) {
    loop {
        let Err(error) = tokio::select! {
            () = shared.stopping.cancelled() => return,
            ended = on_one_connection(&shared) => ended,
        };
        shared.idle.set_told(false);
        shared.wake_all();
        tracing::warn!(
            error = &*error,
            "no doorbell; this worker is not told of events and looks for them itself until it is back"
        );
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(REOPEN_DELAY) => {}
        }
    }
}

async fn on_one_connection(shared: &Shared) -> Result<Infallible, Failure> {
    let name = format!("doorbell {}", shared.identity.worker_id);
    let Opened {
        client,
        task,
        backend,
    } = lane_connection::open(&shared.database, &name).await?;
    // Left alone it would wait for an outstanding answer, and so for the doorbell.
    let mut connection = AbortOnDropHandle::new(task);
    let ended = tokio::select! {
        biased;
        _ = &mut connection => Err("the connection has ended".into()),
        ended = ring(shared, &client) => ended,
    };
    shared.given_up.enter(backend);
    ended
}

async fn ring(shared: &Shared, client: &Client) -> Result<Infallible, Failure> {
    let (lock, unlock) = answered(prepare(client)).await?;
    loop {
        let calm = shared.idle.calmed().await;
        shared.idle.set_told(true);
        let mut told = true;
        let taken = take(shared, client, &lock, calm).await?;
        if taken {
            // A producer that looked before this worker queued may have committed since.
            shared.wake_all();
            #[cfg(feature = "crash-points")]
            if Mutation::DoorbellKept.is_on() {
                std::future::pending::<()>().await;
            }
            told = shared.idle.stirred_after(calm).await;
        }
        shared.idle.set_told(false);
        if !told {
            // Whoever sleeps counts on being told.
            shared.wake_all();
        }
        if !taken && Mutation::DoorbellLeftBehind.is_on() {
            continue;
        }
        answered(give_back(client, &unlock)).await?;
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
    // Waiting in the queue is what this connection is for.
    client
        .batch_execute("SET statement_timeout = 0; SET lock_timeout = 0")
        .await
        .map_err(StoreError::on(failed))?;
    // Not every platform can look: there a killed worker keeps its place until the doorbell comes to it.
    if let Err(error) = client
        .batch_execute("SET client_connection_check_interval = '1s'")
        .await
    {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "clients are not looked for"
        );
    }
    let prepare = async |statement| {
        let prepared = client.prepare(statement).await;
        prepared.map_err(StoreError::on(failed))
    };
    Ok((
        prepare("SELECT pg_advisory_lock(lanekeeper.doorbell_lock())").await?,
        prepare("SELECT pg_advisory_unlock_all()").await?,
    ))
}

/// Waits for the doorbell. False where producers stood in line meanwhile: whoever waits for it has them notify, and a
/// producer that was not to notify keeps it until its transaction ends, however long that takes.
async fn take(
    shared: &Shared,
    client: &Client,
    lock: &Statement,
    calm: Instant,
) -> Result<bool, Failure> {
    let leaving = async {
        shared.idle.line_after(calm).await;
        let token = client.cancel_token();
        let ask = async {
            loop {
                if let Err(error) = shared.database.cancel(&token).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "the wait goes on");
                }
                sleep(CANCEL_AGAIN).await;
            }
        };
        let _: Result<Infallible, _> = timeout(ANSWER_WITHIN, ask).await;
    };
    let taken = tokio::select! {
        biased;
        taken = client.execute(lock, &[]) => taken,
        () = leaving => return Err("the wait for the doorbell does not end".into()),
    };
    match taken {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => Ok(false),
        Err(error) => Err(StoreError::on("waiting for the doorbell")(error).into()),
    }
}

/// The session has no other lock.
async fn give_back(client: &Client, unlock: &Statement) -> Result<(), StoreError> {
    loop {
        match client.execute(unlock, &[]).await {
            Ok(_) => return Ok(()),
            // Meant for the wait, and late.
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {}
            Err(error) => return Err(StoreError::on("giving up the doorbell")(error)),
        }
    }
}
