//! Appends the events of several calls in one transaction, with a bound on the wait for a session's append lock.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::append::{self, AppendError, Enqueued, NewEvent};

const APPEND_NOW: &str = include_str!("../sql/append_now.sql");
const NOW_TYPES: [Type; 10] = [
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::UUID,
    Type::TEXT,
    Type::INT2,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
];
const APPEND_AT_NOW: &str = include_str!("../sql/append_at_now.sql");
const AT_NOW_TYPES: [Type; 11] = [
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::UUID,
    Type::TEXT,
    Type::INT2,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::INT8,
];
const APPEND_MANY_NOW: &str = include_str!("../sql/append_many_now.sql");
const MANY_NOW_TYPES: [Type; 4] = [Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT];
const HELD_SESSIONS: &str = include_str!("../sql/held_sessions.sql");
const HELD_TYPES: [Type; 2] = [Type::TEXT_ARRAY, Type::TEXT_ARRAY];
const APPEND_GROUP: &str = include_str!("../sql/append_group.sql");
const GROUP_TYPES: [Type; 10] = [
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::UUID_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT2_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT,
    Type::TEXT_ARRAY,
];
/// The longest wait for a session that another transaction appends to. Other appends of this process end sooner than
/// this. A longer wait means an open transaction of a producer, or a slow disk: then one call waits for the session
/// alone.
pub const LOCK_TIMEOUT: &str = "50ms";

/// A [`NewEvent`] that outlives its caller's wait. One with an expected seq does not wait for others.
pub struct Kept {
    session: String,
    event_type: String,
    payload: String,
    message_id: Option<Uuid>,
    dedupe_key: Option<String>,
    priority: i16,
    headers: Option<String>,
    producer: Option<String>,
}

impl Kept {
    pub fn new(event: &NewEvent<'_>) -> Self {
        Self {
            session: event.session.to_owned(),
            event_type: event.event_type.to_owned(),
            payload: event.payload.to_owned(),
            message_id: event.message_id,
            dedupe_key: event.dedupe_key.map(str::to_owned),
            priority: event.priority,
            headers: event.headers.map(str::to_owned),
            producer: event.producer.map(str::to_owned),
        }
    }

    pub fn event(&self) -> NewEvent<'_> {
        NewEvent {
            message_id: self.message_id,
            dedupe_key: self.dedupe_key.as_deref(),
            priority: self.priority,
            headers: self.headers.as_deref(),
            producer: self.producer.as_deref(),
            ..NewEvent::new(&self.session, &self.event_type, &self.payload)
        }
    }
}

/// Events of one stream from which on the bulk function costs less than a call for each.
const MANY: usize = 16;

