//! What keeps history small: partitions made ahead and dropped behind, old keys forgotten.

use tokio_postgres::Client;

use super::StoreError;

/// What one round did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub partitions_created: i64,
    pub partitions_dropped: i64,
    /// Days past retention that some lane still has undelivered events of.
    pub partitions_kept: i64,
    pub keys_forgotten: i64,
}

impl Report {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One round; where another process is at it, nothing is done.
///
/// # Errors
/// The round may have done a part; the next one does the rest.
pub async fn run(
    client: &Client,
    retention_days: i32,
    dedupe_days: i32,
) -> Result<Report, StoreError> {
    let row = client
        .query_one(
            "SELECT partitions_created, partitions_dropped, partitions_kept, keys_forgotten
             FROM lanekeeper.keep_house($1, $2)",
            &[&retention_days, &dedupe_days],
        )
        .await
        .map_err(StoreError::on("housekeeping"))?;
    Ok(Report {
        partitions_created: row.get(0),
        partitions_dropped: row.get(1),
        partitions_kept: row.get(2),
        keys_forgotten: row.get(3),
    })
}
