//! What becomes of messages, as events of the lifecycle feed, for subscriptions that ask for it (C10).
//!
//! A lane tells after its settlement is committed. One task appends what lanes have told, in batches, so that the events
//! of a session are in order and lanes wait for nothing. The session there is the one in which the feed tells of closes:
//! `session STREAM/SESSION`.
//!
//! | failure | what happens |
//! |---|---|
//! | Postgres is away | the batch is tried again every second; lanes go on, and up to 10,000 notes wait |
//! | more notes than that | they are left out, and the log says how many |
//! | the worker stops | it appends what is left, for three seconds at most |
//! | the worker is killed | what it had not appended is missing: the feed is for monitoring, outcomes are rows |
//! | the append is refused for good | the batch is left out, and the log says why |

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::append::{self, AppendError, Fate, NewEvent};
use tokio::time::{sleep, timeout};

use super::lifecycle::{STREAM, session_name};
use super::notes::{MessageFeed, Note};
use crate::shared::Shared;

/// Notes in one transaction.
const BATCH: usize = 200;
const WITHIN: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Appends notes until the feed ends.
pub async fn run(shared: Arc<Shared>) {
    let feed = &shared.maintenance.message_feed;
    let Some(mut waiting) = feed.listen() else {
        return;
    };
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            biased;
            _ = waiting.recv_many(&mut batch, BATCH) => {}
            () = feed.ended() => break,
        }
        while !append(&shared, &batch).await {
            if feed.has_ended() {
                feed.leave_out(batch.len() + waiting.len());
                warn_of_left_out(feed);
                return;
            }
            sleep(AGAIN_AFTER).await;
        }
        batch.clear();
        warn_of_left_out(feed);
    }
}

fn warn_of_left_out(feed: &MessageFeed) {
    let left_out = feed.take_left_out();
    if left_out > 0 {
        tracing::warn!(
            left_out,
            "messages are missing from the lifecycle feed; nothing else is affected"
        );
    }
}

/// Appends a batch; returns whether it is done with. It is where the append was refused for good.
async fn append(shared: &Shared, notes: &[Note]) -> bool {
    if !shared.maintenance.has_feed() {
        return true;
    }
    let worker_id = shared.peers.worker_id();
    let events: Vec<(String, &'static str, String)> = notes
        .iter()
        .map(|note| {
            let about = format!("session {}/{}", note.stream, note.session);
            (
                session_name(about),
                note.event_type(),
                note.payload(worker_id),
            )
        })
        .collect();
    let events: Vec<NewEvent<'_>> = events
        .iter()
        .map(|(session, event_type, payload)| NewEvent::new(session, event_type, payload))
        .collect();
    let appending = async {
        let client = shared.pool.get().await.map_err(|error| error.to_string())?;
        let appended = append::enqueue_many(&**client, STREAM, &events).await;
        match appended {
            Ok(_) => Ok(None),
            Err(error) if error.fate() == Fate::Later => Err(lanekeeper_core::error::chain(&error)),
            Err(error) => Ok(Some(error)),
        }
    };
    match timeout(WITHIN, appending).await {
        Ok(Ok(None)) => true,
        Ok(Ok(Some(refused))) => one_by_one(shared, &events, refused).await,
        Ok(Err(error)) => {
            tracing::warn!(error, "the lifecycle feed waits for Postgres; lanes go on");
            false
        }
        Err(_) => {
            tracing::warn!("the lifecycle feed waits for Postgres; lanes go on");
            false
        }
    }
}

/// A closed session of the feed refuses a whole batch: the others' events are appended all the same.
async fn one_by_one(shared: &Shared, events: &[NewEvent<'_>], refused: AppendError) -> bool {
    tracing::warn!(
        error = &refused as &dyn std::error::Error,
        "some messages are missing from the lifecycle feed; nothing else is affected"
    );
    let appending = async {
        let Ok(client) = shared.pool.get().await else {
            return;
        };
        for event in events {
            if append::enqueue(&**client, STREAM, event).await.is_err() {
                continue;
            }
        }
    };
    let _ = timeout(WITHIN, appending).await;
    true
}
