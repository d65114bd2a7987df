//! Finds streams, sessions and subscriptions by name.

use thiserror::Error;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::{StoreError, read};

/// Why a name was not found.
#[derive(Debug, Error)]
pub enum FindError {
    #[error("there is no stream {name:?}")]
    UnknownStream { name: String, known: Vec<String> },
    #[error("stream {stream} has no session {name:?}")]
    UnknownSession { stream: String, name: String },
    #[error("there is no subscription {name:?}")]
    UnknownSubscription { name: String, known: Vec<String> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The id of a stream.
///
/// # Errors
/// [`FindError::UnknownStream`], or where it cannot be read.
pub async fn find_stream(client: &impl GenericClient, stream: &str) -> Result<i32, FindError> {
    Ok(find(client, stream, "").await?.0)
}

/// The ids of those of these streams that there are.
///
/// # Errors
/// Where they cannot be read.
pub async fn find_streams(
    client: &impl GenericClient,
    streams: &[String],
) -> Result<Vec<i32>, StoreError> {
    let mut ids = Vec::with_capacity(streams.len());
    for stream in streams {
        match find_stream(client, stream).await {
            Ok(id) => ids.push(id),
            Err(FindError::Store(error)) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(ids)
}

/// The id of a session.
///
/// # Errors
/// [`FindError`] says which of the names is not known.
pub async fn find_session(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
) -> Result<i64, FindError> {
    let (_, found) = find(client, stream, session).await?;
    found.ok_or_else(|| FindError::UnknownSession {
        stream: stream.to_owned(),
        name: session.to_owned(),
    })
}

async fn find(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
) -> Result<(i32, Option<i64>), FindError> {
    let found = read(
        client,
        "looking for a session",
        include_str!("../sql/session_find.sql"),
        &[(&stream, Type::TEXT), (&session, Type::TEXT)],
        |row| Ok((row.try_get("stream_id")?, row.try_get("session_id")?)),
    )
    .await?;
    match found.first() {
        Some(found) => Ok(*found),
        None => Err(FindError::UnknownStream {
            name: stream.to_owned(),
            known: names(client, include_str!("../sql/stream_list.sql")).await?,
        }),
    }
}

/// The id of a subscription that was not removed.
///
/// # Errors
/// [`FindError::UnknownSubscription`], or where it cannot be read.
pub async fn find_subscription(
    client: &impl GenericClient,
    subscription: &str,
) -> Result<i32, FindError> {
    let found = read(
        client,
        "looking for a subscription",
        include_str!("../sql/subscription_find.sql"),
        &[(&subscription, Type::TEXT)],
        |row| row.try_get("subscription_id"),
    )
    .await?;
    match found.first() {
        Some(id) => Ok(*id),
        None => Err(FindError::UnknownSubscription {
            name: subscription.to_owned(),
            known: names(client, include_str!("../sql/subscription_names.sql")).await?,
        }),
    }
}

async fn names(
    client: &impl GenericClient,
    statement: &'static str,
) -> Result<Vec<String>, StoreError> {
    read(client, "listing what there is", statement, &[], |row| {
        row.try_get("name")
    })
    .await
}
