//! For programs that receive webhooks of Lanekeeper and have the schema in their own database: the signature is checked,
//! each message is handled once, in one transaction with the memory that it was, and the answer acknowledges it (C9).
//!
//! It speaks no HTTP: hand it the headers and the body of a POST, and send back what it answers.
//!
//! ```no_run
//! use lanekeeper_receiver::Receiver;
//!
//! # async fn example(client: &mut tokio_postgres::Client, headers: &[(&str, &str)], body: &[u8])
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let receiver = Receiver::new("billing", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
//! let header = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
//! let answer = match receiver.open(header, body) {
//!     Ok(messages) => {
//!         let handled = receiver.handle(client, &messages, async |transaction, message| {
//!             let charge = "INSERT INTO charge (job, data) VALUES ($1, $2)";
//!             transaction.execute(charge, &[&message.session, &message.data]).await?;
//!             Ok::<(), tokio_postgres::Error>(())
//!         });
//!         handled.await
//!     }
//!     Err(refused) => refused.answer(),
//! };
//! // Send answer.status and answer.body.
//! # Ok(())
//! # }
//! ```
//!
//! A message that comes again is acknowledged and not handled. One that an operator has replayed is handled anew, once for
//! each replay. A handler that fails leaves nothing behind, the messages before it are accepted, and it and those behind it
//! are sent again.

use std::future::Future;

use jiff::Timestamp;
use lanekeeper_adapters::{KeyError, Signer};
use lanekeeper_postgres::receiver;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;

/// Seconds that the clocks of sender and receiver may differ, the time on the way included.
const TOLERANCE_S: u64 = 300;

/// A message as a webhook carries it.
#[derive(Clone, Debug, Deserialize)]
pub struct Message {
    pub id: Uuid,
    pub stream: String,
    pub session: String,
    pub seq: i64,
    #[serde(rename = "type")]
    pub event_type: String,
    pub attempt: u32,
    /// It was a dead letter: later messages of its session may have come before it.
    #[serde(default)]
    pub requeued: bool,
    /// A replay delivers it again: it is handled once for each replay, although it is known.
    #[serde(default)]
    pub replayed: bool,
    /// The replay's number.
    #[serde(default)]
    pub replay_id: Option<i64>,
    pub data: Value,
}

/// The messages of a request that was verified.
#[derive(Clone, Debug)]
pub struct Messages {
    messages: Vec<Message>,
    is_batch: bool,
}

impl Messages {
    pub fn iter(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }
}

/// What to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// JSON.
    pub body: String,
}

/// Why a request is not believed, or cannot be read. Nothing was handled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("no signature of it is ours")]
    Signature,
    #[error("its time is more than {TOLERANCE_S} seconds off")]
    Time,
    #[error("it is not what a webhook carries: {0}")]
    Unreadable(String),
}

impl Refused {
    /// 401 for what is not believed: the sender gives it up. 422 for what cannot be read.
    pub fn answer(&self) -> Answer {
        let status = match self {
            Self::Signature | Self::Time => 401,
            Self::Unreadable(_) => 422,
        };
        Answer {
            status,
            body: json!({"error": self.to_string()}).to_string(),
        }
    }
}

/// Receives for one consumer.
#[derive(Debug)]
pub struct Receiver {
    consumer: String,
    keys: Signer,
}

#[derive(Deserialize)]
struct Batch {
    batch: Vec<Message>,
}

impl Receiver {
    /// `consumer` names it in the memory of what was handled, 1 to 170 bytes: the number of a replay goes behind it.
    /// `secrets`: `whsec_…`, several separated by white space while they are rotated.
    ///
    /// # Errors
    /// A secret that is none.
    pub fn new(consumer: &str, secrets: &str) -> Result<Self, KeyError> {
        Ok(Self {
            consumer: consumer.to_owned(),
            keys: Signer::parse(secrets)?,
        })
    }

