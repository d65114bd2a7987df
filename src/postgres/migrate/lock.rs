//! The lock under which one process migrates a database at a time.
//!
//! Its key follows from the database's secret, as those of all other locks do
//! (migrations/functions/lock/append_lock.sql), so a user who may connect, but not read the secret, cannot block
//! migrations. Before the first migration there is no secret, and the key is a constant. A process that waited under
//! the constant while another one made the schema takes the new key.

use tokio_postgres::Client;

use crate::StoreError;

/// 16 bits 'LK', kind 5.
const WITHOUT_SECRET: i64 = 5_497_493_267_693_961_216;

/// Waits until no other process migrates. Returns the key that [`unlock`] needs.
///
/// # Errors
/// It is not held.
pub async fn lock(client: &Client) -> Result<i64, StoreError> {
    loop {
        let key = key(client).await?;
        client
            .execute("SELECT pg_advisory_lock($1)", &[&key])
            .await
            .map_err(StoreError::on("waiting for the migration lock"))?;
        if self::key(client).await? == key {
            return Ok(key);
        }
        unlock(client, key).await?;
    }
}

/// # Errors
/// The connection is gone, and the lock with it.
pub async fn unlock(client: &Client, key: i64) -> Result<(), StoreError> {
    client
        .execute("SELECT pg_advisory_unlock($1)", &[&key])
        .await
        .map(drop)
        .map_err(StoreError::on("releasing the migration lock"))
}

async fn key(client: &Client) -> Result<i64, StoreError> {
    let failed = StoreError::on("reading the secret of the locks");
    let exists = "SELECT to_regclass('lanekeeper.lock_secret') IS NOT NULL";
    let read = async {
        if !client.query_one(exists, &[]).await?.try_get::<_, bool>(0)? {
            return Ok(WITHOUT_SECRET);
        }
        let statement = include_str!("../sql/migration_lock.sql");
        client
            .query_one(statement, &[&WITHOUT_SECRET])
            .await?
            .try_get(0)
    };
    read.await.map_err(failed)
}
