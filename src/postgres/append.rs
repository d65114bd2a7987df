//! The producers' side: appending events, in a transaction of the caller's own where it wants one.
//!
//! Everything goes through `lanekeeper.enqueue` and `lanekeeper.enqueue_many`, which keep the order
//! (I1) and the ready entries (I13). Payloads and headers are JSON text and are passed through: only
//! Postgres reads them, so that depth and size are bounded in one place. Statements are unnamed,
//! and a transaction pooler may stand in between.
//!
//! ```no_run
//! use lanekeeper_postgres::append::{NewEvent, enqueue};
//!
//! # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let transaction = client.transaction().await?;
//! transaction.execute("UPDATE job SET state = 'done' WHERE id = 7", &[]).await?;
//! let event = NewEvent {
//!     dedupe_key: Some("job-7-done"),
//!     ..NewEvent::new("job-7", "job_done", r#"{"ok":true}"#)
//! };
//! enqueue(&transaction, "runs", &event).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::queue_full::QueueFull;
use super::schema_violation::SchemaViolation;
use super::seq_conflict::SeqConflict;
use super::{ErrorClass, Refusal, StoreError, sqlstate};

/// The stream that the engine alone appends to: the lifecycle feed.
pub const RESERVED_STREAM: &str = "lifecycle";

const APPEND: &str = include_str!("sql/append.sql");
const APPEND_AT: &str = include_str!("sql/append_at.sql");
const APPEND_MANY: &str = include_str!("sql/append_many.sql");

/// An event that is to be appended to a session's log.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    /// The ordering key inside the stream: 1 to 512 bytes. A new name makes a new session.
    pub session: &'a str,
    /// 1 to 200 bytes.
    pub event_type: &'a str,
    /// JSON text, at most the stream's `max_payload_bytes`.
    pub payload: &'a str,
    /// Drawn by Postgres where absent. A repeated one is a duplicate and is not appended again.
    pub message_id: Option<Uuid>,
    /// The producer's own name for the event, 1 to 512 bytes: a repeated one is a duplicate.
    pub dedupe_key: Option<&'a str>,
    /// -100 to 100; a higher one pulls its whole session forward, not the event past others.
    pub priority: i16,
    /// JSON text of an object.
    pub headers: Option<&'a str>,
    /// The seq that the event is to have, for a caller that keeps count: the session's newest plus one. Any other is
    /// [`AppendError::SeqConflict`]. Only of an event that is appended by itself.
    pub expected_seq: Option<i64>,
    /// For a program that appends for others, as the HTTP listener does: whose message id and dedupe key these are. Only
    /// [`Appender`](crate::appender::Appender) passes it on, and only from the owner of the schema does it mean anything.
    pub producer: Option<&'a str>,
}

impl<'a> NewEvent<'a> {
    /// An event with nothing but what every event has.
    pub fn new(session: &'a str, event_type: &'a str, payload: &'a str) -> Self {
        Self {
            session,
            event_type,
            payload,
            message_id: None,
            dedupe_key: None,
            priority: 0,
            headers: None,
            expected_seq: None,
            producer: None,
        }
    }
}

/// Where an event stands, once its transaction has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
pub struct Enqueued {
    pub message_id: Uuid,
    /// Position in the session's log.
    pub seq: i64,
    /// It was there before; the other fields are those of the first.
    pub duplicate: bool,
}

