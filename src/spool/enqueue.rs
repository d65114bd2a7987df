//! The producer's two statements, and what their failures mean for a record.
//!
//! Statements are unnamed (`query_typed`), so a transaction pooler may stand in between. A
//! statement that outlives its deadline is cancelled, best effort: a backend that waits for a
//! session's append lock must not pile up behind every hook call.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};

use super::{Record, SpoolError};

/// The stream of hook events.
const STREAM: &str = "hooks";

const ENQUEUE: &str = "SELECT r.seq, r.duplicate \
     FROM lanekeeper.enqueue($1, $2, $3, $4::jsonb, $5, NULL, 0::smallint, $6::jsonb) AS r";

const ENQUEUE_MANY: &str = "SELECT count(*), count(*) FILTER (WHERE r.duplicate) \
     FROM lanekeeper.enqueue_many($1, $2::jsonb) AS r";

/// How long a cancel request may take on top of the deadline that was missed.
const CANCEL_WAIT: Duration = Duration::from_millis(50);

/// What a refusal by the server means for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nothing is wrong with the record: the server, the network or the schema is not ready.
    Later,
    /// The session takes no more at the moment; others may.
    SessionFull,
    /// Never: its session, not its payload, is the reason.
    Record,
    /// Never with this payload: too large, or something that `jsonb` does not take.
    Payload,
}

/// Judged by SQLSTATE alone. Whatever is not known to be final is [`Refusal::Later`]: keeping an
/// event too long is mended by an operator, dropping it is not.
pub(crate) fn refusal(error: &tokio_postgres::Error) -> Refusal {
    let Some(code) = error.code() else {
        return Refusal::Later;
    };
    match code.code() {
        "LK001" => Refusal::SessionFull,
        "LK002" | "LK006" => Refusal::Record,
        "LK005" => Refusal::Payload,
        // Data exceptions (a number or an escape that jsonb does not take) and program limits
        // (too many elements, nested too deep for the server's stack).
        code if code.starts_with("22") || code.starts_with("54") => Refusal::Payload,
        _ => Refusal::Later,
    }
}

/// Whether the schema is missing or older than this program.
pub(crate) fn is_unmigrated(error: &tokio_postgres::Error) -> bool {
    [
        SqlState::UNDEFINED_FUNCTION,
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::UNDEFINED_TABLE,
    ]
    .iter()
    .any(|state| error.code() == Some(state))
}

/// Connects for a few statements. The connection ends with the client.
pub(crate) async fn connect(database: &Config, deadline: Instant) -> Result<Client, SpoolError> {
    let mut database = database.clone();
    database.application_name("lanekeeper hook");
    let (client, connection) = timeout_at(deadline, database.connect(NoTls))
        .await
        .map_err(|_| SpoolError::TimedOut)?
        .map_err(|source| SpoolError::Database { source })?;
    tokio::spawn(async move {
        // Every statement's own result tells of a broken connection.
        let _ = connection.await;
    });
    Ok(client)
}

/// Appends one event. Its message id makes a second call harmless.
pub(crate) async fn enqueue(
    client: &Client,
    record: &Record,
    deadline: Instant,
) -> Result<(), SpoolError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 6] = [
        (&STREAM, Type::TEXT),
        (&record.session, Type::TEXT),
        (&record.event_type, Type::TEXT),
        (&record.payload.get(), Type::TEXT),
        (&record.message_id, Type::UUID),
        (&record.headers.get(), Type::TEXT),
    ];
    one_row(client, deadline, ENQUEUE, &parameters)
        .await
        .map(|_| ())
}

/// Appends the records of one JSON array, in order, all or none; how many, and how many of those
/// were there already.
pub(super) async fn enqueue_many(
    client: &Client,
    records: &str,
    deadline: Instant,
) -> Result<(u64, u64), SpoolError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 2] =
        [(&STREAM, Type::TEXT), (&records, Type::TEXT)];
    let row = one_row(client, deadline, ENQUEUE_MANY, &parameters).await?;
    let count = |column| {
        let count: i64 = row.get(column);
        count.unsigned_abs()
    };
    Ok((count(0), count(1)))
}

async fn one_row(
    client: &Client,
    deadline: Instant,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Row, SpoolError> {
    match timeout_at(deadline, client.query_typed_one(statement, parameters)).await {
        Ok(answer) => answer.map_err(|source| SpoolError::Database { source }),
        Err(_) => {
            // Best effort: whether it worked or not, the outcome stays unknown.
            let _ = timeout(CANCEL_WAIT, client.cancel_token().cancel_query(NoTls)).await;
            Err(SpoolError::TimedOut)
        }
    }
}