    /// Checks signature and time, then reads one message or a batch. `header` returns a header by its lower-case name.
    ///
    /// # Errors
    /// The request is not to be believed, or cannot be read.
    pub fn open<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &[u8],
    ) -> Result<Messages, Refused> {
        self.open_at(header, body, Timestamp::now())
    }

    fn open_at<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Messages, Refused> {
        let given = |name| header(name).unwrap_or_default();
        let (id, timestamp) = (given("webhook-id"), given("webhook-timestamp"));
        if !self
            .keys
            .verifies(id, timestamp, body, given("webhook-signature"))
        {
            return Err(Refused::Signature);
        }
        let sent: i64 = timestamp.parse().map_err(|_| Refused::Time)?;
        if now.as_second().abs_diff(sent) > TOLERANCE_S {
            return Err(Refused::Time);
        }
        let unreadable = |error: serde_json::Error| Refused::Unreadable(error.to_string());
        let is_batch = header("lanekeeper-batch").is_some();
        let messages = if is_batch {
            serde_json::from_slice(body).map(|Batch { batch }| batch)
        } else {
            serde_json::from_slice(body).map(|message| vec![message])
        };
        Ok(Messages {
            messages: messages.map_err(unreadable)?,
            is_batch,
        })
    }

    /// Handles each message in a transaction of its own, in order, up to the first failure, and says what to answer.
    pub async fn handle<E>(
        &self,
        client: &mut Client,
        messages: &Messages,
        mut handler: impl AsyncFnMut(&Transaction<'_>, &Message) -> Result<(), E>,
    ) -> Answer
    where
        E: std::fmt::Display,
    {
        let mut done = Vec::with_capacity(messages.messages.len());
        for message in &messages.messages {
            match self.once(client, message, &mut handler).await {
                Ok(()) => done.push(message.id),
                Err(error) => {
                    tracing::warn!(
                        session = message.session, seq = message.seq, message_id = %message.id, error,
                        "a message was not handled; it is sent again"
                    );
                    break;
                }
            }
        }
        let is_whole = done.len() == messages.messages.len();
        let ack = match messages.is_batch {
            true => json!(done),
            false => json!(is_whole),
        };
        Answer {
            status: if is_whole { 200 } else { 503 },
            body: json!({"accepted": done.len(), "ack": ack}).to_string(),
        }
    }

    async fn once<E: std::fmt::Display>(
        &self,
        client: &mut Client,
        message: &Message,
        handler: &mut impl AsyncFnMut(&Transaction<'_>, &Message) -> Result<(), E>,
    ) -> Result<(), String> {
        let transaction = told(client.transaction()).await?;
        // A replay is handled anew, and what comes again of one replay is not.
        let of_replay;
        let consumer = match message.replay_id {
            Some(id) => {
                of_replay = format!("{} replay {id}", self.consumer);
                &of_replay
            }
            None => &self.consumer,
        };
        let seen = receiver::seen(&transaction, consumer, &message.session, message.id);
        if told(seen).await? {
            return Ok(());
        }
        // A transaction that is dropped is rolled back.
        told(handler(&transaction, message)).await?;
        told(transaction.commit()).await
    }
}

async fn told<T, E: std::fmt::Display>(
    doing: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    doing.await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &str = r#"{"id":"019a5f0e-7c1b-7d3a-9d55-0d1c2b3a4f5e","stream":"runs","session":"s","seq":7,
        "type":"step","created_at":"2026-01-02T03:04:05Z","attempt":1,"data":{"n":1}}"#;
    const SENT: i64 = 1_767_323_045;

    /// Opens a request that was signed with `secret`, so many seconds after it was sent.
    fn open(
        secret: &str,
        body: &str,
        batch: Option<&str>,
        after: i64,
    ) -> Result<Messages, Refused> {
        let timestamp = SENT.to_string();
        let signature = Signer::parse(secret)
            .unwrap()
            .sign("id", SENT, body.as_bytes());
        let header = |name: &str| match name {
            "webhook-id" => Some("id"),
            "webhook-timestamp" => Some(timestamp.as_str()),
            "webhook-signature" => Some(signature.as_str()),
            "lanekeeper-batch" => batch,
            _ => None,
        };
        let now = Timestamp::from_second(SENT + after).unwrap();
        Receiver::new("billing", SECRET)
            .unwrap()
            .open_at(header, body.as_bytes(), now)
    }

    #[test]
    fn a_request_is_believed_that_is_signed_and_not_too_old() {
        let messages = open(SECRET, BODY, None, 299).unwrap();
        assert_eq!(messages.iter().next().unwrap().seq, 7);
        let both = format!(r#"{{"batch":[{BODY},{BODY}]}}"#);
        assert_eq!(open(SECRET, &both, Some("2"), 0).unwrap().iter().count(), 2);
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(open(other, BODY, None, 0).unwrap_err(), Refused::Signature);
        for after in [301, -301] {
            assert_eq!(open(SECRET, BODY, None, after).unwrap_err(), Refused::Time);
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_status_that_ends_its_delivery() {
        for (body, batch) in [("{}", None), (BODY, Some("1")), ("[", None), ("", None)] {
            let refused = open(SECRET, body, batch, 0).unwrap_err();
            assert_eq!(refused.answer().status, 422, "{body}");
        }
        assert_eq!(Refused::Signature.answer().status, 401);
    }
}
