//! Structured and batched mode: the JSON event format.
//!
//! The data is passed on as the text that it came as; only Postgres parses it. A batch has at most 1,000 events, an event at
//! most 64 attributes, and no more of a body is read than that.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanekeeper_core::cloudevent::{Attributes, BASE64, VERSION};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::body::MOST_EVENTS;
use super::super::problem::Problem;
use super::{Given, Refused, refused};

pub(super) fn one(body: &[u8]) -> Result<Given<'_>, Problem> {
    read::<Event<'_>>(body).map(|event| event.0)
}

pub(super) fn many(body: &[u8]) -> Result<Vec<Given<'_>>, Problem> {
    read::<Batch<'_>>(body).map(|batch| batch.0)
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(body).map_err(|error| refused(&error))?;
    serde_json::from_str(text).map_err(|error| refused(&error))
}

/// A CloudEvent that is a JSON object.
pub(crate) struct Event<'a>(Given<'a>);

impl JsonSchema for Event<'_> {
    fn schema_name() -> Cow<'static, str> {
        "CloudEvent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "A CloudEvent 1.0 in the JSON event format, with extension attributes as it likes.",
            "required": ["specversion", "id", "source", "type"],
            "properties": {
                "specversion": {"const": VERSION},
                "id": {"type": "string", "minLength": 1},
                "source": {"type": "string", "minLength": 1},
                "type": {"type": "string", "minLength": 1},
                "data": {"description": "The event's payload: any JSON."},
                BASE64: {"type": "string", "description": "In place of `data`: bytes, as base64."},
            },
        })
    }
}

impl<'de> Deserialize<'de> for Event<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Event<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a CloudEvent, which is an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut attributes = Attributes::default();
                let (mut data, mut base64) = (None, None);
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "data" if data.is_some() => return Err(A::Error::duplicate_field("data")),
                        "data" => data = Some(map.next_value::<&'de RawValue>()?.get()),
                        BASE64 if base64.is_some() => {
                            return Err(A::Error::duplicate_field(BASE64));
                        }
                        BASE64 => base64 = Some(map.next_value::<&'de RawValue>()?.get()),
                        name => {
                            let value = map.next_value::<Scalar>()?.0;
                            attributes.insert(name, value).map_err(A::Error::custom)?;
                        }
                    }
                }
                given(attributes, data, base64)
                    .map(Event)
                    .map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

fn given<'a>(
    attributes: Attributes,
    data: Option<&'a str>,
    base64: Option<&'a str>,
) -> Result<Given<'a>, Refused> {
    // Null is absent.
    let base64 = base64.filter(|base64| *base64 != "null");
    let payload = match (data, base64) {
        (Some(_), Some(_)) => return Err(Refused::TwoData),
        (data, None) => data.unwrap_or("null"),
        (None, Some(text)) => {
            let decoded: Option<String> = serde_json::from_str(text).ok();
            if decoded.is_none_or(|text| STANDARD.decode(text).is_err()) {
                return Err(Refused::NotBase64);
            }
            text
        }
    };
    Ok(Given {
        attributes,
        payload: Cow::Borrowed(payload),
        is_base64: base64.is_some(),
    })
}

/// The value of an attribute. What is none is not kept: it would take a multiple of its size.
struct Scalar(Value);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        Ok(Self(match raw.as_bytes().first() {
            Some(b'[') => Value::Array(Vec::new()),
            Some(b'{') => Value::Object(serde_json::Map::new()),
            _ => serde_json::from_str(raw).map_err(D::Error::custom)?,
        }))
    }
}

struct Batch<'a>(Vec<Given<'a>>);

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;

        impl<'de> Visitor<'de> for Elements {
            type Value = Batch<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a batch, which is an array of CloudEvents")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut elements: A,
            ) -> Result<Self::Value, A::Error> {
                let mut events = Vec::new();
                while let Some(Event(event)) = elements.next_element()? {
                    if events.len() == MOST_EVENTS {
                        let most = format!("more than {MOST_EVENTS} events in one request");
                        return Err(A::Error::custom(most));
                    }
                    events.push(event);
                }
                Ok(Batch(events))
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}
