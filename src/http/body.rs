//! Reads the body of an append: one event, or an array of events, of which all are appended or none.
//!
//! Payload and headers are passed on as the text that the client sent; only Postgres parses them. An error names the
//! position in the body, and is short whatever the client sent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use lanekeeper_core::trace::TraceContext;
use lanekeeper_postgres::append::NewEvent;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use super::problem::Problem;
use super::problem_type;

#[cfg(test)]
mod tests;

/// Events in one request.
pub(super) const MOST_EVENTS: usize = 1_000;

/// A body that was read.
pub struct Body<'a> {
    items: Vec<Item<'a>>,
    /// Of each event, its headers with the request's trace context; `None`: they go as they came.
    traced: Vec<Option<String>>,
    pub is_array: bool,
}

/// An event as a request has it.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewEvent")]
#[serde(deny_unknown_fields)]
pub(super) struct Item<'a> {
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
    message_id: Option<Uuid>,
    #[serde(borrow)]
    dedupe_key: Option<Cow<'a, str>>,
    priority: Option<i16>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    expected_seq: Option<i64>,
    /// May repeat what the path says.
    #[serde(borrow)]
    session: Option<Cow<'a, str>>,
}

impl<'a> Body<'a> {
    /// Reads a body for a session, and gives the request's trace context to the events that bring none.
    pub fn read(
        bytes: &'a [u8],
        session: &str,
        trace: Option<&TraceContext>,
    ) -> Result<Self, Problem> {
        let text = std::str::from_utf8(bytes).map_err(|error| Problem::unreadable(&error))?;
        let is_array = text.trim_start().starts_with('[');
        let items = if is_array {
            serde_json::from_str(text).map(|List(items)| items)
        } else {
            serde_json::from_str(text).map(|Object(item)| vec![item])
        };
        let items: Vec<Item<'a>> = items.map_err(|error| Problem::unreadable(&error))?;
        let mut sessions = items.iter().filter_map(|item| item.session.as_deref());
        if let Some(other) = sessions.find(|name| *name != session) {
            let detail = format!(
                "an event is of session {:?} and the path of {:?}: nothing was enqueued",
                Problem::excerpt(other),
                Problem::excerpt(session)
            );
            return Err(Problem::new(problem_type::INVALID, detail));
        }
        let join = |item: &Item<'_>| trace.and_then(|trace| joined(trace, item.headers));
        Ok(Self {
            traced: items.iter().map(join).collect(),
            items,
            is_array,
        })
    }

    /// Its events, in their order.
    pub fn events<'b>(&'b self, session: &'b str) -> Vec<NewEvent<'b>> {
        let items = self.items.iter().zip(&self.traced);
        items
            .map(|(item, traced)| NewEvent {
                message_id: item.message_id,
                dedupe_key: item.dedupe_key.as_deref(),
                priority: item.priority.unwrap_or(0),
                headers: traced.as_deref().or(item.headers.map(RawValue::get)),
                expected_seq: item.expected_seq,
                ..NewEvent::new(session, &item.event_type, item.payload.get())
            })
            .collect()
    }
}

/// An event, which must be an object: by itself serde takes an array of its fields too.
struct Object<'a>(Item<'a>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event, which is an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Item::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// 1 to [`MOST_EVENTS`] events. What comes behind them is not read: a body of many small ones would take a
/// multiple of its size.
struct List<'a>(Vec<Item<'a>>);

impl<'de> Deserialize<'de> for List<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;

        impl<'de> Visitor<'de> for Elements {
            type Value = List<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut elements: A,
            ) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(Object(item)) = elements.next_element()? {
                    if items.len() == MOST_EVENTS {
                        let most = format!("more than {MOST_EVENTS} events in one request");
                        return Err(A::Error::custom(most));
                    }
                    items.push(item);
                }
                if items.is_empty() {
                    return Err(A::Error::custom("an array without an event"));
                }
                Ok(List(items))
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}

/// An event's headers with the trace context, where they are an object without one. What it brings stays as it came.
pub(crate) fn joined(trace: &TraceContext, headers: Option<&RawValue>) -> Option<String> {
    let text = headers.map_or("{}", RawValue::get);
    let mut headers: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).ok()?;
    if headers.contains_key("traceparent") {
        return None;
    }
    for (name, value) in [
        ("traceparent", &trace.traceparent),
        ("tracestate", &trace.tracestate),
    ] {
        if let Some(value) = value {
            headers.insert(name.to_owned(), to_raw_value(value).ok()?);
        }
    }
    serde_json::to_string(&headers).ok()
}
