//! Finds sessions and messages by what people paste into a search box.

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::{StoreError, read};

/// Dead letters that are looked at, the newest.
const DEAD_LETTERS: i64 = 5_000;

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub stream: String,
    pub session: String,
    /// Of a message.
    pub seq: Option<i64>,
}

/// Sessions that have this name, and then some whose name begins with it. `stream_ids`: of these streams; `None`: of all.
///
/// # Errors
/// Where they cannot be read.
pub async fn search_session(
    client: &impl GenericClient,
    name: &str,
    stream_ids: Option<&[i32]>,
) -> Result<Vec<Place>, StoreError> {
    let place = |row: &Row| {
        Ok(Place {
            stream: row.try_get("stream")?,
            session: row.try_get("session")?,
            seq: None,
        })
    };
    read(
        client,
        "looking for a session",
        include_str!("../sql/search_session.sql"),
        &[(&name, Type::TEXT), (&stream_ids, Type::INT4_ARRAY)],
        place,
    )
    .await
}

/// Where a message is. Only ids that a producer gave, messages that wait for acknowledgements and the newest dead letters
/// are found: the log has no index by message id.
///
/// # Errors
/// Where they cannot be read.
pub async fn search_message(
    client: &impl GenericClient,
    message_id: Uuid,
    stream_ids: Option<&[i32]>,
) -> Result<Vec<Place>, StoreError> {
    let place = |row: &Row| {
        Ok(Place {
            stream: row.try_get("stream")?,
            session: row.try_get("session")?,
            seq: Some(row.try_get("seq")?),
        })
    };
    read(
        client,
        "looking for a message",
        include_str!("../sql/search_message.sql"),
        &[
            (&message_id, Type::UUID),
            (&stream_ids, Type::INT4_ARRAY),
            (&DEAD_LETTERS, Type::INT8),
        ],
        place,
    )
    .await
}
