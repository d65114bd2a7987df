//! What a lane reads itself, over the pool, so that no lane connection waits for it: large payloads and requeued
//! dead letters. A payload waits for its memory first (I11).
//!
//! Every read has a time-out: a pooled connection that hangs must not hold the lane (I13).

use std::time::Duration;

use lanekeeper_core::event::Event;
use lanekeeper_postgres::ErrorClass;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::requeued::{self, RequeuedDeadLetter};
use lanekeeper_postgres::settle::Operation;
use tokio::time::timeout;

use super::{Ending, Runner};
use crate::claiming::request::INLINE_BYTES;
use crate::delivering::budget::PayloadReservation;
use crate::delivering::event::{event_of, large_payload};
use crate::delivering::progress::Stop;

/// The time-out of a read over the pool, to which a second is added for each `READ_BYTES_PER_S`.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(30);
pub(super) const READ_BYTES_PER_S: u64 = 1 << 20;
/// The time-out for a dead letter, whose size is not known before: the server renders up to 256 MiB for it.
const DEAD_LETTER_WITHIN: Duration = Duration::from_secs(30 + 256);

/// Reads the lane's next requeued dead letter over the pool.
pub async fn read_dead_letter(
    pool: &deadpool_postgres::Pool,
    lane_id: i64,
) -> Result<Option<RequeuedDeadLetter>, Unread> {
    let reading = async {
        let client = pool.get().await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
            requeued::next(&**client, lane_id, INLINE_BYTES).await?,
        )
    };
    let read = timeout(DEAD_LETTER_WITHIN, reading).await;
    read.unwrap_or_else(|silent| Err(silent.into()))
        .map_err(|error| {
            tracing::warn!(
                lane_id,
                error = &*error,
                "requeued dead letter could not be read"
            );
            Unread::Later
        })
}

/// Why a large payload or a dead letter could not be read.
pub enum Unread {
    Later,
    /// Postgres can never return it, because its text exceeds 1 GB.
    Never(String),
}

impl Runner<'_> {
    /// Waits for memory for a payload that was not fetched, or returns why the lane is released instead. If the lock
    /// validity ends, the lane's future is dropped, and the wait with it.
    ///
    /// The permit for suspected poison events is acquired before, and no holder of memory waits for that permit: the
    /// payload of a dead letter, too, is only read when the dead letter is delivered.
    pub(super) async fn reserve_payload(
        &mut self,
        event: &FetchedEvent,
    ) -> Result<PayloadReservation, Ending> {
        let size = usize::try_from(event.size).unwrap_or(0);
        let context = self.context;
        if let Some(reservation) = context.shared.delivering.allowance.try_take(size) {
            return Ok(reservation);
        }
        if self.progress.is_unsettled() {
            // The wait may be long: a crash meanwhile repeats nothing.
            self.settle_and_keep().await?;
        }
        tokio::select! {
            biased;
            // An abort comes after the stop.
            () = context.stopping() => Err(Ending::Stopped(Stop::new(Operation::Release))),
            reservation = context.shared.delivering.allowance.take(size) => Ok(reservation),
        }
    }

    /// The event for the adapter. A payload that was not fetched is read now.
    pub(super) async fn event(&self, mut fetched: FetchedEvent) -> Result<Event, Unread> {
        let payload = match fetched.payload.take() {
            Some(payload) => payload,
            None => Box::pin(self.large_payload(&fetched)).await?,
        };
        let stream = &self.route.subscription.stream;
        Ok(event_of(fetched, payload, stream, &self.claimed.session))
    }

    /// Reads a payload over the pool, so that no lane connection waits for it.
    async fn large_payload(&self, event: &FetchedEvent) -> Result<String, Unread> {
        let client = self.context.shared.pool.get().await.map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "no connection for a large payload"
            );
            Unread::Later
        })?;
        let more = u64::try_from(event.size).unwrap_or(0) / READ_BYTES_PER_S;
        let limit = READ_WITHIN + Duration::from_secs(more);
        let dead_letter = self.progress.head_dead_letter();
        let reading = large_payload(&**client, self.claimed.session_id, event, dead_letter);
        timeout(limit, reading)
            .await
            .map_err(|_| {
                tracing::warn!(
                    seq = event.seq,
                    "large payload could not be read: Postgres does not answer"
                );
                Unread::Later
            })?
            .map_err(|error| {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    seq = event.seq,
                    "large payload could not be read"
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
