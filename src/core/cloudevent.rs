//! The attributes of CloudEvents 1.0: what they may be, and how an event keeps those that it came with.
//!
//! An event that arrived as a CloudEvent has them in its headers, under [`HEADER`], and goes out with them again. Producers
//! write headers as they like, so attributes are judged when they come in and again when they go out. The type is the
//! event's own, and the data its payload: a JSON value, or with [`BASE64`] the base64 text of bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// The version that is spoken.
pub const VERSION: &str = "1.0";
/// The event's header with the attributes.
pub const HEADER: &str = "cloudevent";
/// Beside the attributes in that header: the payload is the base64 text of the data. No attribute can have this name.
pub const BASE64: &str = "data_base64";
/// Attributes of an event.
pub const MOST_ATTRIBUTES: usize = 64;
/// Bytes of all their names and values.
pub const MOST_BYTES: usize = 16 * 1024;
/// Bytes of a name.
pub const LONGEST_NAME: usize = 64;

/// Why something is no attribute.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AttributeError {
    #[error(
        "an attribute's name has 1 to {LONGEST_NAME} lower-case letters and digits, and {0:?} has not"
    )]
    Name(String),
    #[error("the attribute `{0}` is given twice")]
    Twice(String),
    #[error("the attribute `{name}` {reason}")]
    Value { name: String, reason: &'static str },
    #[error("it has more than {MOST_ATTRIBUTES} attributes")]
    TooMany,
    #[error("its attributes have more than {MOST_BYTES} bytes")]
    TooLarge,
}

/// Attributes of one CloudEvent: texts, truth values and integers, within the bounds. Without `specversion` and `data`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    values: BTreeMap<String, Value>,
    bytes: usize,
}

impl Attributes {
    /// Adds one. A null counts as absent.
    ///
    /// # Errors
    /// It is none, or one too many.
    pub fn insert(&mut self, name: &str, value: Value) -> Result<(), AttributeError> {
        let is_name = (1..=LONGEST_NAME).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            && name != "data";
        if !is_name {
            return Err(AttributeError::Name(
                name.chars().take(LONGEST_NAME).collect(),
            ));
        }
        if self.values.contains_key(name) {
            return Err(AttributeError::Twice(name.to_owned()));
        }
        let refused = |reason| {
            let name = name.to_owned();
            Err(AttributeError::Value { name, reason })
        };
        let size = match &value {
            Value::Null => return Ok(()),
            Value::String(text) => {
                if let Some(reason) = objection(name, text) {
                    return refused(reason);
                }
                text.len()
            }
            _ if is_of_the_standard(name) => return refused("must be a text"),
            Value::Bool(_) => 5,
            Value::Number(number) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {
                11
            }
            Value::Number(_) => return refused("is no integer of 32 bits"),
            Value::Array(_) | Value::Object(_) => {
                return refused("must be a text, a truth value or an integer");
            }
        };
        if self.values.len() == MOST_ATTRIBUTES {
            return Err(AttributeError::TooMany);
        }
        self.bytes += name.len() + size;
        if self.bytes > MOST_BYTES {
            return Err(AttributeError::TooLarge);
        }
        self.values.insert(name.to_owned(), value);
        Ok(())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).and_then(Value::as_str)
    }

    /// Takes one out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// What an event came with, and whether its payload is base64 text. `None`: it came as no CloudEvent, or its headers
    /// say nothing usable.
    pub fn of_event(headers: Option<&str>) -> Option<(Self, bool)> {
        #[derive(Deserialize)]
        struct Headers {
            #[serde(default)]
            cloudevent: Option<BTreeMap<String, Value>>,
        }
        // Few events have it: the others are not parsed.
        let headers = headers.filter(|headers| headers.contains(HEADER))?;
        let mut values = serde_json::from_str::<Headers>(headers).ok()?.cloudevent?;
        let is_base64 = values.remove(BASE64) == Some(Value::Bool(true));
        let mut attributes = Self::default();
        for (name, value) in values {
            attributes.insert(&name, value).ok()?;
        }
        let is_whole = ["id", "source"]
            .iter()
            .all(|name| attributes.contains(name));
        is_whole.then_some((attributes, is_base64))
    }
}

/// The attributes that the standard itself defines are texts.
fn is_of_the_standard(name: &str) -> bool {
    matches!(
        name,
        "id" | "source"
            | "type"
            | "specversion"
            | "subject"
            | "time"
            | "datacontenttype"
            | "dataschema"
    )
}

fn objection(name: &str, text: &str) -> Option<&'static str> {
    if text.chars().any(is_forbidden) {
        return Some("has a control character, which CloudEvents forbids");
    }
    if is_of_the_standard(name) && text.is_empty() {
        return Some("is empty");
    }
    let has_space = || text.chars().any(char::is_whitespace);
    match name {
        "source" if has_space() => Some("is no URI reference"),
        "dataschema" if has_space() || url::Url::parse(text).is_err() => Some("is no absolute URI"),
        "time" if text.parse::<jiff::Timestamp>().is_err() => Some("is no time of RFC 3339"),
        "datacontenttype" if !is_media_type(text) => Some("is no media type"),
        _ => None,
    }
}

