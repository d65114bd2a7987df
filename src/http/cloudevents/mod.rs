//! CloudEvents 1.0 in an append: structured, binary and batched (docs/cloudevents.md).
//!
//! | request | is |
//! |---|---|
//! | `application/cloudevents+json` | one event, in the body whole |
//! | `application/cloudevents-batch+json` | an array of them, of which all are appended or none |
//! | `ce-…` headers | one event: its attributes are the headers, its data the body |
//!
//! The event's type is its `type`, its payload the data. `source` and `id` are the dedupe key, so a repeat is appended no
//! more. The attributes stay in the event's headers, for whoever it is sent on to.

mod binary;
mod structured;

use std::borrow::Cow;

use axum::http::{HeaderMap, header};
use lanekeeper_core::cloudevent::{AttributeError, Attributes, BASE64, HEADER, VERSION};
use lanekeeper_core::trace::TraceContext;
use lanekeeper_postgres::append::NewEvent;
use lanekeeper_telemetry::span::is_well_formed;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

pub(crate) use self::structured::Event;
use super::problem::Problem;
use super::problem_type;

const STRUCTURED: &str = "application/cloudevents";
const BATCHED: &str = "application/cloudevents-batch";
const JSON: &str = "+json";
/// The headers of which each CloudEvent in binary mode has all.
const REQUIRED: [&str; 4] = ["ce-specversion", "ce-id", "ce-source", "ce-type"];
/// Bytes of a dedupe key.
const LONGEST_KEY: usize = 512;

/// How a request carries CloudEvents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Structured,
    Batched,
    Binary,
}

impl Mode {
    /// `None`: it carries none.
    ///
    /// # Errors
    /// It carries some in a format that is not understood.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let given = headers.get(header::CONTENT_TYPE);
        let given = given
            .and_then(|given| given.to_str().ok())
            .unwrap_or_default();
        let essence = given.split(';').next().unwrap_or_default().trim();
        let essence = essence.to_ascii_lowercase();
        if let Some(format) = essence.strip_prefix(BATCHED) {
            return if format == JSON {
                Ok(Some(Self::Batched))
            } else {
                Err(unsupported(&essence))
            };
        }
        if let Some(format) = essence.strip_prefix(STRUCTURED) {
            return if format == JSON {
                Ok(Some(Self::Structured))
            } else {
                Err(unsupported(&essence))
            };
        }
        let is_binary = REQUIRED.iter().any(|name| headers.contains_key(*name));
        Ok(is_binary.then_some(Self::Binary))
    }
}

fn unsupported(format: &str) -> Problem {
    let format = Problem::excerpt(format);
    let detail =
        format!("CloudEvents are taken as JSON, and not as {format}: nothing was enqueued");
    Problem::new(problem_type::UNSUPPORTED_MEDIA_TYPE, detail).hint(
        "send application/cloudevents+json, application/cloudevents-batch+json, or ce- headers",
    )
}

