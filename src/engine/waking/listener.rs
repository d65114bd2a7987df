//! The listening connection (I8). A notification means "scan" and is a hint: without any, scans at the poll floor
//! find everything. [`super::doorbell`] decides when producers notify.
//!
//! Operator requests, and sessions that were closed or interrupted, arrive on channels of their own
//! ([`super::operator_request`], [`super::interruptions`]).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use lanekeeper_postgres::{closing, lane_connection, operate};
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::interruptions::{Interruption, Reach};
use crate::shared::Shared;

const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// How long the listening connection may be silent before it is checked.
const LISTEN_CHECK: Duration = Duration::from_secs(5);
/// How long finishing a close or an interrupt may take; a later round does it otherwise.
const FINISH_WITHIN: Duration = Duration::from_secs(10);

/// Wakes connections at each notification, until the worker stops.
pub async fn listen(shared: Arc<Shared>) {
    loop {
        let ended = tokio::select! {
            () = shared.stopping.cancelled() => return,
            ended = listen_once(&shared) => ended,
        };
        if let Err(error) = ended {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "not listening; the worker scans at the poll floor until the connection is back"
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
    let (client, mut connection) = database.connect().await?;
    let heard = Arc::clone(shared);
    let mut reading = tokio::spawn(async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(notification)))
                    if notification.channel() == operate::WANTED =>
                {
                    if let Ok(lane_id) = notification.payload().parse() {
                        heard.waking.operator_requests.add(lane_id);
                    }
                }
                Some(Ok(AsyncMessage::Notification(notification)))
                    if notification.channel() == closing::CLOSED =>
                {
                    if let Ok(interruption) = notification.payload().parse() {
                        interrupted(&heard, interruption);
                    }
                }
                Some(Ok(AsyncMessage::Notification(_))) => {
                    heard.waking.idle.notified();
                    heard.waking.wake_all();
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            }
        }
    });
    let channels = format!(
        "LISTEN lanekeeper; LISTEN {}; LISTEN {}",
        operate::WANTED,
        closing::CLOSED
    );
    let Ok(listening) = timeout(LISTEN_CHECK, client.batch_execute(&channels)).await else {
        reading.abort();
        return Ok(());
    };
    listening?;
    // Events may have been appended while this connection did not listen.
    shared.waking.wake_all();
    loop {
        tokio::select! {
            ended = &mut reading => return ended.unwrap_or(Ok(())),
            () = sleep(LISTEN_CHECK) => {}
        }
        // A connection that was cut silently answers nothing.
        if timeout(LISTEN_CHECK, client.simple_query(""))
            .await
            .is_err()
        {
            reading.abort();
            return Ok(());
        }
    }
}

/// A session was closed or interrupted, or an event of it cancelled, while lanes of it were held.
fn interrupted(shared: &Arc<Shared>, interruption: Interruption) {
    let Interruption {
        session_id, reach, ..
    } = interruption;
    match reach {
        // What is left of it is passed, and then deliveries are cancelled.
        Reach::Through => {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                if finish(&shared, session_id).await {
                    shared.waking.interruptions.add(interruption);
                }
            });
        }
        // Who delivers for the session does that when the delivery has ended; here it is done where nobody does.
        Reach::Behind => {
            shared.waking.interruptions.add(interruption);
            let shared = Arc::clone(shared);
            tokio::spawn(async move { finish(&shared, session_id).await });
        }
        Reach::Only => shared.waking.interruptions.add(interruption),
    }
}

/// Passes what a close or an interrupt left of this session. Returns whether that could be asked for.
async fn finish(shared: &Shared, session_id: i64) -> bool {
    let finishing = timeout(FINISH_WITHIN, async {
        let client = shared.pool.get().await?;
        let finished = closing::finish(&**client, Some(session_id), None).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(finished)
    });
    match finishing.await.unwrap_or_else(|silent| Err(silent.into())) {
        Ok(finished) => {
            if finished.lanes > 0 {
                tracing::info!(
                    session_id,
                    lanes = finished.lanes,
                    "passed what was left of a closed or interrupted session"
                );
            }
            true
        }
        Err(error) => {
            tracing::warn!(
                session_id,
                error = &*error,
                "the close or interrupt of a session could not be finished; it is tried again"
            );
            false
        }
    }
}