fn is_media_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim();
    let is_token = |part: &str| {
        let is_of_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b);
        !part.is_empty() && part.bytes().all(is_of_token)
    };
    let parts = essence.split_once('/');
    text.is_ascii() && parts.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

/// Whether data of this media type is JSON; it is where none is given.
pub fn is_json(media_type: Option<&str>) -> bool {
    media_type.is_none_or(|given| {
        let essence = given.split(';').next().unwrap_or_default().trim();
        let essence = essence.to_ascii_lowercase();
        essence.ends_with("/json") || essence.ends_with("+json")
    })
}

/// Control characters and noncharacters.
fn is_forbidden(c: char) -> bool {
    let code = u32::from(c);
    c.is_control() || (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

/// A text as an attribute may have it: what CloudEvents forbids is percent-encoded.
pub fn permitted(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_forbidden) {
        return Cow::Borrowed(text);
    }
    let mut permitted = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_forbidden(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(permitted, "%{byte:02X}");
            }
        } else {
            permitted.push(c);
        }
    }
    Cow::Owned(permitted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inserted(name: &str, value: Value) -> Result<(), AttributeError> {
        Attributes::default().insert(name, value)
    }

    #[test]
    fn attributes_are_what_the_standard_says() {
        for (name, value) in [
            ("id", json!("A 1")),
            ("source", json!("/a?b#c")),
            ("source", json!("urn:x:ü")),
            ("time", json!("2018-04-05T17:31:00Z")),
            ("time", json!("2018-04-05T17:31:00.123456+02:00")),
            (
                "datacontenttype",
                json!("application/vnd.a.b+json; charset=utf-8"),
            ),
            ("dataschema", json!("https://example.com/schema")),
            ("comexampleext1", json!("")),
            ("flag", json!(true)),
            ("n2", json!(-2_147_483_648)),
            ("absent", json!(null)),
        ] {
            assert_eq!(inserted(name, value.clone()), Ok(()), "{name}: {value}");
        }
        for (name, value) in [
            ("", json!("a")),
            ("Id", json!("a")),
            ("a-b", json!("a")),
            ("data", json!("a")),
            ("ümlaut", json!("a")),
            ("id", json!("")),
            ("id", json!(1)),
            ("id", json!("a\u{7f}")),
            ("subject", json!("a\nb")),
            ("subject", json!("a\u{85}")),
            ("subject", json!("a\u{ffff}")),
            ("source", json!("a b")),
            ("time", json!("yesterday")),
            ("time", json!("2018-04-05")),
            ("datacontenttype", json!("json")),
            ("datacontenttype", json!("a/b\u{e4}")),
            ("dataschema", json!("/relative")),
            ("n", json!(2_147_483_648_u64)),
            ("n", json!(1.5)),
            ("o", json!({})),
            ("l", json!([])),
        ] {
            assert!(inserted(name, value.clone()).is_err(), "{name}: {value}");
        }
        assert!(inserted(&"a".repeat(LONGEST_NAME + 1), json!(1)).is_err());
    }

    #[test]
    fn attributes_are_bounded_and_given_once() {
        let mut many = Attributes::default();
        for n in 0..MOST_ATTRIBUTES {
            many.insert(&format!("a{n}"), json!(n)).unwrap();
        }
        assert_eq!(many.insert("one", json!(1)), Err(AttributeError::TooMany));
        assert_eq!(
            many.insert("a1", json!(1)),
            Err(AttributeError::Twice("a1".to_owned()))
        );
        let mut large = Attributes::default();
        large
            .insert("a", json!("x".repeat(MOST_BYTES - 1)))
            .unwrap();
        assert_eq!(large.insert("b", json!("")), Err(AttributeError::TooLarge));
    }

    #[test]
    fn only_whole_attributes_of_an_event_count() {
        let of = |headers: Value| Attributes::of_event(Some(&headers.to_string()));
        let (attributes, is_base64) = of(json!({"cloudevent": {
            "id": "1", "source": "/a", "ext": 5, "data_base64": true,
        }}))
        .unwrap();
        assert_eq!(attributes.text("source"), Some("/a"));
        assert!(is_base64 && !attributes.contains(BASE64));
        for headers in [
            json!({}),
            json!({"cloudevent": 5}),
            json!({"cloudevent": {"id": "1"}}),
            json!({"cloudevent": {"id": "1", "source": "/a", "X": 1}}),
            json!({"cloudevent": {"id": "1", "source": "a\r\nhost: b"}}),
            json!(["cloudevent"]),
        ] {
            assert_eq!(of(headers.clone()), None, "{headers}");
        }
        assert_eq!(Attributes::of_event(None), None);
    }

    #[test]
    fn forbidden_characters_are_encoded_and_others_stay() {
        assert_eq!(permitted("ünï %20"), "ünï %20");
        assert_eq!(permitted("a\r\nb\u{85}"), "a%0D%0Ab%C2%85");
    }

    #[test]
    fn media_types_of_json_are_known() {
        for json in [
            None,
            Some("application/json"),
            Some("text/JSON; charset=utf-8"),
            Some("application/a+json"),
        ] {
            assert!(is_json(json), "{json:?}");
        }
        for other in ["text/plain", "application/jsonl", "application/xml"] {
            assert!(!is_json(Some(other)), "{other}");
        }
    }
}
