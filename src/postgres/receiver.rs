//! For receivers that keep what they have handled in this database.

use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::StoreError;

/// Whether this consumer has handled the message before; remembers it otherwise, in the caller's transaction. A call for the
/// same message in another transaction is waited for.
///
/// # Errors
/// Nothing was remembered.
pub async fn seen(
    client: &impl GenericClient,
    consumer: &str,
    session: &str,
    message_id: Uuid,
) -> Result<bool, StoreError> {
    client
        .query_typed_one(
            include_str!("sql/seen.sql"),
            &[
                (&consumer, Type::TEXT),
                (&session, Type::TEXT),
                (&message_id, Type::UUID),
            ],
        )
        .await
        .and_then(|row| row.try_get("seen"))
        .map_err(StoreError::on("remembering a message that was received"))
}
