//! Payloads as parts of A2A messages, and back.
//!
//! A payload that is a text, or an object with a text and nothing else (`{"text": …}`), is a text part; any other is a data
//! part, as the text that Postgres returned. A message with nothing but one such part becomes that payload again, so that it
//! passes through two Lanekeepers as it was.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

/// Parts of one message.
pub const MOST_PARTS: usize = 100;

/// A part that says a payload.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Part<'a> {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Data {
        data: &'a RawValue,
        media_type: &'static str,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnlyText<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl<'a> Part<'a> {
    pub fn of_payload(payload: &'a str) -> Self {
        let text = match payload.trim_start().as_bytes().first() {
            Some(b'"') => serde_json::from_str(payload).ok(),
            Some(b'{') => serde_json::from_str(payload)
                .ok()
                .map(|OnlyText { text }| text.into_owned()),
            _ => None,
        };
        match (text, serde_json::from_str(payload)) {
            (None, Ok(data)) => Self::Data {
                data,
                media_type: "application/json",
            },
            (text, _) => Self::Text {
                text: text.unwrap_or_else(|| payload.to_owned()),
            },
        }
    }
}

/// Parts that were received, at most [`MOST_PARTS`]: what comes behind them is not read.
pub struct ReceivedParts<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for ReceivedParts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Elements<'a> {
            type Value = ReceivedParts<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of parts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(part) = parts.next_element()? {
                    if all.len() == MOST_PARTS {
                        return Err(A::Error::custom(format!("more than {MOST_PARTS} parts")));
                    }
                    all.push(part);
                }
                Ok(ReceivedParts(all))
            }
        }
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

/// Why parts are no payload.
#[derive(Debug, Error)]
pub enum PartError {
    #[error("the message has no parts")]
    None,
    #[error("part {at} cannot be read ({reason})")]
    Unreadable {
        at: usize,
        reason: serde_json::Error,
    },
    #[error("part {0} is not an object with one of text, raw, url and data")]
    NotOne(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    raw: Option<Cow<'a, str>>,
    #[serde(borrow)]
    url: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    filename: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct AllParts<'a> {
    parts: &'a [&'a RawValue],
}

impl ReceivedParts<'_> {
    /// The payload that they say: JSON text.
    ///
    /// # Errors
    /// They are not what parts are.
    pub fn payload(&self) -> Result<String, PartError> {
        let mut only = None;
        for (at, part) in self.0.iter().enumerate() {
            // By itself serde takes an array of the fields too.
            if !part.get().trim_start().starts_with('{') {
                return Err(PartError::NotOne(at));
            }
            let part: Received<'_> = serde_json::from_str(part.get())
                .map_err(|reason| PartError::Unreadable { at, reason })?;
            let kinds = [
                part.text.is_some(),
                part.data.is_some(),
                part.raw.is_some(),
                part.url.is_some(),
            ];
            if kinds.into_iter().filter(|is_there| *is_there).count() != 1 {
                return Err(PartError::NotOne(at));
            }
            only = Some(part);
        }
        let only = only.ok_or(PartError::None)?;
        let is_plain = self.0.len() == 1 && only.metadata.is_none() && only.filename.is_none();
        let payload = match only {
            Received {
                text: Some(text), ..
            } if is_plain => serde_json::to_string(&OnlyText { text }),
            Received {
                data: Some(data), ..
            } if is_plain => Ok(data.get().to_owned()),
            _ => serde_json::to_string(&AllParts { parts: &self.0 }),
        };
        Ok(payload.expect("texts and JSON always serialise"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_text_part_and_anything_else_a_data_part() {
        let text = |payload: &str| serde_json::to_string(&Part::of_payload(payload)).unwrap();
        assert_eq!(text(r#""a\n""#), r#"{"text":"a\n"}"#);
        assert_eq!(text(r#"{"text": "a"}"#), r#"{"text":"a"}"#);
        for payload in [
            r#"{"text": "a", "n": 1.00}"#,
            r#"{"text": 5}"#,
            "[1.0]",
            "5",
            "null",
        ] {
            let expected = format!(r#"{{"data":{payload},"mediaType":"application/json"}}"#);
            assert_eq!(text(payload), expected);
        }
    }

    fn payload(parts: &str) -> Result<String, PartError> {
        let parts: ReceivedParts<'_> = serde_json::from_str(parts).unwrap();
        parts.payload()
    }

    #[test]
    fn one_part_becomes_its_payload_and_several_stay_parts() {
        for same in [r#"{"text":"a\n\"b"}"#, r#"{"data":[1.00],"x":"y"}"#, "7"] {
            let part = serde_json::to_string(&Part::of_payload(same)).unwrap();
            assert_eq!(payload(&format!("[{part}]")).unwrap(), same);
        }
        let several = r#"[{"text":"a"},{"raw":"AA==","filename":"b"}]"#;
        assert_eq!(
            payload(several).unwrap(),
            format!(r#"{{"parts":{several}}}"#)
        );
        let named = r#"[{"url":"https://a.example/b","mediaType":"image/png"}]"#;
        assert_eq!(payload(named).unwrap(), format!(r#"{{"parts":{named}}}"#));
    }

    #[test]
    fn what_is_no_part_is_refused_by_its_position() {
        assert!(matches!(payload("[]"), Err(PartError::None)));
        for bad in [
            "{}",
            "5",
            "[]",
            r#"{"text":"a","url":"b"}"#,
            r#"{"text":null}"#,
        ] {
            let refused = payload(&format!(r#"[{{"text":"a"}},{bad}]"#));
            assert!(matches!(refused, Err(PartError::NotOne(1))), "{bad}");
        }
        let refused = payload(r#"[{"text":5}]"#);
        assert!(matches!(refused, Err(PartError::Unreadable { at: 0, .. })));
    }

    #[test]
    fn parts_beyond_the_bound_are_not_read() {
        let many = format!("[{}5]", "5,".repeat(MOST_PARTS));
        assert!(serde_json::from_str::<ReceivedParts<'_>>(&many).is_err());
        let deep = format!("[{}{}]", "[".repeat(10_000), "]".repeat(10_000));
        assert!(matches!(payload(&deep), Err(PartError::NotOne(0))));
    }
}