/// Why nothing was appended. The caller's transaction, if there is one, is aborted by it.
#[derive(Debug, Error)]
pub enum AppendError {
    #[error("{}", .0.message)]
    UnknownStream(Refusal),
    /// The stream names the roles that may append to it, and the caller is none of them.
    #[error("{}", .0.message)]
    NotAProducer(Refusal),
    #[error("{}", .0.message)]
    SessionClosed(Refusal),
    /// The session has as many undelivered events as a subscription takes.
    #[error("{}", .0.refusal.message)]
    QueueFull(QueueFull),
    /// The event would have had another seq than the one that was expected.
    #[error("{}", .0.refusal.message)]
    SeqConflict(SeqConflict),
    #[error("{}", .0.message)]
    PayloadTooLarge(Refusal),
    /// An argument that breaks a limit.
    #[error("{}", .0.message)]
    Invalid(Refusal),
    /// The payload does not match the schema of its event type.
    #[error("{}", .0.refusal.message)]
    Schema(SchemaViolation),
    #[error("the JSON has a number that Postgres cannot hold ({}): nothing was enqueued", .0.message)]
    NumberOutOfRange(Refusal),
    #[error("payload or headers are not JSON ({}): nothing was enqueued", .0.message)]
    NotJson(Refusal),
    #[error("the JSON is nested deeper than Postgres can read: nothing was enqueued")]
    TooDeep(Refusal),
    #[error("the JSON contains \\u0000, which Postgres cannot store: nothing was enqueued")]
    NulCharacter(Refusal),
    /// Only of calls with a deadline: the events may or may not have been appended.
    #[error("Postgres did not answer in time")]
    TimedOut,
    /// Where its class is [`ConnectionLost`](super::ErrorClass::ConnectionLost), outside of a
    /// transaction, the events may or may not have been appended: a message id or a dedupe key
    /// makes it safe to repeat the call.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a failure means for the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing is wrong with the event: the server, the network or the schema is not ready, or the
    /// outcome is unknown.
    Later,
    /// Its session takes no more at the moment; others may.
    SessionFull,
    /// Never: not its payload is the reason.
    Event,
    /// Never with this payload: too large, something that `jsonb` does not take, or not what its type's schema takes.
    Payload,
}

impl AppendError {
    /// Whatever is not known to be final is [`Fate::Later`]: keeping an event for too long is
    /// mended by an operator, dropping it is not.
    pub fn fate(&self) -> Fate {
        match self {
            Self::UnknownStream(_) | Self::NotAProducer(_) | Self::TimedOut => Fate::Later,
            Self::QueueFull(_) => Fate::SessionFull,
            Self::Invalid(_) | Self::SessionClosed(_) | Self::SeqConflict(_) => Fate::Event,
            Self::PayloadTooLarge(_)
            | Self::Schema(_)
            | Self::NotJson(_)
            | Self::TooDeep(_)
            | Self::NulCharacter(_)
            | Self::NumberOutOfRange(_) => Fate::Payload,
            Self::Store(error) => match error.sqlstate() {
                // Data exceptions and program limits.
                Some(code) if code.starts_with("22") || code.starts_with("54") => Fate::Payload,
                _ => Fate::Later,
            },
        }
    }

