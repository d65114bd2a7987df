//! Streams of the Durable Streams protocol, which are sessions: what the protocol knows of them beside their events.
//!
//! Each function is one statement, and one transaction where the caller has none: what a producer sent and where it
//! stands are written together.

use jiff::Timestamp;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use super::append::AppendError;
use super::{StoreError, sqlstate};

/// A stream that is there.
#[derive(Clone, Debug)]
pub struct State {
    pub session_id: i64,
    pub content_type: String,
    /// What is before is of an earlier stream of the same name.
    pub first_seq: i64,
    /// `first_seq` - 1 where it has no event.
    pub newest: i64,
    pub closed: bool,
    pub ttl_seconds: Option<i64>,
    pub expires_at: Option<Timestamp>,
}

/// The stream of a session; `None` where there is none. With `is_use`, one that expires when it is idle stays.
///
/// # Errors
/// It cannot be read.
pub async fn state(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
    is_use: bool,
) -> Result<Option<State>, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/durable_state.sql"),
            &[
                (&stream, Type::TEXT),
                (&session, Type::TEXT),
                (&is_use, Type::BOOL),
            ],
        )
        .await
        .and_then(|row| {
            let Some(session_id) = row.try_get("session_id")? else {
                return Ok(None);
            };
            Ok(Some(State {
                session_id,
                content_type: row.try_get("content_type")?,
                first_seq: row.try_get("first_seq")?,
                newest: row.try_get("newest")?,
                closed: row.try_get("closed")?,
                ttl_seconds: row.try_get("ttl_seconds")?,
                expires_at: row.try_get("expires_at")?,
            }))
        })
        .map_err(StoreError::on("reading the state of a durable stream"))
}

/// A stream that is to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewStream<'a> {
    pub content_type: &'a str,
    pub ttl_seconds: Option<i64>,
    pub expires_at: Option<Timestamp>,
    pub closed: bool,
    /// An array as `enqueue_many` takes it, all of this session.
    pub events: Option<&'a str>,
    /// Whom it is created for, as in [`NewEvent`](super::append::NewEvent); `None`: whoever needs no token.
    pub on_behalf_of: Option<&'a str>,
}

/// What came of a creation.
#[derive(Clone, Debug)]
pub struct Created {
    pub outcome: Creation,
    pub newest: i64,
    pub closed: bool,
    pub content_type: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    Created,
    /// It is there as asked for.
    There,
    /// It is there, and not as asked for.
    Conflict,
}

/// Creates a stream.
///
/// # Errors
/// As [`enqueue_many`](super::append::enqueue_many): nothing was changed, except where the outcome is unknown.
pub async fn create(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
    new: &NewStream<'_>,
) -> Result<Created, AppendError> {
    client
        .query_typed_one(
            include_str!("sql/durable_create.sql"),
            &[
                (&stream, Type::TEXT),
                (&session, Type::TEXT),
                (&new.content_type, Type::TEXT),
                (&new.ttl_seconds, Type::INT8),
                (&new.expires_at, Type::TIMESTAMPTZ),
                (&new.closed, Type::BOOL),
                (&new.events, Type::TEXT),
                (&new.on_behalf_of, Type::TEXT),
            ],
        )
        .await
        .and_then(|row| {
            Ok(Created {
                outcome: match row.try_get::<_, &str>("outcome")? {
                    "created" => Creation::Created,
                    "there" => Creation::There,
                    _ => Creation::Conflict,
                },
                newest: row.try_get("newest")?,
                closed: row.try_get("closed")?,
                content_type: row.try_get("content_type")?,
            })
        })
        .map_err(AppendError::new)
}

/// Who appends, and where it stands: the protocol's `Producer-Id`, `Producer-Epoch` and `Producer-Seq`.
#[derive(Clone, Copy, Debug)]
pub struct Producer<'a> {
    pub id: &'a str,
    pub epoch: i64,
    pub seq: i64,
}

