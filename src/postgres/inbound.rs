//! What people write to agents: appending it, in a transaction of the caller's own where it wants one (E1, E2).
//!
//! ```no_run
//! use lanekeeper_postgres::inbound::{NewInbound, enqueue_inbound};
//!
//! # async fn example(client: &tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let message = NewInbound {
//!     actor_name: Some("Ada"),
//!     source_message_id: Some("8812"),
//!     ..NewInbound::text("7f3a", "telegram", "and now the tests, please")
//! };
//! let enqueued = enqueue_inbound(client, &message).await?;
//! assert!(!enqueued.duplicate);
//! # Ok(())
//! # }
//! ```

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::append::{AppendError, Enqueued, enqueued};

/// The stream of inbound messages.
pub const STREAM: &str = "inbound";

/// What kind of message a person sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageType {
    #[default]
    Text,
    /// A recording: the payload says where it is.
    Voice,
    /// The payload says where it is.
    File,
}

impl MessageType {
    pub const ALL: [Self; 3] = [Self::Text, Self::Voice, Self::File];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Voice => "voice",
            Self::File => "file",
        }
    }
}

/// A message that is to be appended to a session of the stream `inbound`.
#[derive(Clone, Copy, Debug)]
pub struct NewInbound<'a> {
    /// The session's name: 1 to 512 bytes. A new name makes a new session.
    pub session: &'a str,
    /// Where it comes from, such as `telegram` or `terminal`.
    pub origin: &'a str,
    /// What was written, at most 1 MiB; of a voice or file message, what goes with it.
    pub content: &'a str,
    /// `text`, `voice` or `file`.
    pub message_type: &'a str,
    /// JSON text: what the source says beside. An object, with the place of the recording or file, where it is one.
    pub payload: Option<&'a str>,
    pub actor_id: Option<&'a str>,
    pub actor_name: Option<&'a str>,
    pub actor_avatar_url: Option<&'a str>,
    /// The source's own name of the message: a repeated one of the same origin is a duplicate.
    pub source_message_id: Option<&'a str>,
    pub source_channel_id: Option<&'a str>,
    /// JSON text of an object.
    pub headers: Option<&'a str>,
    /// For a program that appends for others: see [`NewEvent`](crate::append::NewEvent).
    pub producer: Option<&'a str>,
}

impl<'a> NewInbound<'a> {
    /// A text with nothing but what every message has.
    pub fn text(session: &'a str, origin: &'a str, content: &'a str) -> Self {
        Self {
            session,
            origin,
            content,
            message_type: MessageType::Text.as_str(),
            payload: None,
            actor_id: None,
            actor_name: None,
            actor_avatar_url: None,
            source_message_id: None,
            source_channel_id: None,
            headers: None,
            producer: None,
        }
    }
}

/// Appends a message.
///
/// # Errors
/// Nothing was appended, except as [`AppendError::Store`] says.
pub async fn enqueue_inbound(
    client: &impl GenericClient,
    message: &NewInbound<'_>,
) -> Result<Enqueued, AppendError> {
    let headers = message.headers.unwrap_or("{}");
    let parameters: [&(dyn ToSql + Sync); 12] = [
        &message.session,
        &message.origin,
        &message.content,
        &message.message_type,
        &message.payload,
        &message.actor_id,
        &message.actor_name,
        &message.actor_avatar_url,
        &message.source_message_id,
        &message.source_channel_id,
        &headers,
        &message.producer,
    ];
    let parameters = parameters.map(|parameter| (parameter, Type::TEXT));
    let statement = include_str!("sql/enqueue_inbound.sql");
    let row = client.query_typed_one(statement, &parameters).await;
    row.and_then(|row| enqueued(&row)).map_err(AppendError::new)
}
