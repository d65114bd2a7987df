//! Which release's functions a database has.
//!
//! A numbered migration tells releases apart: an older one refuses the schema of a newer one. Two releases without a
//! numbered migration between them have the same version, and functions that differ. So the database keeps the release
//! that migrated it last with the digest of its files, and an older release with other files changes nothing unless it is
//! asked to. Builds between two releases have the same number and are not told apart.

use tokio_postgres::{GenericClient, Transaction};

use super::schema::{Release, Schema};
use super::{MigrateError, StoreError};

/// The release that migrated last, and the digest of its files.
async fn last(client: &impl GenericClient) -> Result<Option<(Release, String)>, StoreError> {
    let row = client
        .query_typed_opt("SELECT release, digest FROM lanekeeper.schema_release", &[])
        .await
        .map_err(StoreError::on("reading which release migrated last"))?;
    Ok(row.map(|row| (Release(row.get(0)), row.get(1))))
}

/// Refuses where a newer release with other files was there.
pub(super) async fn refuse_older(
    client: &impl GenericClient,
    schema: &Schema,
) -> Result<(), MigrateError> {
    match last(client).await? {
        Some((found, digest)) if found > *schema.release() && digest != schema.digest() => {
            let own = schema.release().clone();
            Err(MigrateError::NewerFunctions { found, own })
        }
        _ => Ok(()),
    }
}

/// Keeps the schema's release, unless a newer one has the same files.
pub(super) async fn record(
    transaction: &Transaction<'_>,
    schema: &Schema,
) -> Result<(), StoreError> {
    transaction
        .execute(
            "INSERT INTO lanekeeper.schema_release AS r (release, digest) VALUES ($1, $2)
             ON CONFLICT (single) DO UPDATE
             SET release = excluded.release, digest = excluded.digest, migrated_at = now()
             WHERE r.digest <> excluded.digest OR r.release < excluded.release",
            &[&schema.release().0, &schema.digest()],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("recording the release"))
}
