//! E: what people write to agents.

mod example;
pub mod hosts;
mod messages;
mod phone;
mod terminal;
mod tmux;
mod ways;

use lanekeeper_postgres::append::{AppendError, Enqueued};
use lanekeeper_postgres::inbound::{NewInbound, enqueue_inbound};
use tokio_postgres::Client;

/// A text from the origin `telegram`, with its own id there.
async fn text(
    client: &Client,
    session: &str,
    content: &str,
    source_message_id: Option<&str>,
) -> Result<Enqueued, AppendError> {
    let message = NewInbound {
        source_message_id,
        ..NewInbound::text(session, "telegram", content)
    };
    enqueue_inbound(client, &message).await
}
