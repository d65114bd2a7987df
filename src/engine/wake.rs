//! Waking: a listener, and the doorbell (I8).
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
//! than the workers could deliver, so a worker is always idle, and the line never ends.
//!
//! A producer that found the doorbell free has it in shared mode until its transaction ends: a worker that goes idle
//! meanwhile is granted it after that, and looks. What nobody tells of is found at short, growing intervals
//! (walk.rs). Notifications are hints: with none at all, everything works at the poll floor.
//!
//! The listener hears operators too, on a channel of their own: which lanes they want (wanted.rs).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client};

use super::shared::Shared;
#[cfg(feature = "crash-points")]
use crate::mutation::Mutation;
use crate::store::{StoreError, lane_connection, operate};

const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// How long the listening connection may be silent before it is asked whether it is there.
const LISTEN_CHECK: Duration = Duration::from_secs(5);

/// Wakes the claimers at each notification, until the worker stops.
pub async fn listen(shared: Arc<Shared>) {
    loop {
        let ended = tokio::select! {
            () = shared.stopping.cancelled() => return,
            ended = listen_once(&shared) => ended,
        };
        if let Err(error) = ended {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "not listening; workers look at the poll floor until this is back"
            );
        }
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(RECONNECT_DELAY) => {}
        }
    }
}

async fn listen_once(shared: &Arc<Shared>) -> Result<(), tokio_postgres::Error> {
    let database = shared.database.with(|driver| {
        driver.application_name("lanekeeper listen");
        lane_connection::bound_silence(driver);
    });
    // A server that fell silent after it took the connection is tried again, like any other.
    let Ok(connected) = timeout(LISTEN_CHECK, database.connect()).await else {
        return Ok(());
    };
    let (client, mut connection) = connected?;
    let waking = Arc::clone(shared);
    let mut reading = tokio::spawn(async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(told))) if told.channel() == operate::WANTED => {
                    if let Ok(lane_id) = told.payload().parse() {
                        waking.wanted.ask(lane_id);
                    }
                }
                Some(Ok(AsyncMessage::Notification(_))) => {
                    waking.idle.told();
                    waking.wake_all();
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            }
        }
    });
    let channels = format!("LISTEN lanekeeper; LISTEN {}", operate::WANTED);
    client.batch_execute(&channels).await?;
    // What was enqueued while nobody listened.
    shared.wake_all();
    loop {
        tokio::select! {
            ended = &mut reading => return ended.unwrap_or(Ok(())),
            () = sleep(LISTEN_CHECK) => {}
        }
        // A connection that was cut without a word answers nothing.
        if timeout(LISTEN_CHECK, client.simple_query(""))
            .await
            .is_err()
        {
            reading.abort();
            return Ok(());
        }
    }
}

/// Holds, or queues for, the doorbell while the worker is calm, until it stops.
pub async fn ring_me(shared: Arc<Shared>) {
    loop {
        let ended = tokio::select! {
            () = shared.stopping.cancelled() => return,
            ended = ring_me_once(&shared) => ended,
        };
        if let Err(error) = ended {
            tracing::warn!(
                error = &*error,
                "no doorbell; this worker is not told of events and looks for them itself until it is back"
            );
        }
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(RECONNECT_DELAY) => {}
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn ring_me_once(shared: &Arc<Shared>) -> Result<(), Failure> {
    let client = lane_connection::open(&shared.database, "doorbell")
        .await?
        .client;
    // Waiting in the queue is what this connection is for.
    client
        .batch_execute("SET statement_timeout = 0")
        .await
        .map_err(StoreError::on("preparing to wait for the doorbell"))?;
    loop {
        let calm = shared.idle.calmed().await;
        shared.idle.set_told(true);
        let taken = take(shared, &client, calm).await;
        if matches!(taken, Ok(true)) {
            // A producer that looked before this worker queued may have committed since.
            shared.wake_all();
            #[cfg(feature = "crash-points")]
            if Mutation::DoorbellKept.is_on() {
                std::future::pending::<()>().await;
            }
            shared.idle.stirred_after(calm).await;
        }
        shared.idle.set_told(false);
        taken?;
        give_back(&client).await?;
    }
}

/// Also where it was not taken: what is granted in the moment in which the wait for it is given up stays with the
/// session, which has no other lock.
async fn give_back(client: &Client) -> Result<(), StoreError> {
    loop {
        match client.execute("SELECT pg_advisory_unlock_all()", &[]).await {
            Ok(_) => return Ok(()),
            // Meant for the wait, and late.
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {}
            Err(error) => return Err(StoreError::on("giving up the doorbell")(error)),
        }
    }
}

/// Waits for the doorbell. False where producers stood in line meanwhile: whoever waits for it has them notify, and a
/// producer that was not to notify keeps it until its transaction ends, however long that takes.
async fn take(shared: &Shared, client: &Client, calm: Instant) -> Result<bool, Failure> {
    let waiting = client.execute("SELECT pg_advisory_lock(lanekeeper.doorbell_lock())", &[]);
    tokio::pin!(waiting);
    let taken = tokio::select! {
        biased;
        taken = &mut waiting => taken,
        () = shared.idle.line_after(calm) => {
            shared.database.cancel(&client.cancel_token()).await?;
            waiting.await
        }
    };
    match taken {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => Ok(false),
        Err(error) => Err(StoreError::on("waiting for the doorbell")(error).into()),
    }
}
