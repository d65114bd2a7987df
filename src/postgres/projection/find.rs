//! A projection by its name.

use serde_json::Value;
use tokio_postgres::GenericClient;

use crate::StoreError;

pub const FIND: &str = include_str!("../sql/projection_find.sql");

/// A subscription that is a projection.
#[derive(Clone, Debug)]
pub struct Named {
    pub subscription_id: i32,
    pub stream: String,
    /// As `apply` wrote them, without those that are not the projection's own.
    pub settings: Value,
}

/// # Errors
/// It is not known whether there is one.
pub async fn find(client: &impl GenericClient, name: &str) -> Result<Option<Named>, StoreError> {
    let operation = "looking for a projection";
    let row = client
        .query_opt(FIND, &[&name])
        .await
        .map_err(StoreError::on(operation))?;
    let named = row.map(|row| {
        Ok(Named {
            subscription_id: row.try_get("subscription_id")?,
            stream: row.try_get("stream")?,
            settings: row.try_get("settings")?,
        })
    });
    named.transpose().map_err(StoreError::on(operation))
}
