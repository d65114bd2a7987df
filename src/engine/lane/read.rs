//! What a lane reads itself, through the pool, so that no lane connection waits for it: payloads that were
//! too large to come with their batch, and requeued dead letters. A payload waits for memory first (I11).
//!
//! Every read ends: a pooled connection that hangs must not hold the lane (I13).

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::event::Event;
use lanekeeper_postgres::ErrorClass;
use lanekeeper_postgres::fetch::{self, FetchedEvent};
use lanekeeper_postgres::letter::{self, RequeuedLetter};
use lanekeeper_postgres::settle::Operation;
use tokio::time::timeout;

use super::{Ending, Runner};
use crate::budget::Part;
use crate::claimer::INLINE_BYTES;
use crate::progress::Stop;

/// How long a payload may take to arrive through the pool, and more by this many bytes a second.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(30);
pub(super) const READ_BYTES_PER_S: u64 = 1 << 20;
/// The same for a dead letter, whose size is not known before: the server renders up to 256 MiB for it.
const LETTER_WITHIN: Duration = Duration::from_secs(30 + 256);

/// Reads the lane's next requeued dead letter through the pool.
pub(crate) async fn read_letter(
    pool: &deadpool_postgres::Pool,
    lane_id: i64,
) -> Result<Option<RequeuedLetter>, Unread> {
    let reading = async {
        let client = pool.get().await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
            letter::next(&**client, lane_id, INLINE_BYTES).await?,
        )
    };
    let read = timeout(LETTER_WITHIN, reading).await;
    read.unwrap_or_else(|silent| Err(silent.into()))
        .map_err(|error| {
            tracing::warn!(lane_id, error = &*error, "requeued dead letter not read");
            Unread::Later
        })
}

/// Why a payload that stayed behind could not be read.
pub(crate) enum Unread {
    Later,
    /// It can never leave Postgres, as text of over 1 GB.
    Never(String),
}

impl Runner<'_> {
    /// Waits for memory for a payload that stayed behind, or says why the lane is let go instead. Lost
    /// trust ends the wait too: the lane's future is dropped.
    ///
    /// It is asked for after the permit for suspects, and nobody who has it asks for that one: a letter's
    /// payload, too, is read no sooner than the letter is delivered.
    pub(super) async fn part(&mut self, event: &FetchedEvent) -> Result<Part, Ending> {
        let size = usize::try_from(event.size).unwrap_or(0);
        let context = self.context;
        if let Some(part) = context.allowance.try_take(size) {
            return Ok(part);
        }
        if self.progress.is_unsettled() {
            // It may be long: a crash meanwhile repeats nothing.
            self.keep().await?;
        }
        tokio::select! {
            biased;
            // An abort comes after the stop.
            () = context.stopping.cancelled() => Err(Ending::Stopped(Stop::new(Operation::Release))),
            part = context.allowance.take(size) => Ok(part),
        }
    }

    /// The event for the adapter; a payload that stayed behind is read now.
    pub(super) async fn event(&self, fetched: FetchedEvent) -> Result<Event, Unread> {
        let payload = match fetched.payload {
            Some(payload) => payload,
            None => Box::pin(self.large_payload(&fetched)).await?,
        };
        Ok(Event {
            message_id: fetched.message_id,
            stream: Arc::clone(&self.route.subscription.stream),
            session: Arc::clone(&self.claimed.session),
            seq: fetched.seq,
            event_type: fetched.event_type,
            created_at: fetched.created_at,
            payload,
            headers: fetched.headers,
        })
    }

    /// Reads a payload through the pool: no lane connection waits for it.
    async fn large_payload(&self, event: &FetchedEvent) -> Result<String, Unread> {
        let client = self.context.pool.get().await.map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "no connection for a large payload"
            );
            Unread::Later
        })?;
        let more = u64::try_from(event.size).unwrap_or(0) / READ_BYTES_PER_S;
        let limit = READ_WITHIN + Duration::from_secs(more);
        let reading = async {
            match self.progress.faced_letter() {
                Some(dead_id) => letter::payload(&**client, dead_id).await,
                None => {
                    let session_id = self.claimed.session_id;
                    fetch::payload(&**client, session_id, event.seq, event.day).await
                }
            }
        };
        timeout(limit, reading)
            .await
            .map_err(|_| {
                tracing::warn!(
                    seq = event.seq,
                    "large payload not read: Postgres is silent"
                );
                Unread::Later
            })?
            .map_err(|error| {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    seq = event.seq,
                    "large payload not read"
                );
                match error.class() {
                    ErrorClass::Permanent => {
                        Unread::Never(format!("the payload cannot be read: {}", error.source))
                    }
                    ErrorClass::Retryable | ErrorClass::ConnectionLost => Unread::Later,
                }
            })
    }
}
