//! What the receiver of an agent's notifications asks: how they are known, and which message they are about.

use lanekeeper_core::a2a::{KEY, MessageTask, PLACE, REMEMBERED};
use lanekeeper_core::subscription::limit;
use serde_json::Value;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::StoreError;

/// A subscription that sends over A2A.
#[derive(Debug)]
pub struct A2aSubscription {
    pub id: i32,
    pub name: String,
    /// The adapter's.
    pub settings: Value,
}

/// All subscriptions that send over A2A.
///
/// # Errors
/// Where they cannot be read.
pub async fn subscriptions(
    client: &impl GenericClient,
) -> Result<Vec<A2aSubscription>, StoreError> {
    let rows = client
        .query_typed(include_str!("sql/a2a_subscription_list.sql"), &[])
        .await
        .map_err(StoreError::on(
            "listing the subscriptions that send over A2A",
        ))?;
    let all = rows.iter().filter_map(|row| {
        Some(A2aSubscription {
            id: row.get("subscription_id"),
            name: row.get("name"),
            // Limits that this release does not understand keep the subscription from being delivered.
            settings: limit::split(row.get("settings")).ok()?.1,
        })
    });
    Ok(all.collect())
}

/// A message that waits for its acknowledgement.
#[derive(Debug)]
pub struct AwaitedMessage {
    pub session: String,
    pub seq: i64,
    /// The task that it became, if that is remembered.
    pub task: Option<MessageTask>,
}

/// The message of this id, if this subscription sent it and it waits for its acknowledgement.
///
/// # Errors
/// Where it cannot be read.
pub async fn message(
    client: &impl GenericClient,
    message_id: Uuid,
    subscription: &str,
) -> Result<Option<AwaitedMessage>, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/a2a_message.sql"),
            &[
                (&message_id, Type::UUID),
                (&subscription, Type::TEXT),
                (&PLACE, Type::TEXT),
                (&KEY, Type::TEXT),
                (&REMEMBERED, Type::INT8),
            ],
        )
        .await
        .map_err(StoreError::on("looking up the message of a task"))?;
    Ok(rows.first().map(|row| {
        let reference: Option<&str> = row.get("reference");
        let task = reference.and_then(|reference| reference.parse::<MessageTask>().ok());
        AwaitedMessage {
            session: row.get("session"),
            seq: row.get("seq"),
            task: task.filter(|task| task.message_id == message_id),
        }
    }))
}
