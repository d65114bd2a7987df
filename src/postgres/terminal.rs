//! What was typed into the terminals of agents, and what their hooks reported of it.

use lanekeeper_core::terminal::{Input, Known, Stage};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::StoreError;

/// What is known of a message and its agent session.
///
/// # Errors
/// Nothing is known then.
pub async fn look(client: &impl GenericClient, input: Input<'_>) -> Result<Known, StoreError> {
    let operation = "reading what was typed into a terminal";
    let row = client
        .query_typed_one(
            include_str!("sql/look_at_terminal.sql"),
            &[
                (&input.subscription, Type::TEXT),
                (&input.message_id, Type::UUID),
                (&input.session, Type::TEXT),
            ],
        )
        .await
        .map_err(StoreError::on(operation))?;
    let stage: Option<&str> = row.try_get("stage").map_err(StoreError::on(operation))?;
    let stage = stage.and_then(|word| Stage::ALL.into_iter().find(|stage| stage.as_str() == word));
    Ok(Known {
        stage,
        is_prompted: row.get("is_prompted"),
        is_live: row.get("is_live"),
        native_session_id: row.get("native_session_id"),
        cwd: row.get("cwd"),
    })
}

/// Puts a stage on record, or takes it away.
///
/// # Errors
/// Nothing was written, unless the connection broke.
pub async fn mark(
    client: &impl GenericClient,
    input: Input<'_>,
    stage: Option<Stage>,
) -> Result<(), StoreError> {
    client
        .query_typed(
            include_str!("sql/mark_terminal.sql"),
            &[
                (&input.subscription, Type::TEXT),
                (&input.message_id, Type::UUID),
                (&input.session, Type::TEXT),
                (&stage.map(Stage::as_str), Type::TEXT),
            ],
        )
        .await
        .map(drop)
        .map_err(StoreError::on("recording what is typed into a terminal"))
}

/// Enters the input in the agent registry, and tells the session's other destinations of it.
///
/// # Errors
/// Nothing was written, unless the connection broke.
pub async fn announce(client: &impl GenericClient, input: Input<'_>) -> Result<(), StoreError> {
    client
        .query_typed(
            include_str!("sql/announce_input.sql"),
            &[
                (&input.session, Type::TEXT),
                (&input.message_id, Type::UUID),
                (&input.payload, Type::TEXT),
            ],
        )
        .await
        .map(drop)
        .map_err(StoreError::on(
            "telling a session's destinations of an input",
        ))
}
