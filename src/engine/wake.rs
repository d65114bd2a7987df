//! Waking: the listener (I8). Notifications mean "look", and are hints: with none at all, everything works at the poll
//! floor. Who has producers notify, and when, is doorbell.rs.
//!
//! The listener hears operators too, on a channel of their own: which lanes they want (wanted.rs).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use lanekeeper_postgres::{lane_connection, operate};
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::shared::Shared;

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
