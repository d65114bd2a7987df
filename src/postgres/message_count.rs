//! What became of a subscription's messages, in figures.

use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::StoreError;

const ADD: &str = include_str!("sql/message_count_add.sql");

/// Figures of one subscription.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema,
)]
pub struct MessageCount {
    /// Sends that the destination took.
    pub sent: i64,
    /// Messages that were acknowledged.
    pub acked: i64,
    /// Attempts that failed and were followed by another one.
    pub retried: i64,
    /// Messages that were not tried again.
    pub failed: i64,
    /// Messages that were too old.
    pub expired: i64,
    /// Messages that were the oldest of too many.
    pub dropped: i64,
}

/// Adds figures to the subscriptions' rows.
///
/// # Errors
/// Nothing was added, unless the connection is lost.
pub async fn add(
    client: &impl GenericClient,
    counts: &[(i32, MessageCount)],
) -> Result<(), StoreError> {
    let ids: Vec<i32> = counts.iter().map(|(id, _)| *id).collect();
    let column = |of: fn(&MessageCount) -> i64| -> Vec<i64> {
        counts.iter().map(|(_, count)| of(count)).collect()
    };
    client
        .query_typed(
            ADD,
            &[
                (&ids, Type::INT4_ARRAY),
                (&column(|count| count.sent), Type::INT8_ARRAY),
                (&column(|count| count.acked), Type::INT8_ARRAY),
                (&column(|count| count.retried), Type::INT8_ARRAY),
                (&column(|count| count.failed), Type::INT8_ARRAY),
                (&column(|count| count.expired), Type::INT8_ARRAY),
                (&column(|count| count.dropped), Type::INT8_ARRAY),
            ],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("counting messages"))
}
