//! Waiting for the answer to a request that was sent to another agent (docs/frames.md).
//!
//! Whoever waits says so before the request is appended: the answer may come at once, and to another worker. It is looked for
//! in Postgres at growing intervals, so that a wait holds neither a connection nor a transaction.

use std::time::Duration;

use deadpool_postgres::Pool;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::StoreError;
use super::log::{LoggedEvent, Reader};

/// Between two looks; it doubles up to the second.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(320)];

/// The answer to a request, as it was received.
#[derive(Debug)]
pub struct Response {
    /// Where it was received.
    pub stream: String,
    pub session: String,
    pub event: LoggedEvent,
}

/// Why it is not known whether there is an answer.
#[derive(Debug, Error)]
pub enum ResponseError {
    #[error("no connection to Postgres")]
    NoConnection(#[source] deadpool_postgres::PoolError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Says that the answer to this request, which is appended to `stream` next, is waited for: in the transaction that appends it,
/// or before that.
///
/// # Errors
/// Nothing was remembered.
pub async fn expect_response(
    client: &impl GenericClient,
    stream: &str,
    request_id: Uuid,
) -> Result<(), StoreError> {
    client
        .query_typed(
            include_str!("sql/response_await.sql"),
            &[(&request_id, Type::UUID), (&stream, Type::TEXT)],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("waiting for an answer"))
}

/// Enters answers, each the event of this session with this seq, for those who wait for them.
///
/// # Errors
/// None was entered.
pub async fn enter_responses(
    client: &impl GenericClient,
    answers: &[(Uuid, i64)],
    stream: &str,
    session: &str,
    peer: Option<&str>,
) -> Result<(), StoreError> {
    let (requests, seqs): (Vec<Uuid>, Vec<i64>) = answers.iter().copied().unzip();
    client
        .query_typed(
            include_str!("sql/response_enter.sql"),
            &[
                (&requests, Type::UUID_ARRAY),
                (&seqs, Type::INT8_ARRAY),
                (&stream, Type::TEXT),
                (&session, Type::TEXT),
                (&peer, Type::TEXT),
            ],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("entering the answer to a request"))
}

/// Waits for the answer to a request of this stream, of which [`expect_response`] was told. `None`: there was none within that
/// time; the wait may be repeated for a day.
///
/// # Errors
/// Where Postgres cannot be asked.
pub async fn response(
    pool: &Pool,
    stream: &str,
    request_id: Uuid,
    within: Duration,
) -> Result<Option<Response>, ResponseError> {
    let until = Instant::now() + within;
    let [mut pause, longest] = LOOK_EVERY;
    loop {
        let looking = async {
            let client = pool.get().await.map_err(ResponseError::NoConnection)?;
            Ok(find_response(&**client, stream, request_id).await?)
        };
        // One look at least, however short the wait.
        match timeout_at(until.max(Instant::now() + longest), looking).await {
            Ok(Ok(None)) => {}
            Ok(found) => return found,
            Err(_) => return Ok(None),
        }
        if Instant::now() + pause >= until {
            return Ok(None);
        }
        sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// The answer to a request of which [`expect_response`] was told, if it is there by now.
///
/// # Errors
/// Where it cannot be read.
pub async fn find_response(
    client: &impl GenericClient,
    stream: &str,
    request_id: Uuid,
) -> Result<Option<Response>, StoreError> {
    let operation = "looking for the answer to a request";
    let rows = client
        .query_typed(
            include_str!("sql/response_find.sql"),
            &[(&request_id, Type::UUID), (&stream, Type::TEXT)],
        )
        .await
        .map_err(StoreError::on(operation))?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let (session_id, seq): (i64, i64) = (row.get("session_id"), row.get("seq"));
    let events = Reader::new(session_id, seq).page(client).await?;
    // The log may have dropped it.
    let event = events.into_iter().next().filter(|event| event.seq == seq);
    Ok(event.map(|event| Response {
        stream: row.get("stream"),
        session: row.get("session"),
        event,
    }))
}
