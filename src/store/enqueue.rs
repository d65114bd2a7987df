//! What producers call: appending one event, or a run of them.
//!
//! Statements are unnamed (`query_typed`), so a transaction pooler may stand in between. One that
//! outlives its deadline is cancelled, best effort: a backend that waits for a session's append lock
//! must not pile up behind every hook call. Its outcome stays unknown all the same; the message id
//! makes the second try harmless.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};
use uuid::Uuid;

/// How long a cancel request may take on top of the deadline that was missed.
const CANCEL_WAIT: Duration = Duration::from_millis(50);

/// An event on its way in.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    pub stream: &'a str,
    pub session: &'a str,
    pub event_type: &'a str,
    /// JSON text.
    pub payload: &'a str,
    /// Made by the producer, once.
    pub message_id: Uuid,
    /// JSON text of an object.
    pub headers: &'a str,
}

/// Where an event stands in its session's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub seq: i64,
    /// It was there already.
    pub duplicate: bool,
}

/// How many events a bulk call found and made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedMany {
    pub events: u64,
    pub duplicates: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// The event may or may not be in the log.
    #[error("Postgres did not answer in time")]
    TimedOut,
    #[error("Postgres did not take the event")]
    Failed(#[source] tokio_postgres::Error),
}

/// What a failure means for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing is wrong with the event: the server, the network or the schema is not ready, or the
    /// outcome is unknown.
    Later,
    /// Its session takes no more at the moment; others may.
    SessionFull,
    /// Never: not its payload is the reason.
    Event,
    /// Never with this payload: too large, or something that `jsonb` does not take.
    Payload,
}

impl EnqueueError {
    /// Judged by SQLSTATE alone. Whatever is not known to be final is [`Refusal::Later`]: keeping
    /// an event for too long is mended by an operator, dropping it is not.
    pub fn refusal(&self) -> Refusal {
        match self.code() {
            Some("LK001") => Refusal::SessionFull,
            Some("LK002" | "LK006") => Refusal::Event,
            Some("LK005") => Refusal::Payload,
            // Data exceptions (a number or an escape that jsonb does not take) and program limits
            // (too many elements, nested too deep for the server's stack).
            Some(code) if code.starts_with("22") || code.starts_with("54") => Refusal::Payload,
            _ => Refusal::Later,
        }
    }

    /// Whether the schema is missing or older than this program.
    pub fn is_unmigrated(&self) -> bool {
        [
            SqlState::UNDEFINED_FUNCTION,
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::UNDEFINED_TABLE,
        ]
        .iter()
        .any(|state| self.code() == Some(state.code()))
    }

    fn code(&self) -> Option<&str> {
        match self {
            Self::TimedOut => None,
            Self::Failed(source) => source.code().map(SqlState::code),
        }
    }
}

/// Connects for a few statements, with no check of server or schema: a hook has no time for them.
/// The connection ends with the client.
pub async fn connect(database: &Config, deadline: Instant) -> Result<Client, EnqueueError> {
    let (client, connection) = timeout_at(deadline, database.connect(NoTls))
        .await
        .map_err(|_| EnqueueError::TimedOut)?
        .map_err(EnqueueError::Failed)?;
    tokio::spawn(async move {
        // Every statement's own result tells of a broken connection.
        let _ = connection.await;
    });
    Ok(client)
}

/// Appends one event.
pub async fn enqueue(
    client: &Client,
    event: &NewEvent<'_>,
    deadline: Instant,
) -> Result<Appended, EnqueueError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 6] = [
        (&event.stream, Type::TEXT),
        (&event.session, Type::TEXT),
        (&event.event_type, Type::TEXT),
        (&event.payload, Type::TEXT),
        (&event.message_id, Type::UUID),
        (&event.headers, Type::TEXT),
    ];
    let row = one_row(
        client,
        deadline,
        include_str!("sql/enqueue.sql"),
        &parameters,
    )
    .await?;
    Ok(Appended {
        seq: row.get("seq"),
        duplicate: row.get("duplicate"),
    })
}

/// Appends the events of a JSON array, whose elements have the fields of [`NewEvent`] except the
/// stream; all or none.
pub async fn enqueue_many(
    client: &Client,
    stream: &str,
    events: &str,
    deadline: Instant,
) -> Result<AppendedMany, EnqueueError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 2] =
        [(&stream, Type::TEXT), (&events, Type::TEXT)];
    let statement = include_str!("sql/enqueue_many.sql");
    let row = one_row(client, deadline, statement, &parameters).await?;
    let count = |column| row.get::<_, i64>(column).unsigned_abs();
    Ok(AppendedMany {
        events: count("events"),
        duplicates: count("duplicates"),
    })
}

async fn one_row(
    client: &Client,
    deadline: Instant,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Row, EnqueueError> {
    match timeout_at(deadline, client.query_typed_one(statement, parameters)).await {
        Ok(answer) => answer.map_err(EnqueueError::Failed),
        Err(_) => {
            let _ = timeout(CANCEL_WAIT, client.cancel_token().cancel_query(NoTls)).await;
            Err(EnqueueError::TimedOut)
        }
    }
}