/// Appends events in one transaction: sorted by stream and session, so that two such transactions never wait for each
/// other in a circle, and otherwise in the order given. Returns where they stand, in that order. `lock_timeout`: for how long
/// a session is waited for; `None`: as long as the connection may.
///
/// # Errors
/// As [`append::enqueue`]; one event that is refused refuses all.
pub async fn append(
    client: &ClientWrapper,
    events: &[(&str, NewEvent<'_>)],
    lock_timeout: Option<&str>,
) -> Result<Vec<Enqueued>, AppendError> {
    if let [(stream, event)] = events {
        let appended = append_one(client, stream, event, lock_timeout).await;
        return appended.map(|one| vec![one]);
    }
    let origin = |(stream, event): &(&str, NewEvent<'_>)| {
        (*stream, event.producer) == (events[0].0, events[0].1.producer)
    };
    if events.len() >= MANY && events.iter().all(origin) {
        let (streams, events): (Vec<&str>, Vec<NewEvent<'_>>) = events.iter().copied().unzip();
        return append_many(client, streams[0], &events, lock_timeout).await;
    }
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|&at| (events[at].0, events[at].1.session));
    let sorted = || order.iter().map(|&at| &events[at].1);
    let streams: Vec<&str> = order.iter().map(|&at| events[at].0).collect();
    let sessions: Vec<&str> = sorted().map(|event| event.session).collect();
    let event_types: Vec<&str> = sorted().map(|event| event.event_type).collect();
    let payloads: Vec<&str> = sorted().map(|event| event.payload).collect();
    let message_ids: Vec<Option<Uuid>> = sorted().map(|event| event.message_id).collect();
    let dedupe_keys: Vec<Option<&str>> = sorted().map(|event| event.dedupe_key).collect();
    let priorities: Vec<i16> = sorted().map(|event| event.priority).collect();
    let headers: Vec<&str> = sorted()
        .map(|event| event.headers.unwrap_or("{}"))
        .collect();
    let producers: Vec<Option<&str>> = sorted().map(|event| event.producer).collect();
    let parameters: [&(dyn ToSql + Sync); 10] = [
        &streams,
        &sessions,
        &event_types,
        &payloads,
        &message_ids,
        &dedupe_keys,
        &priorities,
        &headers,
        &lock_timeout,
        &producers,
    ];
    let asking = async {
        let statement = client
            .prepare_typed_cached(APPEND_GROUP, &GROUP_TYPES)
            .await?;
        let rows = client.query(&statement, &parameters).await?;
        let mut enqueued = rows
            .iter()
            .map(|row| {
                let ord: i64 = row.try_get("ord")?;
                // Rows count from 1.
                Ok((order[ord as usize - 1], append::enqueued(row)?))
            })
            .collect::<Result<Vec<_>, tokio_postgres::Error>>()?;
        enqueued.sort_unstable_by_key(|(at, _)| *at);
        Ok(enqueued.into_iter().map(|(_, one)| one).collect())
    };
    let appended = asking.await.map_err(AppendError::new);
    if matches!(appended, Err(AppendError::Schema(_))) && events.iter().all(origin) {
        // Nothing was appended, and the bulk function says which event it was.
        let (streams, events): (Vec<&str>, Vec<NewEvent<'_>>) = events.iter().copied().unzip();
        return append_many(client, streams[0], &events, lock_timeout).await;
    }
    appended
}

async fn append_one(
    client: &ClientWrapper,
    stream: &str,
    event: &NewEvent<'_>,
    lock_timeout: Option<&str>,
) -> Result<Enqueued, AppendError> {
    let headers = event.headers.unwrap_or("{}");
    let parameters: [&(dyn ToSql + Sync); 11] = [
        &stream,
        &event.session,
        &event.event_type,
        &event.payload,
        &event.message_id,
        &event.dedupe_key,
        &event.priority,
        &headers,
        &lock_timeout,
        &event.producer,
        &event.expected_seq,
    ];
    let asking = async {
        let (text, types) = match event.expected_seq {
            Some(_) => (APPEND_AT_NOW, &AT_NOW_TYPES[..]),
            None => (APPEND_NOW, &NOW_TYPES[..]),
        };
        let statement = client.prepare_typed_cached(text, types).await?;
        let parameters = &parameters[..types.len()];
        append::enqueued(&client.query_one(&statement, parameters).await?)
    };
    asking.await.map_err(AppendError::new)
}

async fn append_many(
    client: &ClientWrapper,
    stream: &str,
    events: &[NewEvent<'_>],
    lock_timeout: Option<&str>,
) -> Result<Vec<Enqueued>, AppendError> {
    let producer = events.first().and_then(|event| event.producer);
    let array = append::array(events)?;
    let asking = async {
        let statement = client
            .prepare_typed_cached(APPEND_MANY_NOW, &MANY_NOW_TYPES)
            .await?;
        let parameters: [&(dyn ToSql + Sync); 4] = [&stream, &array, &lock_timeout, &producer];
        let rows = client.query(&statement, &parameters).await?;
        rows.iter()
            .map(append::enqueued)
            .collect::<Result<Vec<_>, tokio_postgres::Error>>()
    };
    asking.await.map_err(AppendError::new)
}

/// Which of these sessions an append may have to wait for, new ones among them.
///
/// # Errors
/// It is not known.
pub async fn held_sessions<'a>(
    client: &ClientWrapper,
    sessions: &[(&'a str, &'a str)],
) -> Result<Vec<(&'a str, &'a str)>, tokio_postgres::Error> {
    let (streams, names): (Vec<&str>, Vec<&str>) = sessions.iter().copied().unzip();
    let statement = client
        .prepare_typed_cached(HELD_SESSIONS, &HELD_TYPES)
        .await?;
    let rows = client.query(&statement, &[&streams, &names]).await?;
    rows.iter()
        .map(|row| {
            let ord: i64 = row.try_get(0)?;
            Ok(sessions[ord as usize - 1])
        })
        .collect()
}
