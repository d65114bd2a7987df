//! What an agent that is behind a queue asks (docs/a2a.md): which streams are agents, and what became of a message. The log and
//! its lanes are the only memory of tasks.

use jiff::Timestamp;
use lanekeeper_core::subscription::agent::AgentDefinition;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::StoreError;
use super::subscription::a2a;

/// The streams that are agents, by name. One whose definition this release does not understand says so, beside the others.
///
/// # Errors
/// Where they cannot be read.
pub async fn agents(
    client: &impl GenericClient,
) -> Result<Vec<(String, Result<AgentDefinition, String>)>, StoreError> {
    let rows = client
        .query_typed(include_str!("sql/a2a_agent.sql"), &[])
        .await
        .map_err(StoreError::on("listing the streams that are agents"))?;
    let all = rows.iter().filter_map(|row| {
        let agent = a2a(row).map_err(|error| error.to_string());
        Some((row.get("name"), agent.transpose()?))
    });
    Ok(all.collect())
}

/// Where the message of a task is.
#[derive(Clone, Debug)]
pub struct Located {
    pub session: String,
    pub seq: i64,
    pub message_id: Uuid,
}

/// Where the message is that a producer appended with this dedupe key; `None`: the producer appended none, or so long ago that
/// the key is forgotten.
///
/// # Errors
/// Where it cannot be read.
pub async fn locate(
    client: &impl GenericClient,
    stream: &str,
    producer: Option<&str>,
    dedupe_key: &str,
) -> Result<Option<Located>, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/a2a_task_find.sql"),
            &[
                (&stream, Type::TEXT),
                (&producer, Type::TEXT),
                (&dedupe_key, Type::TEXT),
            ],
        )
        .await
        .map_err(StoreError::on("looking for the message of a task"))?;
    Ok(rows.first().map(|row| Located {
        session: row.get("session"),
        seq: row.get("seq"),
        message_id: row.get("message_id"),
    }))
}

/// What one subscription made of a message.
#[derive(Debug)]
pub struct Fate {
    /// A word of the view `message`.
    pub state: String,
    pub created_at: Timestamp,
    pub settled_at: Option<Timestamp>,
    /// It is marked to be cancelled.
    pub is_cancelled: bool,
    /// It is so old that its answer, if there was one, is forgotten.
    pub is_past_answers: bool,
}

/// What became of a message, by subscription; none where the log does not have it any more.
///
/// # Errors
/// Where it cannot be read.
pub async fn fates(
    client: &impl GenericClient,
    stream: &str,
    message: &Located,
) -> Result<Vec<Fate>, StoreError> {
    let rows = client
        .query_typed(
            include_str!("sql/a2a_task.sql"),
            &[
                (&stream, Type::TEXT),
                (&message.session, Type::TEXT),
                (&message.seq, Type::INT8),
            ],
        )
        .await
        .map_err(StoreError::on(
            "asking what became of the message of a task",
        ))?;
    Ok(rows
        .iter()
        .map(|row| Fate {
            state: row.get("state"),
            created_at: row.get("created_at"),
            settled_at: row.get("settled_at"),
            is_cancelled: row.get("is_cancelled"),
            is_past_answers: row.get("is_past_answers"),
        })
        .collect())
}
