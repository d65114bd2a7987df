//! The ids of chat messages that were sent and may be edited. Each call is one statement on an index.

use lanekeeper_core::memory::MessageName;
use tokio_postgres::GenericClient;

use super::StoreError;

const RECALL: &str = include_str!("sql/sent_message_recall.sql");
const REMEMBER: &str = include_str!("sql/sent_message_remember.sql");
const GIVEN_UP: &str = include_str!("sql/sent_message_given_up.sql");
const FORGET: &str = include_str!("sql/sent_message_forget.sql");

/// The parts that were sent, with what the platform calls them.
///
/// # Errors
/// Where they cannot be read.
pub async fn recall(
    client: &impl GenericClient,
    name: MessageName<'_>,
) -> Result<Vec<(i32, String)>, StoreError> {
    let rows = client
        .query(
            RECALL,
            &[&name.subscription, &name.session, &name.place, &name.key],
        )
        .await
        .map_err(StoreError::on("reading what was sent of a message"))?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Enters a part that was sent. Nothing is entered for a subscription that was removed meanwhile.
///
/// # Errors
/// It is not known whether it was entered; the call can be repeated.
pub async fn remember(
    client: &impl GenericClient,
    name: MessageName<'_>,
    part: i32,
    reference: &str,
) -> Result<(), StoreError> {
    let MessageName {
        subscription,
        session,
        place,
        key,
    } = name;
    client
        .execute(
            REMEMBER,
            &[&subscription, &session, &place, &key, &part, &reference],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("remembering a message that was sent"))
}

/// A part is gone from the platform.
///
/// # Errors
/// It is not known whether it was forgotten; the call can be repeated.
pub async fn forget(
    client: &impl GenericClient,
    name: MessageName<'_>,
    part: i32,
) -> Result<(), StoreError> {
    let MessageName {
        subscription,
        session,
        place,
        key,
    } = name;
    client
        .execute(FORGET, &[&subscription, &session, &place, &key, &part])
        .await
        .map(drop)
        .map_err(StoreError::on("forgetting a message that is gone"))
}

/// Which of these events of a session a subscription has passed with an outcome.
///
/// # Errors
/// Where it cannot be read.
pub async fn given_up(
    client: &impl GenericClient,
    subscription: &str,
    session: &str,
    seqs: &[i64],
) -> Result<Vec<i64>, StoreError> {
    let rows = client
        .query(GIVEN_UP, &[&subscription, &session, &seqs])
        .await
        .map_err(StoreError::on("reading which messages were given up"))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
