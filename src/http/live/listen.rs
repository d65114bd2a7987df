//! The one connection of this worker that is notified for all its live followers.
//!
//! It is open while there are followers. It holds, in shared mode, an advisory lock for each followed stream, by which
//! producers know that somebody listens (`functions/follow/`). Notifications are hints (I8):
//!
//! | what happens | what is done |
//! |---|---|
//! | a transaction began before the registration and does not notify | followed sessions are read at growing intervals until all such transactions are over; followers of whole streams scan once then |
//! | a producer holds the lock, since it saw no follower | the same, and the registration is tried again |
//! | the connection breaks | all followed sessions are read each second until it is back; then as after a registration. Followers with an access token are ended, because a revocation may have been missed: they come back with their cursor |
//! | the process is killed | the server releases the locks, so producers stop to notify |
//! | the process is frozen | peers end the connection; its name has the worker's number (`terminate_frozen`) |

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::follow;
use lanekeeper_postgres::{Database, StoreError, lane_connection};
use thiserror::Error;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::{AsyncMessage, Client};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::hub::{Hub, Registration};

const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// How long the connection may be silent before it is checked, with a message that is no statement.
const CHECK: Duration = Duration::from_secs(15);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks while appends may go without a notification.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long events gather before a fence.
const FENCE_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug, Error)]
enum ListenError {
    #[error("the connection for live followers failed")]
    Connection(#[from] tokio_postgres::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the connection for live followers was closed")]
    Closed,
    #[error("Postgres does not answer")]
    Silent,
}

/// Listens whenever somebody follows, until `stopping`.
pub async fn run(hub: Arc<Hub>, database: Database, worker_id: i64, stopping: CancellationToken) {
    loop {
        while hub.streams().is_empty() {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = hub.changed.notified() => {}
            }
        }
        let listened = tokio::select! {
            () = stopping.cancelled() => return,
            listened = listen(&hub, &database, worker_id) => listened,
        };
        hub.unregister_all();
        let Err(error) = listened else {
            continue;
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "live followers are not notified; their sessions are read each second until the connection is back"
        );
        hub.end_tokens(None);
        hub.stir_streams(|_| true);
        tokio::select! {
            () = stopping.cancelled() => return,
            () = sleep(RECONNECT_DELAY) => {}
        }
    }
}

/// What a notification says.
enum ExtraHeader {
    Sessions { stream_id: i32, ids: Vec<i64> },
    Fence(u64),
    Token(i64),
}

impl ExtraHeader {
    /// Anybody who may connect may notify: what is no notification of ours means nothing.
    fn parse(payload: &str) -> Option<Self> {
        let (kind, rest) = payload.split_once(' ')?;
        Some(match kind {
            "fence" => Self::Fence(rest.parse().ok()?),
            "token" => Self::Token(rest.parse().ok()?),
            stream_id => Self::Sessions {
                stream_id: stream_id.parse().ok()?,
                ids: rest.split(',').filter_map(|id| id.parse().ok()).collect(),
            },
        })
    }
}

async fn answered<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, ListenError> {
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ListenError::Silent),
    }
}

