//! Writing frames. Payloads go as the text that Postgres returned.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{FrameError, FrameHeaders, Kind, MOST_NAME_BYTES, MOST_SESSION_BYTES, VERSION};
use crate::adapter::Delivery;
use crate::event::Event;

/// A frame that is about to be sent.
#[derive(Debug)]
pub enum Outgoing<'a> {
    Message {
        event: &'a Event,
        kind: Kind,
        correlation_id: Option<Uuid>,
        attempt: u32,
    },
    /// Its text: the event's payload is its content.
    Ack(Vec<Uuid>),
}

#[derive(Serialize)]
struct MessageFields<'a> {
    v: u64,
    r#type: &'a str,
    id: Uuid,
    session: &'a str,
    seq: i64,
    name: &'a str,
    created_at: Timestamp,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<Uuid>,
    data: &'a RawValue,
}

#[derive(Serialize)]
struct AckFields<'a> {
    v: u64,
    r#type: &'a str,
    ids: &'a [Uuid],
}

#[derive(serde::Deserialize)]
struct AckPayload {
    ids: Vec<Uuid>,
}

impl<'a> Outgoing<'a> {
    /// The frame of an event: what its headers say, an EVENT otherwise.
    ///
    /// # Errors
    /// Where no frame can be made of it.
    pub fn of(delivery: &Delivery<'a>) -> Result<Self, FrameError> {
        let event = delivery.event;
        let headers: FrameHeaders = match event.headers.as_deref() {
            None => FrameHeaders::default(),
            Some(headers) => serde_json::from_str(headers).map_err(|error| FrameError::Field {
                field: "headers",
                reason: error.to_string(),
            })?,
        };
        let kind = match headers.frame.as_deref() {
            None | Some("EVENT") => Kind::Event,
            Some("REQUEST") => Kind::Request,
            Some("RESPONSE") => Kind::Response,
            Some("ERROR") => Kind::Error,
            Some("ACK") => {
                let payload: Result<AckPayload, _> = serde_json::from_str(&event.payload);
                let payload = payload.map_err(|error| FrameError::Field {
                    field: "ids",
                    reason: error.to_string(),
                })?;
                return Ok(Self::Ack(payload.ids));
            }
            Some(other) => return Err(FrameError::Type(other.to_owned())),
        };
        if kind.answers() && headers.correlation_id.is_none() {
            return Err(FrameError::Missing("correlation_id"));
        }
        for (field, value, longest) in [
            ("session", &event.session, MOST_SESSION_BYTES),
            ("name", &event.event_type, MOST_NAME_BYTES),
        ] {
            if value.len() > longest {
                let reason = format!("a frame takes {longest} bytes");
                return Err(FrameError::Field { field, reason });
            }
        }
        Ok(Self::Message {
            event,
            kind,
            correlation_id: headers.correlation_id,
            attempt: delivery.attempt,
        })
    }

    /// Whether it asks for no acknowledgement.
    pub fn is_ack(&self) -> bool {
        matches!(self, Self::Ack(_))
    }

    /// Its JSON text.
    ///
    /// # Errors
    /// The payload is not JSON, which cannot be of one that Postgres stored.
    pub fn text(&self) -> Result<Vec<u8>, FrameError> {
        let written = match self {
            Self::Ack(ids) => return Ok(ack(ids)),
            Self::Message {
                event,
                kind,
                correlation_id,
                attempt,
            } => serde_json::from_str::<&RawValue>(&event.payload).and_then(|data| {
                serde_json::to_vec(&MessageFields {
                    v: VERSION,
                    r#type: kind.as_str(),
                    id: event.message_id,
                    session: &event.session,
                    seq: event.seq,
                    name: &event.event_type,
                    created_at: event.created_at,
                    attempt: *attempt,
                    correlation_id: *correlation_id,
                    data,
                })
            }),
        };
        written.map_err(|error| FrameError::NotJson(error.to_string()))
    }
}

/// An ACK frame.
pub fn ack(ids: &[Uuid]) -> Vec<u8> {
    let fields = AckFields {
        v: VERSION,
        r#type: "ACK",
        ids,
    };
    serde_json::to_vec(&fields).expect("ids always serialise")
}

/// A BATCH of frames that are text already.
pub fn batch(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut text = format!("{{\"v\":{VERSION},\"type\":\"BATCH\",\"frames\":[").into_bytes();
    text.extend_from_slice(&frames.join(&b","[..]));
    text.extend_from_slice(b"]}");
    text
}
