//! Interrupts sessions and cancels messages, in a transaction of the caller's own where it wants one.

use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::StoreError;
use super::append::{AppendError, NewEvent};

/// What an interrupt does to the session, beside appending its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// What waits is appended again behind the interrupt: at most 1,000 events with 16 MiB.
    pub keep_waiting: bool,
    /// The delivery that is under way is cancelled. Without, the interrupt is a barrier: that delivery ends by itself.
    pub cancel_running: bool,
}

impl Default for Interrupt {
    fn default() -> Self {
        Self {
            keep_waiting: false,
            cancel_running: true,
        }
    }
}

/// What came of an interrupt, once its transaction has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Interrupted {
    pub message_id: Uuid,
    /// Position in the session's log.
    pub seq: i64,
    /// It was there before; the other fields are those of the first, and nothing was done.
    pub duplicate: bool,
    /// Events that got the outcome `superseded`, as of the lane that was furthest behind.
    pub superseded: i64,
    /// Events that were appended again behind it.
    pub appended_again: i64,
}

/// Appends an event that is the next one of its session: what waits before it is superseded.
///
/// # Errors
/// Nothing was changed; after [`ErrorClass::ConnectionLost`](super::ErrorClass::ConnectionLost) outside of a transaction
/// nobody knows. SQLSTATE LK007 where another transaction appends to the session and does not end within 5 s.
pub async fn interrupt(
    client: &impl GenericClient,
    stream: &str,
    event: &NewEvent<'_>,
    what: Interrupt,
) -> Result<Interrupted, AppendError> {
    let row = client
        .query_typed_one(
            include_str!("sql/interrupt.sql"),
            &[
                (&stream, Type::TEXT),
                (&event.session, Type::TEXT),
                (&event.event_type, Type::TEXT),
                (&event.payload, Type::TEXT),
                (&what.keep_waiting, Type::BOOL),
                (&what.cancel_running, Type::BOOL),
                (&event.message_id, Type::UUID),
                (&event.dedupe_key, Type::TEXT),
                (&event.priority, Type::INT2),
                (&event.headers.unwrap_or("{}"), Type::TEXT),
                (&event.producer, Type::TEXT),
            ],
        )
        .await
        .map_err(AppendError::new)?;
    let read = || {
        Ok(Interrupted {
            message_id: row.try_get("message_id")?,
            seq: row.try_get("seq")?,
            duplicate: row.try_get("duplicate")?,
            superseded: row.try_get("superseded")?,
            appended_again: row.try_get("appended_again")?,
        })
    };
    read().map_err(|error| StoreError::on("interrupting a session")(error).into())
}

/// What came of the cancellation of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cancelled {
    /// It waited, and is not delivered.
    Cancelled,
    /// A worker holds it: its delivery is cancelled, unless it ends first.
    Running,
    /// Every lane of its session has passed it.
    AlreadySettled,
    /// There is no such message.
    Unknown,
}

impl Cancelled {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Running => "running",
            Self::AlreadySettled => "already_settled",
            Self::Unknown => "unknown",
        }
    }
}

/// Which message is to be cancelled.
#[derive(Clone, Copy, Debug)]
pub struct Cancel<'a> {
    pub message_id: Uuid,
    /// Its stream and session, where they are known: the day of the message is read otherwise.
    pub session: Option<(&'a str, &'a str)>,
    /// Only if it is of one of these streams.
    pub streams: Option<&'a [String]>,
    /// For a program that cancels for others, as [`NewEvent::producer`].
    pub producer: Option<&'a str>,
}

/// Cancels a message in every lane that has not settled it.
///
/// # Errors
/// Nothing was changed. SQLSTATEs: LK007 another transaction has it locked for more than 5 s; LK009 a stream of other
/// producers.
pub async fn cancel(
    client: &impl GenericClient,
    which: Cancel<'_>,
) -> Result<Cancelled, StoreError> {
    let (stream, session) = which.session.unzip();
    let row = client
        .query_typed_one(
            include_str!("sql/cancel.sql"),
            &[
                (&which.message_id, Type::UUID),
                (&stream, Type::TEXT),
                (&session, Type::TEXT),
                (&which.streams, Type::TEXT_ARRAY),
                (&which.producer, Type::TEXT),
            ],
        )
        .await
        .map_err(StoreError::on("cancelling a message"))?;
    Ok(match row.get("result") {
        "cancelled" => Cancelled::Cancelled,
        "running" => Cancelled::Running,
        "already_settled" => Cancelled::AlreadySettled,
        _ => Cancelled::Unknown,
    })
}