/// Returns when nobody follows any more.
async fn listen(hub: &Arc<Hub>, database: &Database, worker_id: i64) -> Result<(), ListenError> {
    let database = database.with(|driver| {
        driver.application_name(format!("lanekeeper follow {worker_id}"));
        lane_connection::bound_silence(driver);
    });
    let (client, mut connection) = database.connect().await?;
    let heard = Arc::clone(hub);
    let mut reading = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(told))) => {
                    match ExtraHeader::parse(told.payload()) {
                        Some(ExtraHeader::Sessions { stream_id, ids }) => {
                            heard.notified(stream_id, ids.into_iter());
                        }
                        Some(ExtraHeader::Token(token_id)) => heard.end_tokens(Some(token_id)),
                        Some(ExtraHeader::Fence(number)) => heard.pass(number),
                        None => {}
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            }
        }
    }));
    match timeout(
        ANSWER_WITHIN,
        client.batch_execute("LISTEN lanekeeper_follow"),
    )
    .await
    {
        Ok(listening) => listening?,
        Err(_) => return Err(ListenError::Silent),
    }
    // Events may have been appended while nobody listened.
    hub.stir_streams(|_| true);
    let mut poll = POLL.0;
    let mut poll_at = Instant::now();
    let mut fence_at: Option<Instant> = None;
    // Silent appends of transactions below were looked at.
    let mut silent_from = 0;
    let mut check_at = Instant::now() + CHECK;
    loop {
        for stream_id in hub.take_unused() {
            answered(follow::unregister(&client, stream_id)).await?;
        }
        let streams = hub.streams();
        if streams.is_empty() {
            return Ok(());
        }
        let is_new = streams.iter().any(|(_, of)| *of == Registration::None);
        let is_complete = streams.iter().all(|(_, of)| *of == Registration::Complete);
        if is_new {
            (poll, poll_at) = (POLL.0, Instant::now());
        }
        if !is_complete && poll_at <= Instant::now() {
            for (stream_id, registration) in streams {
                advance(hub, &client, stream_id, registration).await?;
            }
            poll_at = Instant::now() + poll;
            poll = (poll * 2).min(POLL.1);
        }
        if hub.wants_fence() && fence_at.is_none() {
            fence_at = Some(Instant::now() + FENCE_AFTER);
        }
        if fence_at.is_some_and(|at| at <= Instant::now()) {
            fence_at = None;
            let horizon = answered(follow::horizon(&client)).await?;
            // After the horizon: what is below it and did not notify is there by now.
            for (stream_id, session_id) in answered(follow::silent(&client, silent_from)).await? {
                hub.notified(stream_id, std::iter::once(session_id));
            }
            silent_from = horizon.xact;
            let number = hub.fence_begins(horizon);
            answered(follow::fence(&client, number)).await?;
        }
        let next = [(!is_complete).then_some(poll_at), fence_at, Some(check_at)];
        let next = next.into_iter().flatten().min().unwrap_or(check_at);
        tokio::select! {
            ended = &mut reading => {
                return match ended {
                    Ok(Err(error)) => Err(error.into()),
                    _ => Err(ListenError::Closed),
                };
            }
            () = hub.changed.notified() => {}
            () = sleep_until(next) => {}
        }
        if check_at <= Instant::now() {
            // A connection that was cut silently answers nothing.
            match timeout(ANSWER_WITHIN, client.simple_query("")).await {
                Ok(answer) => drop(answer?),
                Err(_) => return Err(ListenError::Silent),
            }
            check_at = Instant::now() + CHECK;
        }
    }
}

/// Registers for a stream, or looks whether every append to it notifies by now. Reads its sessions until then.
async fn advance(
    hub: &Hub,
    client: &Client,
    stream_id: i32,
    registration: Registration,
) -> Result<(), ListenError> {
    let registration = match registration {
        Registration::Complete => return Ok(()),
        Registration::None => match answered(follow::register(client, stream_id)).await? {
            Some(xact) => Registration::Since {
                xact,
                barrier: None,
            },
            None => Registration::None,
        },
        Registration::Since { xact, barrier } => {
            let barrier = follow::is_complete(client, &xact, barrier.as_deref());
            match answered(barrier).await? {
                Some(over) if over == "0" => Registration::Complete,
                barrier => Registration::Since { xact, barrier },
            }
        }
    };
    let is_complete = registration == Registration::Complete;
    hub.set_registration(stream_id, registration);
    hub.stir_streams(|of| of == stream_id);
    if is_complete {
        hub.rescan(stream_id);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_that_is_none_of_ours_means_nothing() {
        for bad in ["", "1", "x 1", "fence", "fence x", "token -", " 1"] {
            assert!(ExtraHeader::parse(bad).is_none(), "{bad:?}");
        }
        let Some(ExtraHeader::Sessions { stream_id, ids }) = ExtraHeader::parse("7 1,x,,2") else {
            panic!("it names sessions");
        };
        assert_eq!((stream_id, ids), (7, vec![1, 2]));
    }
}
