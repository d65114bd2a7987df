//! The listening connection (I8). A notification means "scan" and is a hint: without any, scans at the poll floor
//! find everything. [`super::doorbell`] decides when producers notify.
//!
//! Operator requests and closed sessions arrive on channels of their own ([`super::operator_request`],
//! [`super::closings`]).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use lanekeeper_postgres::{closing, lane_connection, operate};
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use crate::shared::Shared;

const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// How long the listening connection may be silent before it is checked.
const LISTEN_CHECK: Duration = Duration::from_secs(5);
/// How long finishing a close may take; a later round does it otherwise.
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
                    if let Ok(session_id) = notification.payload().parse() {
                        tokio::spawn(finish_close(Arc::clone(&heard), session_id));
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

/// This session was closed while lanes of it were held: what is left of it expires, and then deliveries are cancelled.
async fn finish_close(shared: Arc<Shared>, session_id: i64) {
    let finishing = timeout(FINISH_WITHIN, async {
        let client = shared.pool.get().await?;
        let finished = closing::finish(&**client, Some(session_id)).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(finished)
    });
    match finishing.await.unwrap_or_else(|silent| Err(silent.into())) {
        Ok(finished) => {
            if finished.lanes > 0 {
                tracing::info!(
                    session_id,
                    lanes = finished.lanes,
                    "a closed session's events expired"
                );
            }
            shared.waking.closings.add(session_id);
        }
        Err(error) => tracing::warn!(
            session_id,
            error = &*error,
            "the close of a session could not be finished; it is tried again"
        ),
    }
}
