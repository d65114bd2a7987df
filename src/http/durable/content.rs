//! The content of a stream: how a request's body becomes events, and events become an answer's body.
//!
//! In a stream of JSON, each message is the payload of an event. In any other stream, a body is kept as it is: its payload
//! is its bytes as base64 text, and the event's headers say of which content type they are. So filters, webhooks, archives
//! and searches see one kind of payload. A `bytea` beside the payload would be a second one for each of them, and a column
//! that every append and every fetch of every stream reads; base64 takes a third more room, and only where it is used.

use std::cell::Cell;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanekeeper_postgres::log::LoggedEvent;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize};
use serde_json::value::RawValue;

use crate::problem::Problem;
use crate::problem_type;

/// Messages in one request.
const MOST_MESSAGES: usize = 10_000;
/// Bytes of a body that become one event. As base64 they are a third of what a stream takes if not told otherwise.
const CHUNK_BYTES: usize = 256 * 1024;
const MESSAGE: &str = "message";
const CHUNK: &str = "chunk";
const BASE64: &str = "base64";

/// How a stream's content is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Json,
    /// `text/*`: an event stream carries it as it is.
    Text,
    Binary,
}

impl Content {
    /// Of a content type, whatever its parameters.
    pub fn of(content_type: &str) -> Self {
        let media_type = content_type.split(';').next().unwrap_or("").trim();
        if media_type.eq_ignore_ascii_case("application/json") {
            return Self::Json;
        }
        let family = media_type.split('/').next().unwrap_or("");
        match family.eq_ignore_ascii_case("text") {
            true => Self::Text,
            false => Self::Binary,
        }
    }
}

/// The headers of an event that is a part of a byte stream.
#[derive(Serialize)]
struct ChunkHeaders<'a> {
    content_type: &'a str,
    encoding: &'a str,
}

#[derive(Serialize)]
struct NewEvent<'a, P> {
    session: &'a str,
    event_type: &'a str,
    payload: P,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a ChunkHeaders<'a>>,
}

/// Where a body goes, and what it is.
pub struct Written<'a> {
    pub session: &'a str,
    pub content_type: &'a str,
    /// In place of `message` and `chunk`.
    pub event_type: Option<&'a str>,
}

impl Written<'_> {
    /// The events of a body as an array for `enqueue_many`, and how many they are; `None`: an empty array of messages.
    pub fn events(&self, body: &[u8]) -> Result<Option<(String, u64)>, Problem> {
        let (events, count) = match Content::of(self.content_type) {
            Content::Json => {
                let messages = messages(body)?;
                (self.encoded(&messages, MESSAGE, None), messages.len())
            }
            Content::Text | Content::Binary => {
                let chunks: Vec<String> = body
                    .chunks(CHUNK_BYTES)
                    .map(|chunk| STANDARD.encode(chunk))
                    .collect();
                let headers = ChunkHeaders {
                    content_type: self.content_type,
                    encoding: BASE64,
                };
                (self.encoded(&chunks, CHUNK, Some(&headers)), chunks.len())
            }
        };
        Ok((count > 0).then_some((events, count as u64)))
    }

    fn encoded<P: Serialize>(
        &self,
        payloads: &[P],
        event_type: &str,
        headers: Option<&ChunkHeaders<'_>>,
    ) -> String {
        let events: Vec<NewEvent<'_, &P>> = payloads
            .iter()
            .map(|payload| NewEvent {
                session: self.session,
                event_type: self.event_type.unwrap_or(event_type),
                payload,
                headers,
            })
            .collect();
        serde_json::to_string(&events).expect("strings and JSON always serialise")
    }
}

