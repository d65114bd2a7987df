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

use lanekeeper_core::source::Action;
use lanekeeper_core::source::chat::Message;
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

impl<'a> NewInbound<'a> {
    /// What a person wrote in a chat of this source. `payload`: [`Message::payload`].
    pub fn of_chat(
        message: &'a Message,
        session: &'a str,
        source: &'a str,
        producer: &'a str,
        payload: &'a str,
    ) -> Self {
        Self {
            message_type: message.kind,
            payload: Some(payload),
            actor_id: message.actor_id.as_deref(),
            actor_name: message.actor_name.as_deref(),
            source_message_id: Some(&message.id),
            source_channel_id: Some(&message.channel_id),
            producer: Some(producer),
            ..Self::text(session, source, &message.content)
        }
    }
}

/// What the author of a message is told that Postgres refuses for good.
pub fn passed(refused: &AppendError) -> &'static str {
    match refused {
        AppendError::QueueFull(_) => {
            "This message was not taken: too many messages wait already. Send it again later."
        }
        AppendError::SessionClosed(_) => "This message was not taken: its session is closed.",
        AppendError::Schema(_) => {
            "This message was not taken: it is not of the form that its agent takes."
        }
        _ => "This message was not taken: it is too long, or has something that cannot be stored.",
    }
}

impl NewInbound<'_> {
    fn parameters(&self) -> [(&(dyn ToSql + Sync), Type); 11] {
        let parameters: [&(dyn ToSql + Sync); 11] = [
            &self.session,
            &self.origin,
            &self.content,
            &self.message_type,
            &self.payload,
            &self.actor_id,
            &self.actor_name,
            &self.actor_avatar_url,
            &self.source_message_id,
            &self.source_channel_id,
            self.headers.as_ref().unwrap_or(&"{}"),
        ];
        parameters.map(|parameter| (parameter, Type::TEXT))
    }
}

/// Appends a message as the next one of its session: what waits before it is superseded. `cancel_running`: what is being
/// delivered is cancelled; otherwise it ends by itself.
///
/// # Errors
/// As of [`enqueue_inbound`]; SQLSTATE LK007 where another transaction appends to the session and does not end in time.
pub async fn interrupt_inbound(
    client: &impl GenericClient,
    message: &NewInbound<'_>,
    cancel_running: bool,
) -> Result<Enqueued, AppendError> {
    let mut parameters = message.parameters().to_vec();
    parameters.push((&cancel_running, Type::BOOL));
    parameters.push((&message.producer, Type::TEXT));
    let statement = include_str!("sql/interrupt_inbound.sql");
    let row = client.query_typed_one(statement, &parameters).await;
    row.and_then(|row| enqueued(&row)).map_err(AppendError::new)
}

/// Appends a message as what it begins with demands.
///
/// # Errors
/// As of [`interrupt_inbound`].
pub async fn append(
    client: &impl GenericClient,
    message: &NewInbound<'_>,
    action: Option<Action>,
) -> Result<Enqueued, AppendError> {
    match action {
        Some(Action::Interrupt) => interrupt_inbound(client, message, true).await,
        Some(Action::Barrier) => interrupt_inbound(client, message, false).await,
        Some(Action::Status) | None => enqueue_inbound(client, message).await,
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
    let mut parameters = message.parameters().to_vec();
    parameters.push((&message.producer, Type::TEXT));
    let statement = include_str!("sql/enqueue_inbound.sql");
    let row = client.query_typed_one(statement, &parameters).await;
    row.and_then(|row| enqueued(&row)).map_err(AppendError::new)
}