/// What one request appends.
#[derive(Clone, Copy, Debug)]
pub struct NewEvents<'a> {
    /// Empty where there are no events.
    pub content_type: &'a str,
    /// An array as `enqueue_many` takes it, all of this session.
    pub events: Option<&'a str>,
    /// `Stream-Seq`.
    pub writer_seq: Option<&'a str>,
    pub producer: Option<Producer<'a>>,
    pub close: bool,
    /// Whom it is appended for, as in [`NewEvent`](super::append::NewEvent); `None`: whoever needs no token.
    pub on_behalf_of: Option<&'a str>,
}

/// What came of an append.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    pub outcome: Outcome,
    /// 0 where the stream is missing.
    pub newest: i64,
    pub closed: bool,
    /// The epoch and seq at which the producer stands.
    pub producer: Option<(i64, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The producer sent it before.
    Duplicate,
    /// There is no such stream.
    Missing,
    Closed,
    OtherContentType,
    /// A later epoch of the producer has written.
    StaleEpoch,
    /// A new epoch does not begin with seq 0.
    NewEpoch,
    /// The producer's seq is not the next one.
    Gap,
    /// `Stream-Seq` is not above the last one.
    WriterSeq,
}

impl Appended {
    const MISSING: Self = Self {
        outcome: Outcome::Missing,
        newest: 0,
        closed: false,
        producer: None,
    };

    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let outcome = match row.try_get::<_, &str>("outcome")? {
            "done" => Outcome::Done,
            "duplicate" => Outcome::Duplicate,
            "closed" => Outcome::Closed,
            "content_type" => Outcome::OtherContentType,
            "stale_epoch" => Outcome::StaleEpoch,
            "new_epoch" => Outcome::NewEpoch,
            "gap" => Outcome::Gap,
            "writer_seq" => Outcome::WriterSeq,
            _ => return Ok(Self::MISSING),
        };
        let epoch: Option<i64> = row.try_get("epoch")?;
        let seq: Option<i64> = row.try_get("seq")?;
        Ok(Self {
            outcome,
            newest: row.try_get("newest")?,
            closed: row.try_get("closed")?,
            producer: epoch.zip(seq),
        })
    }
}

/// Appends to a stream, closes it, or both.
///
/// # Errors
/// As [`enqueue_many`](super::append::enqueue_many): nothing was changed, except where the outcome is unknown.
pub async fn append(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
    new: &NewEvents<'_>,
) -> Result<Appended, AppendError> {
    let id = new.producer.map(|producer| producer.id);
    let epoch = new.producer.map(|producer| producer.epoch);
    let seq = new.producer.map(|producer| producer.seq);
    let parameters: [(&(dyn ToSql + Sync), Type); 10] = [
        (&stream, Type::TEXT),
        (&session, Type::TEXT),
        (&new.content_type, Type::TEXT),
        (&new.events, Type::TEXT),
        (&new.writer_seq, Type::TEXT),
        (&id, Type::TEXT),
        (&epoch, Type::INT8),
        (&seq, Type::INT8),
        (&new.close, Type::BOOL),
        (&new.on_behalf_of, Type::TEXT),
    ];
    let row = client
        .query_typed_one(include_str!("sql/durable_append.sql"), &parameters)
        .await;
    match row.and_then(|row| Appended::from_row(&row)) {
        Ok(appended) => Ok(appended),
        Err(error) if is_missing(&error) => Ok(Appended::MISSING),
        Err(error) => Err(AppendError::new(error)),
    }
}

/// Deletes a stream. False where there is none.
///
/// # Errors
/// SQLSTATE LK007 where another transaction appends to the session and does not end within 5 s. Nothing was changed, except
/// where the outcome is unknown; the call may be repeated.
pub async fn delete(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
) -> Result<bool, StoreError> {
    let row = client
        .query_typed_one(
            include_str!("sql/durable_delete.sql"),
            &[(&stream, Type::TEXT), (&session, Type::TEXT)],
        )
        .await;
    match row.and_then(|row| row.try_get("deleted")) {
        Ok(deleted) => Ok(deleted),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(StoreError::on("deleting a durable stream")(error)),
    }
}

fn is_missing(error: &tokio_postgres::Error) -> bool {
    let code = error.code().map(tokio_postgres::error::SqlState::code);
    code == Some(sqlstate::NO_SESSION)
}
