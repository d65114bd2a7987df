//! Frames: what two agents, or two Lanekeepers, send each other over HTTP. JSON, versioned, bounded in size and depth.
//!
//! | frame | carries |
//! |---|---|
//! | EVENT | a message that asks for nothing |
//! | REQUEST | a message that asks for a RESPONSE or an ERROR, whose `correlation_id` is its `id` |
//! | RESPONSE, ERROR | the answer to a REQUEST |
//! | ACK | the ids of messages that were handled; needs no ACK itself |
//! | BATCH | up to 50 of the others, in order |
//!
//! A frame is read without recursion over what a stranger nested, and payloads stay the text that they came as. Unknown
//! fields are ignored, so that a later release may add some; another version is refused. docs/frames.md is the
//! specification.

mod read;
mod write;

#[cfg(test)]
mod tests;

use serde::Deserialize;
use thiserror::Error;
use uuid::Uuid;

pub use read::read;
pub use write::{Outgoing, ack, batch};

/// The version that is spoken.
pub const VERSION: u64 = 1;
/// Frames in a BATCH.
pub const MOST_FRAMES: usize = 50;
/// Ids in an ACK.
pub const MOST_IDS: usize = 1_000;
/// Arrays and objects inside one another, those of the frames included.
pub const MOST_DEPTH: usize = 128;
/// Bytes of a session's name: with the id of a message it makes the key by which repeats are recognised.
pub const MOST_SESSION_BYTES: usize = 256;
/// Bytes of a message's name.
pub const MOST_NAME_BYTES: usize = 200;

/// What a message asks for or answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    #[default]
    Event,
    Request,
    Response,
    Error,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "EVENT",
            Self::Request => "REQUEST",
            Self::Response => "RESPONSE",
            Self::Error => "ERROR",
        }
    }

    /// Whether it answers a REQUEST, which its `correlation_id` names.
    pub fn answers(self) -> bool {
        matches!(self, Self::Response | Self::Error)
    }
}

/// A message as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub kind: Kind,
    /// The sender's: with the session it tells a repeat.
    pub id: Uuid,
    pub session: String,
    /// The event type at the receiver.
    pub name: String,
    /// Of a RESPONSE or an ERROR: the id of the REQUEST.
    pub correlation_id: Option<Uuid>,
    /// JSON text.
    pub data: &'a str,
}

/// A frame as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    Message(Message<'a>),
    Ack(Vec<Uuid>),
}

/// The frames of a request, in order: those before the first that cannot be read, and why that cannot.
#[derive(Debug, PartialEq, Eq)]
pub struct Received<'a> {
    pub frames: Vec<Frame<'a>>,
    pub refused: Option<FrameError>,
}

/// Why a frame is not one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("it is not JSON: {0}")]
    NotJson(String),
    #[error("it is not an object")]
    NotAnObject,
    #[error("it is nested deeper than {MOST_DEPTH} levels")]
    TooDeep,
    #[error("its version is {0}, and this release speaks version {VERSION}")]
    Version(String),
    #[error("its type {0:?} is not known")]
    Type(String),
    #[error("it has no `{0}`")]
    Missing(&'static str),
    #[error("its `{field}` is not usable: {reason}")]
    Field { field: &'static str, reason: String },
    #[error("a BATCH has between 1 and {MOST_FRAMES} frames")]
    BatchSize,
    #[error("a BATCH inside a BATCH")]
    NestedBatch,
    #[error("a BATCH has the frames of one session")]
    Sessions,
}

/// What the headers of an event say about the frame that it becomes.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub struct FrameHeaders {
    /// `EVENT` where absent; or `ACK`, whose payload is an object with `ids`.
    #[serde(default)]
    pub frame: Option<String>,
    #[serde(default)]
    pub correlation_id: Option<Uuid>,
}