/// The messages of a body: the elements of an array, or one value of another kind.
fn messages(body: &[u8]) -> Result<Vec<&RawValue>, Problem> {
    let refused = |error: &dyn std::fmt::Display| {
        let error = Problem::excerpt(&error.to_string());
        let detail = format!("the body is not JSON ({error}): nothing was enqueued");
        Problem::new(problem_type::BAD_REQUEST, detail)
    };
    let text = std::str::from_utf8(body).map_err(|error| refused(&error))?;
    if !text.trim_start().starts_with('[') {
        return Ok(vec![
            serde_json::from_str(text).map_err(|error| refused(&error))?,
        ]);
    }
    let too_many = Cell::new(false);
    let mut reading = serde_json::Deserializer::from_str(text);
    let read = reading.deserialize_seq(Messages {
        too_many: &too_many,
    });
    if too_many.get() {
        let detail = format!(
            "the body has more than {MOST_MESSAGES} messages, the most of one request: nothing was enqueued"
        );
        return Err(Problem::new(problem_type::PAYLOAD_TOO_LARGE, detail)
            .hint("send them in several requests"));
    }
    let messages = read.map_err(|error| refused(&error))?;
    reading.end().map_err(|error| refused(&error))?;
    Ok(messages)
}

/// Up to [`MOST_MESSAGES`] elements of an array. What comes behind them is not read: an array of many small ones would take
/// a multiple of its size.
struct Messages<'a> {
    too_many: &'a Cell<bool>,
}

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut messages = Vec::new();
        while let Some(message) = elements.next_element()? {
            if messages.len() == MOST_MESSAGES {
                self.too_many.set(true);
                return Err(A::Error::custom("too many messages"));
            }
            messages.push(message);
        }
        Ok(messages)
    }
}

/// An event of a stream, as the log and as a live follower have it.
#[derive(Deserialize)]
pub struct Event<'a> {
    #[serde(borrow)]
    pub payload: &'a RawValue,
    #[serde(borrow)]
    pub headers: Option<&'a RawValue>,
}

impl<'a> From<&'a LoggedEvent> for Event<'a> {
    fn from(event: &'a LoggedEvent) -> Self {
        Self {
            payload: &event.payload,
            headers: event.headers.as_deref(),
        }
    }
}

#[derive(Deserialize)]
struct Encoding<'a> {
    #[serde(borrow)]
    encoding: Option<std::borrow::Cow<'a, str>>,
}

impl Event<'_> {
    /// The bytes that it stands for: those of a chunk, or the JSON of an event that came by another way.
    fn bytes(&self) -> Vec<u8> {
        self.chunk()
            .unwrap_or_else(|| self.payload.get().as_bytes().to_vec())
    }

    fn chunk(&self) -> Option<Vec<u8>> {
        let headers: Encoding<'_> = serde_json::from_str(self.headers?.get()).ok()?;
        if headers.encoding? != BASE64 {
            return None;
        }
        let text: std::borrow::Cow<'_, str> = serde_json::from_str(self.payload.get()).ok()?;
        STANDARD.decode(text.as_bytes()).ok()
    }
}

