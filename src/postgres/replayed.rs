//! Reads what a held lane delivers again for a replay (I11: a large payload is read separately).

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::StoreError;
use super::fetch::FetchedEvent;

pub const NEXT: &str = include_str!("sql/next_replayed.sql");

/// What a lane that is replayed does next.
#[derive(Clone, Debug)]
pub enum Next {
    /// It is not replayed any more.
    Nothing,
    /// The replay was paused or is ending: the lane settles the seq up to which it is replayed, and goes on.
    LetGo {
        replay_id: i64,
        replayed_to: i64,
    },
    /// The replay's rate allows the next events then.
    Wait(Duration),
    Chunk(Chunk),
}

/// Events that a lane delivers again, in their order.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub replay_id: i64,
    pub replayed_to: i64,
    pub events: Vec<FetchedEvent>,
    /// How far the lane is replayed when these are passed: there may be more events, which are not delivered.
    pub to_seq: i64,
    /// The lane is at its end then.
    pub is_last: bool,
    /// The lane has requeued dead letters, which come behind the replay. Nobody changes that while the lane is held.
    pub has_requeued: bool,
}

/// The next events of a lane that this worker holds: at most `most`, with payloads of up to `inline_bytes`.
///
/// # Errors
/// Where they cannot be read. A rate's grant stays on record, and is used by the next call.
pub async fn next(
    client: &impl GenericClient,
    (lane_id, session_id): (i64, i64),
    most: i32,
    inline_bytes: i32,
) -> Result<Next, StoreError> {
    let rows = client
        .query_typed(
            NEXT,
            &[
                (&lane_id, Type::INT8),
                (&most, Type::INT4),
                (&session_id, Type::INT8),
                (&inline_bytes, Type::INT4),
            ],
        )
        .await
        .map_err(StoreError::on("reading what is replayed"))?;
    let Some(range) = rows.first() else {
        return Ok(Next::Nothing);
    };
    let Some(replay_id) = range.get::<_, Option<i64>>("replay_id") else {
        return Ok(Next::Nothing);
    };
    let replayed_to: i64 = range.get("replayed_to");
    let Some(to_seq) = range.get::<_, Option<i64>>("to_seq") else {
        return Ok(Next::LetGo {
            replay_id,
            replayed_to,
        });
    };
    let wait = Duration::from_millis(range.get::<_, i64>("wait_ms").try_into().unwrap_or(0));
    if !wait.is_zero() {
        return Ok(Next::Wait(wait));
    }
    let is_event = |row: &&Row| row.get::<_, Option<i64>>("seq").is_some();
    let events: Vec<FetchedEvent> = rows.iter().filter(is_event).map(event).collect();
    let is_full = i32::try_from(events.len()).is_ok_and(|read| read >= most);
    let (to_seq, is_last) = match events.last() {
        Some(last) if is_full && last.seq < to_seq => (last.seq, false),
        _ => (to_seq, range.get("is_last")),
    };
    Ok(Next::Chunk(Chunk {
        replay_id,
        replayed_to,
        events,
        to_seq,
        is_last,
        has_requeued: range.get("has_requeued"),
    }))
}

fn event(row: &Row) -> FetchedEvent {
    FetchedEvent {
        seq: row.get("seq"),
        day: row.get("day"),
        message_id: row.get("message_id"),
        event_type: row.get::<_, &str>("event_type").into(),
        created_at: row.get("created_at"),
        size: row.get("size"),
        matched: true,
        payload: row.get("payload"),
        headers: row.get("headers"),
    }
}
