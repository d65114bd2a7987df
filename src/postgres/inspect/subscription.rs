//! Lists subscriptions as they were applied.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::{StoreError, read};

/// A subscription that was not removed.
#[derive(Clone, Debug, Serialize)]
pub struct SubscriptionSummary {
    #[serde(skip)]
    pub subscription_id: i32,
    pub subscription: String,
    pub stream: String,
    pub adapter: String,
    /// Grows with every change.
    pub version: i64,
    /// Event types that it receives; absent: every one.
    pub events: Option<Vec<String>>,
    /// Not printed: a URL may carry a credential.
    #[serde(skip)]
    pub settings: serde_json::Value,
    pub paused_at: Option<Timestamp>,
    pub pause_reason: Option<String>,
}

impl SubscriptionSummary {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            subscription_id: row.try_get("subscription_id")?,
            subscription: row.try_get("subscription")?,
            stream: row.try_get("stream")?,
            adapter: row.try_get("adapter")?,
            version: row.try_get("version")?,
            events: row.try_get("events")?,
            settings: row.try_get("settings")?,
            paused_at: row.try_get("paused_at")?,
            pause_reason: row.try_get("pause_reason")?,
        })
    }
}

/// The first `limit` subscriptions by name.
///
/// # Errors
/// Where they cannot be read.
pub async fn subscriptions(
    client: &impl GenericClient,
    limit: i64,
) -> Result<Vec<SubscriptionSummary>, StoreError> {
    subscription_page(client, None, None, limit).await
}

/// The first `limit` subscriptions of these streams (`None`: of all) behind a name.
///
/// # Errors
/// Where they cannot be read.
pub async fn subscription_page(
    client: &impl GenericClient,
    stream_ids: Option<&[i32]>,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<SubscriptionSummary>, StoreError> {
    let statement = include_str!("../sql/subscription_summary.sql");
    read(
        client,
        "listing subscriptions",
        statement,
        &[
            (&limit, Type::INT8),
            (&after, Type::TEXT),
            (&stream_ids, Type::INT4_ARRAY),
        ],
        SubscriptionSummary::from_row,
    )
    .await
}