    /// Whether the events may be in the log all the same: a message id or a dedupe key makes it
    /// safe to repeat the call.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::TimedOut => true,
            Self::Store(error) => error.class() == ErrorClass::ConnectionLost,
            _ => false,
        }
    }

    /// Whether the schema is missing or older than this program.
    pub fn is_unmigrated(&self) -> bool {
        let Self::Store(error) = self else {
            return false;
        };
        [
            SqlState::UNDEFINED_FUNCTION,
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::UNDEFINED_TABLE,
        ]
        .iter()
        .any(|state| error.sqlstate() == Some(state.code()))
    }

    /// What the producer can do about it.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Self::UnknownStream(refusal)
            | Self::NotAProducer(refusal)
            | Self::SessionClosed(refusal)
            | Self::PayloadTooLarge(refusal)
            | Self::Invalid(refusal) => refusal.hint.as_deref(),
            Self::QueueFull(full) => full.refusal.hint.as_deref(),
            Self::Schema(violation) => violation.refusal.hint.as_deref(),
            Self::SeqConflict(conflict) => conflict.refusal.hint.as_deref(),
            Self::NotJson(_) => Some("pass one JSON value; text needs its quotes: '\"text\"'"),
            Self::TooDeep(_) => {
                Some("flatten it, or pass the inner document as text, or raise max_stack_depth")
            }
            Self::NulCharacter(_) => Some("leave the character out, or encode the text (base64)"),
            Self::NumberOutOfRange(_) => Some("pass it as text"),
            Self::TimedOut | Self::Store(_) => None,
        }
    }

    pub(super) fn new(source: tokio_postgres::Error) -> Self {
        let Some(said) = source.as_db_error() else {
            return StoreError::on("enqueueing")(source).into();
        };
        if said.code().code() == sqlstate::QUEUE_FULL {
            return Self::QueueFull(QueueFull::of(said));
        }
        if said.code().code() == sqlstate::SEQ_CONFLICT {
            return Self::SeqConflict(SeqConflict::of(said));
        }
        if said.code().code() == sqlstate::INVALID
            && let Some(violation) = SchemaViolation::of(said)
        {
            return Self::Schema(violation);
        }
        let refusal = match Self::of_schema(said.code().code(), Refusal::of(said)) {
            Ok(error) => return error,
            Err(refusal) => refusal,
        };
        match *said.code() {
            // A string or an object beyond what the type can hold.
            SqlState::PROGRAM_LIMIT_EXCEEDED => Self::PayloadTooLarge(refusal),
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE => Self::NumberOutOfRange(refusal),
            SqlState::INVALID_TEXT_REPRESENTATION => Self::NotJson(Refusal {
                // The message says only that it is not; the detail says why.
                message: said.detail().map_or(refusal.message, str::to_owned),
                hint: None,
            }),
            SqlState::STATEMENT_TOO_COMPLEX => Self::TooDeep(refusal),
            SqlState::UNTRANSLATABLE_CHARACTER => Self::NulCharacter(refusal),
            _ => StoreError::on("enqueueing")(source).into(),
        }
    }

    /// The variant of a SQLSTATE that the schema's functions raise; the refusal itself where there is none.
    ///
    /// # Errors
    /// The refusal, where the code is another one.
    pub fn of_schema(code: &str, refusal: Refusal) -> Result<Self, Refusal> {
        match code {
            sqlstate::UNKNOWN_STREAM => Ok(Self::UnknownStream(refusal)),
            sqlstate::NOT_A_PRODUCER => Ok(Self::NotAProducer(refusal)),
            sqlstate::QUEUE_FULL => Ok(Self::QueueFull(QueueFull::of_refusal(refusal, None))),
            sqlstate::SEQ_CONFLICT => Ok(Self::SeqConflict(SeqConflict { refusal, seq: None })),
            sqlstate::SESSION_CLOSED => Ok(Self::SessionClosed(refusal)),
            sqlstate::PAYLOAD_TOO_LARGE => Ok(Self::PayloadTooLarge(refusal)),
            sqlstate::INVALID => Ok(Self::Invalid(refusal)),
            _ => Err(refusal),
        }
    }

    /// A seq that is expected of one event among others: what is before it in the call has no seq yet.
    pub fn expected_of_many() -> Self {
        Self::Invalid(Refusal {
            message:
                "expected_seq goes with an event that is appended by itself: nothing was enqueued"
                    .to_owned(),
            hint: Some("append the event alone, or all of them without expected_seq".to_owned()),
        })
    }

    /// A field that is to be JSON text is none.
    pub fn not_json(field: &str, error: &serde_json::Error) -> Self {
        Self::NotJson(Refusal {
            message: format!("{field}: {error}"),
            hint: None,
        })
    }
}

/// Appends one event.
///
/// # Errors
/// Nothing was appended, except as [`AppendError::Store`] says.
pub async fn enqueue(
    client: &impl GenericClient,
    stream: &str,
    event: &NewEvent<'_>,
) -> Result<Enqueued, AppendError> {
    let headers = event.headers.unwrap_or("{}");
    let parameters: [(&(dyn ToSql + Sync), Type); 9] = [
        (&stream, Type::TEXT),
        (&event.session, Type::TEXT),
        (&event.event_type, Type::TEXT),
        (&event.payload, Type::TEXT),
        (&event.message_id, Type::UUID),
        (&event.dedupe_key, Type::TEXT),
        (&event.priority, Type::INT2),
        (&headers, Type::TEXT),
        (&event.expected_seq, Type::INT8),
    ];
    let row = match event.expected_seq {
        Some(_) => client.query_typed_one(APPEND_AT, &parameters).await,
        None => client.query_typed_one(APPEND, &parameters[..8]).await,
    };
    row.and_then(|row| enqueued(&row)).map_err(AppendError::new)
}