/// Why something is no CloudEvent.
#[derive(Debug, Error)]
enum Refused {
    #[error("{0}")]
    Attribute(#[from] AttributeError),
    #[error("it has no `{0}`")]
    Missing(&'static str),
    #[error("its specversion is {0:?}, and {VERSION:?} is spoken")]
    Version(String),
    #[error("it has `data` and `data_base64`")]
    TwoData,
    #[error("its `data_base64` is no base64")]
    NotBase64,
    #[error("its data has the type `{0}` and is no text in UTF-8")]
    NotText(String),
    #[error("its header `{name}` {reason}")]
    Header { name: String, reason: &'static str },
}

fn refused(error: &dyn std::fmt::Display) -> Problem {
    let error = Problem::excerpt(&error.to_string());
    let detail =
        format!("the request has no CloudEvent that can be taken ({error}): nothing was enqueued");
    Problem::new(problem_type::INVALID, detail).hint(
        "a CloudEvent has specversion \"1.0\", id, source and type; docs/cloudevents.md says more",
    )
}

/// The CloudEvents of a request.
pub(crate) struct CloudEvents<'a> {
    events: Vec<Incoming<'a>>,
    pub(crate) is_array: bool,
}

/// One of them, as it is appended.
struct Incoming<'a> {
    event_type: String,
    /// JSON text.
    payload: Cow<'a, str>,
    dedupe_key: String,
    /// JSON text.
    headers: String,
}

impl<'a> CloudEvents<'a> {
    /// Reads a request, and gives its trace context to the events that bring none.
    pub(crate) fn read(
        mode: Mode,
        headers: &HeaderMap,
        body: &'a [u8],
        trace: Option<&TraceContext>,
    ) -> Result<Self, Problem> {
        let events = match mode {
            Mode::Structured => vec![structured::one(body)?],
            Mode::Batched => structured::many(body)?,
            Mode::Binary => vec![binary::read(headers, body).map_err(|error| refused(&error))?],
        };
        let incoming = events.into_iter().enumerate().map(|(at, event)| {
            event.incoming(trace).map_err(|error| match mode {
                Mode::Batched => refused(&format_args!("event {}: {error}", at + 1)),
                _ => refused(&error),
            })
        });
        Ok(Self {
            events: incoming.collect::<Result<_, _>>()?,
            is_array: mode == Mode::Batched,
        })
    }

    /// In their order.
    pub(crate) fn events<'b>(&'b self, session: &'b str) -> Vec<NewEvent<'b>> {
        let events = self.events.iter().map(|event| NewEvent {
            dedupe_key: Some(&event.dedupe_key),
            headers: Some(&event.headers),
            ..NewEvent::new(session, &event.event_type, &event.payload)
        });
        events.collect()
    }
}

/// A CloudEvent as it was read.
struct Given<'a> {
    /// With those that are an event's own here.
    attributes: Attributes,
    /// JSON text.
    payload: Cow<'a, str>,
    is_base64: bool,
}

impl<'a> Given<'a> {
    fn incoming(mut self, trace: Option<&TraceContext>) -> Result<Incoming<'a>, Refused> {
        let mut own = |name| match self.attributes.remove(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(Refused::Missing(name)),
        };
        let version = own("specversion")?;
        if version != VERSION {
            return Err(Refused::Version(version.chars().take(20).collect()));
        }
        let event_type = own("type")?;
        let text = |name| self.attributes.text(name).ok_or(Refused::Missing(name));
        let dedupe_key = key(text("source")?, text("id")?);
        Ok(Incoming {
            event_type,
            dedupe_key,
            headers: self.headers(trace),
            payload: self.payload,
        })
    }

    fn headers(&self, trace: Option<&TraceContext>) -> String {
        let own = |name| self.attributes.text(name).map(str::to_owned);
        let own = TraceContext {
            traceparent: own("traceparent"),
            tracestate: own("tracestate"),
        };
        let trace = if is_well_formed(&own) {
            Some(&own)
        } else {
            trace
        };
        let named = self
            .attributes
            .iter()
            .map(|(name, value)| (name.to_owned(), value.clone()));
        let mut attributes: Map<String, Value> = named.collect();
        if self.is_base64 {
            attributes.insert(BASE64.to_owned(), Value::Bool(true));
        }
        let mut headers = Map::new();
        headers.insert(HEADER.to_owned(), Value::Object(attributes));
        for (name, value) in [
            (
                "traceparent",
                trace.and_then(|trace| trace.traceparent.as_ref()),
            ),
            (
                "tracestate",
                trace.and_then(|trace| trace.tracestate.as_ref()),
            ),
        ] {
            if let Some(value) = value {
                headers.insert(name.to_owned(), Value::String(value.clone()));
            }
        }
        Value::Object(headers).to_string()
    }
}

/// What tells a repeat: a source has no space, so no two events share it.
fn key(source: &str, id: &str) -> String {
    let key = format!("cloudevent {source} {id}");
    if key.len() <= LONGEST_KEY {
        return key;
    }
    let digest = Sha256::digest(&key);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("cloudevent-sha256 {digits}")
}

#[cfg(test)]
mod tests;
