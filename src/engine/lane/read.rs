//! What a lane reads itself, through the pool, so that no lane connection waits for it: payloads that were
//! too large to come with their batch, and requeued dead letters.
//!
//! Every read ends: a pooled connection that hangs must not hold the lane (I13).

use std::time::Duration;

use tokio::time::timeout;

use crate::store::ErrorClass;
use crate::store::fetch::{self, FetchedEvent};
use crate::store::letter::{self, RequeuedLetter};

/// How long a payload may take to arrive through the pool, and more by this many bytes a second.
const READ_WITHIN: Duration = Duration::from_secs(30);
const READ_BYTES_PER_S: u64 = 1 << 20;
/// The same for a dead letter, whose size is not known before: 256 MiB.
const LETTER_WITHIN: Duration = Duration::from_secs(30 + 256);

/// Reads the lane's next requeued dead letter through the pool.
pub(in crate::engine) async fn read_letter(
    pool: &deadpool_postgres::Pool,
    lane_id: i64,
) -> Result<Option<RequeuedLetter>, Unread> {
    let reading = async {
        let client = pool.get().await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(letter::next(&**client, lane_id).await?)
    };
    let read = timeout(LETTER_WITHIN, reading).await;
    read.unwrap_or_else(|silent| Err(silent.into()))
        .map_err(|error| {
            tracing::warn!(lane_id, error = &*error, "requeued dead letter not read");
            Unread::Later
        })
}

/// Why a payload that stayed behind could not be read.
pub(in crate::engine) enum Unread {
    Later,
    /// It can never leave Postgres, as text of over 1 GB.
    Never(String),
}

/// Reads a payload through the pool: no lane connection waits for it.
pub(in crate::engine) async fn read_large(
    pool: &deadpool_postgres::Pool,
    session_id: i64,
    event: &FetchedEvent,
) -> Result<String, Unread> {
    let client = pool.get().await.map_err(|error| {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "no connection for a large payload"
        );
        Unread::Later
    })?;
    let more = u64::try_from(event.size).unwrap_or(0) / READ_BYTES_PER_S;
    let limit = READ_WITHIN + Duration::from_secs(more);
    let reading = fetch::payload(&**client, session_id, event.seq, event.day);
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