/// The body of an answer with these events.
pub fn body(content: Content, events: &[Event<'_>]) -> Vec<u8> {
    if content != Content::Json {
        return events.iter().flat_map(Event::bytes).collect();
    }
    let mut body = vec![b'['];
    for (number, event) in events.iter().enumerate() {
        if number > 0 {
            body.push(b',');
        }
        body.extend_from_slice(event.payload.get().as_bytes());
    }
    body.push(b']');
    body
}

/// The same as the lines of one `data` event of an event stream.
pub fn write_sse(content: Content, events: &[Event<'_>], to: &mut Vec<u8>) {
    let body = body(content, events);
    to.extend_from_slice(b"event: data\n");
    match content {
        Content::Binary => line(STANDARD.encode(body).as_bytes(), to),
        // A line break of any kind would end the field, and what follows it could be taken for another event.
        Content::Json | Content::Text => {
            let text = String::from_utf8_lossy(&body).replace("\r\n", "\n");
            for one in text.split(['\n', '\r']) {
                line(one.as_bytes(), to);
            }
        }
    }
    to.push(b'\n');
}

fn line(data: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(b"data:");
    // A client drops one space at the beginning.
    if data.first() == Some(&b' ') {
        to.push(b' ');
    }
    to.extend_from_slice(data);
    to.push(b'\n');
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(content_type: &str, body: &[u8]) -> Result<Option<(String, u64)>, Problem> {
        let to = Written {
            session: "s",
            content_type,
            event_type: None,
        };
        to.events(body)
    }

    fn events(content_type: &str, body: &[u8]) -> Vec<Value> {
        let (events, count) = written(content_type, body).unwrap().unwrap();
        let events: Vec<Value> = serde_json::from_str(&events).unwrap();
        assert_eq!(events.len() as u64, count);
        events
    }

    #[test]
    fn one_level_of_an_array_is_messages_and_what_is_no_json_is_refused() {
        for (body, payloads) in [
            ("{\"a\":1}", json!([{"a": 1}])),
            (" [ {\"a\":1}, 2 ] ", json!([{"a": 1}, 2])),
            ("[[1,2],[3]]", json!([[1, 2], [3]])),
            ("null", json!([null])),
        ] {
            let events = events("application/json; charset=utf-8", body.as_bytes());
            let got: Vec<&Value> = events.iter().map(|event| &event["payload"]).collect();
            assert_eq!(json!(got), payloads, "{body}");
            assert!(events.iter().all(|event| event["event_type"] == "message"));
        }
        assert!(written("application/json", b"[]").unwrap().is_none());
        for bad in [&b"{ no"[..], b"", b"1 2", b"[1],[2]", b"\"\xff\""] {
            assert!(written("application/json", bad).is_err(), "{bad:?}");
        }
        for bad in ["[1", "[1,]", "[1] 2", "[1 2]"] {
            let refused = written("application/json", bad.as_bytes()).unwrap_err();
            assert_eq!(refused.problem_type(), problem_type::BAD_REQUEST, "{bad}");
        }
    }

    #[test]
    fn an_array_is_read_no_further_than_the_most_messages_of_one_request() {
        let most = format!("[{}0]", "0,".repeat(MOST_MESSAGES - 1));
        let (_, count) = written("application/json", most.as_bytes())
            .unwrap()
            .unwrap();
        assert_eq!(count, MOST_MESSAGES as u64);
        // What comes behind them would be no JSON.
        let more = format!("[{}0, and more", "0,".repeat(MOST_MESSAGES));
        let refused = written("application/json", more.as_bytes()).unwrap_err();
        assert_eq!(refused.problem_type(), problem_type::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn bytes_are_kept_as_they_are_over_as_many_events_as_they_need() {
        let bytes: Vec<u8> = (0..=255).cycle().take(CHUNK_BYTES + 3).collect();
        let events = events("image/png", &bytes);
        assert_eq!(events.len(), 2);
        assert_eq!(events[0]["event_type"], "chunk");
        assert_eq!(events[0]["headers"]["content_type"], "image/png");
        let texts: Vec<String> = events.iter().map(Value::to_string).collect();
        let read: Vec<Event<'_>> = texts
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        assert_eq!(body(Content::Binary, &read), bytes);
    }

    #[test]
    fn an_event_of_another_way_stands_in_a_byte_stream_as_its_json() {
        for text in [
            r#"{"payload":{"a":1},"headers":null}"#,
            r#"{"payload":{"a":1},"headers":{"encoding":"base64"}}"#,
            r#"{"payload":{"a":1},"headers":{"encoding":7}}"#,
        ] {
            let event: Event<'_> = serde_json::from_str(text).unwrap();
            assert_eq!(body(Content::Text, &[event]), b"{\"a\":1}", "{text}");
        }
    }

    #[test]
    fn no_payload_ends_its_event_of_an_event_stream() {
        let payload = STANDARD.encode("a\r\n\r\nevent: control\rdata: x\n\n b");
        let text = format!(r#"{{"payload":"{payload}","headers":{{"encoding":"base64"}}}}"#);
        let event: Event<'_> = serde_json::from_str(&text).unwrap();
        let mut sse = Vec::new();
        write_sse(Content::Text, &[event], &mut sse);
        assert_eq!(
            String::from_utf8(sse).unwrap(),
            "event: data\ndata:a\ndata:\ndata:event: control\ndata:data: x\ndata:\ndata:  b\n\n"
        );
    }

    #[test]
    fn content_types_are_told_apart_without_their_parameters_and_case() {
        assert_eq!(
            Content::of("Application/JSON; charset=utf-8"),
            Content::Json
        );
        assert_eq!(Content::of("TEXT/plain"), Content::Text);
        assert_eq!(Content::of("application/ndjson"), Content::Binary);
        assert_eq!(Content::of(""), Content::Binary);
    }
}
