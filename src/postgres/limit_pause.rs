//! Pauses of rate limits, kept where workers have no Redis: a pause outlives the worker that heard it (I10).

use std::collections::HashMap;
use std::time::Duration;

use tokio_postgres::Client;

use super::StoreError;

pub const WRITE: &str = include_str!("sql/limit_pause_write.sql");
pub const LIST: &str = include_str!("sql/limit_pause_list.sql");

/// The longest name of a bucket that is kept: index rows have a limit.
const BUCKET_BYTES: usize = 2_000;

/// Keeps that these buckets pause from now on. A longer pause that is known stays.
///
/// # Errors
/// Nothing was kept.
pub async fn write(client: &Client, buckets: &[&str], pause: Duration) -> Result<(), StoreError> {
    let fits = |bucket: &&str| bucket.len() <= BUCKET_BYTES;
    let buckets: Vec<&str> = buckets.iter().copied().filter(fits).collect();
    let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
    client
        .execute(WRITE, &[&buckets, &(pause_ms as f64)])
        .await
        .map(drop)
        .map_err(StoreError::on("keeping a destination's pause"))
}

/// The pauses that are not over, by bucket: how long each still lasts.
///
/// # Errors
/// They are not known.
pub async fn list(client: &Client) -> Result<HashMap<String, Duration>, StoreError> {
    let rows = client
        .query(LIST, &[])
        .await
        .map_err(StoreError::on("reading the pauses of destinations"))?;
    let left = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    Ok(rows
        .iter()
        .map(|row| (row.get("bucket"), left(row.get("left_ms"))))
        .collect())
}
