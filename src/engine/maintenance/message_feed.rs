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

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_core::subscription::MessageStage;
use lanekeeper_postgres::append::{self, AppendError, Fate, NewEvent};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::lifecycle::{STREAM, session_name};
use crate::shared::Shared;
use crate::waking::signal::Signal;

/// How many notes may wait.
const MOST: usize = 10_000;
/// Notes in one transaction.
const BATCH: usize = 200;
const WITHIN: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What became of a message, or of a range of them.
#[derive(Clone, Debug)]
pub struct Note {
    pub stage: MessageStage,
    pub stream: Arc<str>,
    pub session: Arc<str>,
    pub subscription: Arc<str>,
    pub seq: i64,
    /// The last seq of a range.
    pub to_seq: Option<i64>,
    pub message_id: Option<Uuid>,
    /// The attempt, from 1.
    pub attempt: Option<u32>,
    pub error: Option<String>,
}

impl Note {
    fn event_type(&self) -> &'static str {
        match self.stage {
            MessageStage::Sent => "message_sent",
            MessageStage::Acked => "message_acked",
            MessageStage::Retried => "message_retried",
            MessageStage::Failed => "message_failed",
            MessageStage::Expired => "message_expired",
            MessageStage::Dropped => "message_dropped",
        }
    }

    fn payload(&self, worker_id: i64) -> String {
        #[derive(Serialize)]
        struct Payload<'a> {
            worker_id: i64,
            stream: &'a str,
            session: &'a str,
            subscription: &'a str,
            seq: i64,
            #[serde(skip_serializing_if = "Option::is_none")]
            to_seq: Option<i64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message_id: Option<Uuid>,
            #[serde(skip_serializing_if = "Option::is_none")]
            attempt: Option<u32>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<String>,
        }
        let payload = Payload {
            worker_id,
            stream: &self.stream,
            session: &self.session,
            subscription: &self.subscription,
            seq: self.seq,
            to_seq: self.to_seq,
            message_id: self.message_id,
            attempt: self.attempt,
            // Postgres cannot store a NUL.
            error: self
                .error
                .as_deref()
                .map(|error| error.replace('\0', "\u{fffd}")),
        };
        serde_json::to_string(&payload).expect("strings and numbers always serialise")
    }
}

/// Where lanes put their notes.
#[derive(Debug)]
pub struct MessageFeed {
    notes: mpsc::Sender<Note>,
    /// For the task that appends them.
    waiting: Mutex<Option<mpsc::Receiver<Note>>>,
    left_out: AtomicU64,
    /// Set when no lane tells anything more.
    ended: Signal,
}

impl Default for MessageFeed {
    fn default() -> Self {
        let (notes, waiting) = mpsc::channel(MOST);
        Self {
            notes,
            waiting: Mutex::new(Some(waiting)),
            left_out: AtomicU64::new(0),
            ended: Signal::default(),
        }
    }
}

impl MessageFeed {
    pub fn tell(&self, notes: impl Iterator<Item = Note>) {
        for note in notes {
            if self.notes.try_send(note).is_err() {
                self.left_out.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// No lane tells anything more: the task appends what is left, and ends.
    pub fn end(&self) {
        self.ended.cancel();
    }
}

/// Appends notes until the feed ends.
pub async fn run(shared: Arc<Shared>) {
    let feed = &shared.maintenance.message_feed;
    let waiting = feed
        .waiting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(mut waiting) = waiting else {
        return;
    };
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            biased;
            _ = waiting.recv_many(&mut batch, BATCH) => {}
            () = feed.ended.cancelled() => break,
        }
        while !append(&shared, &batch).await {
            if feed.ended.is_cancelled() {
                let rest = batch.len() + waiting.len();
                let rest = u64::try_from(rest).unwrap_or(u64::MAX);
                feed.left_out.fetch_add(rest, Ordering::Relaxed);
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
    let left_out = feed.left_out.swap(0, Ordering::Relaxed);
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