/// Appends events to one stream, in their order within each session: all of them or none. Locks
/// all sessions in one order, so that such calls never deadlock one another; some hundreds of
/// events a call are a good size.
///
/// # Errors
/// Nothing was appended, except as [`AppendError::Store`] says.
pub async fn enqueue_many(
    client: &impl GenericClient,
    stream: &str,
    events: &[NewEvent<'_>],
) -> Result<Vec<Enqueued>, AppendError> {
    enqueue_array(client, stream, &array(events)?).await
}

/// The array that `lanekeeper.enqueue_many` takes.
pub(super) fn array(events: &[NewEvent<'_>]) -> Result<String, AppendError> {
    if events.iter().any(|event| event.expected_seq.is_some()) {
        return Err(AppendError::expected_of_many());
    }
    let elements = events
        .iter()
        .map(Element::new)
        .collect::<Result<Vec<_>, _>>()?;
    serde_json::to_string(&elements).map_err(|error| AppendError::not_json("events", &error))
}

/// Like [`enqueue_many`], for events that are JSON text already: `events` is an array of objects
/// with the fields of [`NewEvent`], of which payload and headers are any JSON.
///
/// # Errors
/// As [`enqueue_many`]; one event that is not as described refuses all.
pub async fn enqueue_array(
    client: &impl GenericClient,
    stream: &str,
    events: &str,
) -> Result<Vec<Enqueued>, AppendError> {
    let rows = client
        .query_typed(APPEND_MANY, &[(&stream, Type::TEXT), (&events, Type::TEXT)])
        .await
        .map_err(AppendError::new)?;
    rows.iter()
        .map(enqueued)
        .collect::<Result<_, _>>()
        .map_err(AppendError::new)
}

pub(super) fn enqueued(row: &Row) -> Result<Enqueued, tokio_postgres::Error> {
    Ok(Enqueued {
        message_id: row.try_get("message_id")?,
        seq: row.try_get("seq")?,
        duplicate: row.try_get("duplicate")?,
    })
}

/// An element of the array that `lanekeeper.enqueue_many` takes.
#[derive(Serialize)]
pub struct Element<'a> {
    session: &'a str,
    event_type: &'a str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupe_key: Option<&'a str>,
    priority: i16,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_seq: Option<i64>,
}

impl<'a> Element<'a> {
    /// Checks that payload and headers are one JSON value each: text that is not would change the
    /// array around it.
    pub fn new(event: &NewEvent<'a>) -> Result<Self, AppendError> {
        let value = |field, text: &'a str| {
            serde_json::from_str::<&RawValue>(text)
                .map_err(|error| AppendError::not_json(field, &error))
        };
        Ok(Self {
            session: event.session,
            event_type: event.event_type,
            payload: value("payload", event.payload)?,
            message_id: event.message_id,
            dedupe_key: event.dedupe_key,
            priority: event.priority,
            headers: event
                .headers
                .map(|text| value("headers", text))
                .transpose()?,
            expected_seq: event.expected_seq,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_would_change_the_array_is_refused() {
        for payload in ["1},{\"session\":\"other\"", "", "nope", "1 2", "{\"a\":1"] {
            let refused = Element::new(&NewEvent::new("s", "t", payload)).err();
            assert!(
                matches!(refused, Some(AppendError::NotJson(_))),
                "{payload}"
            );
        }
    }

    #[test]
    fn json_passes_unchanged_however_deep_it_is() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        for payload in [deep.as_str(), " 1.50 ", "\"\\u0000\"", "null"] {
            let element = Element::new(&NewEvent::new("s", "t", payload)).unwrap();
            assert_eq!(element.payload.get(), payload.trim());
        }
    }
}
