//! What lanes tell of messages, until `message_feed` appends it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lanekeeper_core::subscription::MessageStage;
use serde::Serialize;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::waking::signal::Signal;

/// How many notes may wait.
const MOST: usize = 10_000;

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
    pub fn event_type(&self) -> &'static str {
        match self.stage {
            MessageStage::Sent => "message_sent",
            MessageStage::Acked => "message_acked",
            MessageStage::Retried => "message_retried",
            MessageStage::Failed => "message_failed",
            MessageStage::Expired => "message_expired",
            MessageStage::Dropped => "message_dropped",
        }
    }

    pub fn payload(&self, worker_id: i64) -> String {
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

    pub fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Returns when no lane tells anything more.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// What lanes tell, for the one task that appends it.
    pub fn listen(&self) -> Option<mpsc::Receiver<Note>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.take()
    }

    /// These are not told.
    pub fn leave_out(&self, notes: usize) {
        let notes = u64::try_from(notes).unwrap_or(u64::MAX);
        self.left_out.fetch_add(notes, Ordering::Relaxed);
    }

    /// How many were left out since the last call.
    pub fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }
}
