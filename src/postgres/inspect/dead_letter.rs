//! Dead letters with their contents.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::session::Stretch;
use super::{StoreError, read};

/// An exhausted event.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct DeadLetter {
    pub dead_id: i64,
    pub lane_id: i64,
    pub stream: String,
    pub session: String,
    pub subscription: String,
    pub seq: i64,
    pub message_id: Uuid,
    pub event_type: String,
    pub created_at: Timestamp,
    pub attempts: i32,
    pub crashes: i32,
    pub error: String,
    pub died_at: Timestamp,
    /// What an operator did with it; absent while it waits for one.
    pub resolution: Option<String>,
    pub resolved_at: Option<Timestamp>,
    /// Present while it waits to be delivered again.
    pub requeued_at: Option<Timestamp>,
}

impl DeadLetter {
    /// For an operator: it was not dealt with, and is not about to be delivered again.
    pub fn waits(&self) -> bool {
        self.resolution.is_none() && self.requeued_at.is_none()
    }

    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            dead_id: row.try_get("dead_id")?,
            lane_id: row.try_get("lane_id")?,
            stream: row.try_get("stream")?,
            session: row.try_get("session")?,
            subscription: row.try_get("subscription")?,
            seq: row.try_get("seq")?,
            message_id: row.try_get("message_id")?,
            event_type: row.try_get("event_type")?,
            created_at: row.try_get("created_at")?,
            attempts: row.try_get("attempts")?,
            crashes: row.try_get("crashes")?,
            error: row.try_get("error")?,
            died_at: row.try_get("died_at")?,
            resolution: row.try_get("resolution")?,
            resolved_at: row.try_get("resolved_at")?,
            requeued_at: row.try_get("requeued_at")?,
        })
    }
}

/// A dead letter with the event's content.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "DeadLetterInFull")]
pub struct Letter {
    #[serde(flatten)]
    pub about: DeadLetter,
    pub payload: Box<RawValue>,
    pub headers: Option<Box<RawValue>>,
}

/// Which dead letters are listed.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadLetterFilter {
    pub subscription_id: Option<i32>,
    pub session_id: Option<i64>,
    /// Those that were dealt with too.
    pub resolved: bool,
}

/// The newest `limit` dead letters.
///
/// # Errors
/// Where they cannot be read.
pub async fn dead_letters(
    client: &impl GenericClient,
    filter: DeadLetterFilter,
    limit: i64,
) -> Result<Vec<DeadLetter>, StoreError> {
    let statement = include_str!("../sql/dead_letter_list.sql");
    read(
        client,
        "listing dead letters",
        statement,
        &[
            (&filter.subscription_id, Type::INT4),
            (&filter.session_id, Type::INT8),
            (&filter.resolved, Type::BOOL),
            (&limit, Type::INT8),
        ],
        DeadLetter::from_row,
    )
    .await
}

/// Dead letters that are read for a page of them.
const STRETCH: i64 = 5_000;

/// Which dead letters are on a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadLetterPage<'a> {
    /// `None`: of all.
    pub subscription_ids: Option<&'a [i32]>,
    pub session_id: Option<i64>,
    /// Those that were dealt with too.
    pub resolved: bool,
    /// With a lower id: where the page before ended.
    pub before: Option<i64>,
    /// Those with this text in their error or their type, in upper or lower case.
    pub text: Option<&'a str>,
}

/// The newest `limit` dead letters of a page.
///
/// # Errors
/// Where they cannot be read.
pub async fn dead_letter_page(
    client: &impl GenericClient,
    page: DeadLetterPage<'_>,
    limit: i64,
) -> Result<Stretch<DeadLetter>, StoreError> {
    let rows = read(
        client,
        "listing dead letters",
        include_str!("../sql/dead_letter_page.sql"),
        &[
            (&page.subscription_ids, Type::INT4_ARRAY),
            (&page.session_id, Type::INT8),
            (&page.resolved, Type::BOOL),
            (&page.before, Type::INT8),
            (&page.text, Type::TEXT),
            (&STRETCH, Type::INT8),
            (&limit, Type::INT8),
        ],
        |row| {
            let letter = match row.try_get::<_, Option<i64>>("dead_id")? {
                Some(_) => Some(DeadLetter::from_row(row)?),
                None => None,
            };
            Ok((row.try_get("scanned_to")?, letter))
        },
    )
    .await?;
    Ok(Stretch::of(rows))
}

/// Dead letters by id, without what they carry; ids that there are not are left out.
///
/// # Errors
/// Where they cannot be read.
pub async fn dead_letters_by_id(
    client: &impl GenericClient,
    ids: &[i64],
) -> Result<Vec<DeadLetter>, StoreError> {
    let found = excerpts(client, ids, 0).await?;
    Ok(found.into_iter().map(|(letter, ..)| letter).collect())
}

/// A dead letter with at most `characters` of its payload, and the bytes that all of it has.
///
/// # Errors
/// Where it cannot be read.
pub async fn dead_letter_excerpt(
    client: &impl GenericClient,
    dead_id: i64,
    characters: i32,
) -> Result<Option<(DeadLetter, String, i32)>, StoreError> {
    Ok(excerpts(client, &[dead_id], characters).await?.pop())
}

async fn excerpts(
    client: &impl GenericClient,
    ids: &[i64],
    characters: i32,
) -> Result<Vec<(DeadLetter, String, i32)>, StoreError> {
    read(
        client,
        "reading dead letters",
        include_str!("../sql/dead_letter_excerpt.sql"),
        &[(&ids, Type::INT8_ARRAY), (&characters, Type::INT4)],
        |row| {
            let letter = DeadLetter::from_row(row)?;
            Ok((letter, row.try_get("payload")?, row.try_get("size")?))
        },
    )
    .await
}

/// Since when a dead letter died, by Postgres' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    At(Timestamp),
    /// So long ago.
    Ago(Duration),
}

/// The oldest `limit` dead letters that wait for an operator and are not requeued.
///
/// # Errors
/// Where they cannot be read.
pub async fn waiting_dead_letters(
    client: &impl GenericClient,
    filter: DeadLetterFilter,
    since: Option<Since>,
    limit: i64,
) -> Result<Vec<DeadLetter>, StoreError> {
    let (at, ago_ms) = match since {
        None => (None, None),
        Some(Since::At(at)) => (Some(at), None),
        Some(Since::Ago(ago)) => (
            None,
            Some(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)),
        ),
    };
    let statement = include_str!("../sql/dead_letter_waiting.sql");
    read(
        client,
        "looking for dead letters",
        statement,
        &[
            (&filter.subscription_id, Type::INT4),
            (&filter.session_id, Type::INT8),
            (&at, Type::TIMESTAMPTZ),
            (&ago_ms, Type::INT8),
            (&limit, Type::INT8),
        ],
        DeadLetter::from_row,
    )
    .await
}

/// Dead letters by id; ids that there are not are left out.
///
/// # Errors
/// Where they cannot be read.
pub async fn letters(client: &impl GenericClient, ids: &[i64]) -> Result<Vec<Letter>, StoreError> {
    let statement = include_str!("../sql/dead_letter.sql");
    let from_row = |row: &Row| {
        let headers: Option<Json<Box<RawValue>>> = row.try_get("headers")?;
        Ok(Letter {
            about: DeadLetter::from_row(row)?,
            payload: row.try_get::<_, Json<Box<RawValue>>>("payload")?.0,
            headers: headers.map(|json| json.0),
        })
    };
    read(
        client,
        "reading dead letters",
        statement,
        &[(&ids, Type::INT8_ARRAY)],
        from_row,
    )
    .await
}
