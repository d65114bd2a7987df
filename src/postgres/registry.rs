//! Writes the rows of the agent registry, in the transaction of an event's settlement.

use lanekeeper_core::event::Event;
use serde::Serialize;
use tokio_postgres::Transaction;
use tokio_postgres::types::{Json, Type};

use super::StoreError;

pub const OBSERVE: &str = include_str!("sql/registry_observe.sql");

/// Records what an event says about its session. Returns false if the event was recorded before.
///
/// # Errors
/// The transaction is then to be rolled back.
pub async fn observe(
    transaction: &Transaction<'_>,
    event: &Event,
    observed: &(impl Serialize + std::fmt::Debug + Sync),
) -> Result<bool, StoreError> {
    transaction
        .query_typed_one(
            OBSERVE,
            &[
                (&&*event.stream, Type::TEXT),
                (&&*event.session, Type::TEXT),
                (&event.seq, Type::INT8),
                (&event.created_at, Type::TIMESTAMPTZ),
                (&Json(observed), Type::JSONB),
            ],
        )
        .await
        .and_then(|row| row.try_get("entered"))
        .map_err(StoreError::on(
            "entering an event into the session registry",
        ))
}
