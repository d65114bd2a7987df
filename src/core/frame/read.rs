//! Reading frames from a stranger: bounded before anything is parsed, and with nothing kept but what is needed.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    Frame, FrameError, Kind, MOST_DEPTH, MOST_FRAMES, MOST_IDS, MOST_NAME_BYTES,
    MOST_SESSION_BYTES, Message, Received, VERSION,
};

/// The fields that say how the others are read.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    v: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    frame_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    frames: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageFields<'a> {
    id: Option<Uuid>,
    #[serde(borrow)]
    session: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    correlation_id: Option<Uuid>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
}

/// A null is data too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct AckFields {
    ids: Option<Vec<Uuid>>,
}

/// Reads the body of a request. A frame that cannot be read refuses those behind it: the sender's order holds.
pub fn read(body: &[u8]) -> Received<'_> {
    let mut frames = Vec::new();
    let refused = read_into(body, &mut frames).err();
    Received { frames, refused }
}

fn read_into<'a>(body: &'a [u8], frames: &mut Vec<Frame<'a>>) -> Result<(), FrameError> {
    let text = std::str::from_utf8(body).map_err(|error| not_json(&error))?;
    if depth(body) > MOST_DEPTH {
        return Err(FrameError::TooDeep);
    }
    let envelope = envelope(text)?;
    if envelope.frame_type.as_deref() != Some("BATCH") {
        frames.push(one(text, &envelope)?);
        return Ok(());
    }
    let all = envelope.frames.ok_or(FrameError::Missing("frames"))?.get();
    // Bounded before it is parsed: the body is, and each of them is two bytes at least.
    let all: Vec<&RawValue> = serde_json::from_str(all).map_err(|error| FrameError::Field {
        field: "frames",
        reason: error.to_string(),
    })?;
    if all.is_empty() || all.len() > MOST_FRAMES {
        return Err(FrameError::BatchSize);
    }
    let mut session: Option<String> = None;
    for raw in all {
        let inner = envelope_of(raw)?;
        if inner.frame_type.as_deref() == Some("BATCH") {
            return Err(FrameError::NestedBatch);
        }
        let frame = one(raw.get(), &inner)?;
        if let Frame::Message(message) = &frame {
            if session
                .as_ref()
                .is_some_and(|first| *first != message.session)
            {
                return Err(FrameError::Sessions);
            }
            session.get_or_insert_with(|| message.session.clone());
        }
        frames.push(frame);
    }
    Ok(())
}

fn envelope_of(raw: &RawValue) -> Result<Envelope<'_>, FrameError> {
    envelope(raw.get())
}

/// Checks the version before anything else is read: another one may mean anything.
fn envelope(text: &str) -> Result<Envelope<'_>, FrameError> {
    // By itself serde takes an array of the fields too.
    if !text.trim_start().starts_with('{') {
        serde_json::from_str::<&RawValue>(text).map_err(|error| not_json(&error))?;
        return Err(FrameError::NotAnObject);
    }
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| not_json(&error))?;
    let version = envelope.v.ok_or(FrameError::Missing("v"))?.get();
    if version.parse() != Ok(VERSION) {
        return Err(FrameError::Version(excerpt(version)));
    }
    Ok(envelope)
}

fn one<'a>(text: &'a str, envelope: &Envelope<'a>) -> Result<Frame<'a>, FrameError> {
    let kind = envelope.frame_type.as_deref();
    let kind = match kind.ok_or(FrameError::Missing("type"))? {
        "EVENT" => Kind::Event,
        "REQUEST" => Kind::Request,
        "RESPONSE" => Kind::Response,
        "ERROR" => Kind::Error,
        "ACK" => return acknowledgement(text),
        other => return Err(FrameError::Type(excerpt(other))),
    };
    let fields: MessageFields<'a> = serde_json::from_str(text).map_err(|error| not_json(&error))?;
    if kind.answers() && fields.correlation_id.is_none() {
        return Err(FrameError::Missing("correlation_id"));
    }
    Ok(Frame::Message(Message {
        kind,
        id: fields.id.ok_or(FrameError::Missing("id"))?,
        session: name("session", fields.session, MOST_SESSION_BYTES)?,
        name: name("name", fields.name, MOST_NAME_BYTES)?,
        correlation_id: fields.correlation_id,
        data: fields.data.ok_or(FrameError::Missing("data"))?.get(),
    }))
}

fn acknowledgement(text: &str) -> Result<Frame<'_>, FrameError> {
    let AckFields { ids } = serde_json::from_str(text).map_err(|error| not_json(&error))?;
    let ids = ids.ok_or(FrameError::Missing("ids"))?;
    if ids.len() > MOST_IDS {
        return Err(FrameError::Field {
            field: "ids",
            reason: format!("an ACK has at most {MOST_IDS}"),
        });
    }
    Ok(Frame::Ack(ids))
}

fn name(
    field: &'static str,
    given: Option<Cow<'_, str>>,
    longest: usize,
) -> Result<String, FrameError> {
    let given = given.ok_or(FrameError::Missing(field))?;
    if given.is_empty() || given.len() > longest || given.contains('\0') {
        let reason = format!("it takes 1 to {longest} bytes, none of them NUL");
        return Err(FrameError::Field { field, reason });
    }
    Ok(given.into_owned())
}

fn not_json(error: &dyn std::fmt::Display) -> FrameError {
    FrameError::NotJson(excerpt(&error.to_string()))
}

fn excerpt(text: &str) -> String {
    text.chars().take(200).collect()
}

/// How many arrays and objects are open at once, at most. Of text that is no JSON it says something, and the parser
/// refuses it later.
fn depth(text: &[u8]) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                open += 1;
                most = most.max(open);
            }
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}
