//! An event as a CloudEvent 1.0, which is the same at every attempt.
//!
//! | attribute | of an event |
//! |---|---|
//! | `id`, `type`, `time` | its message id, its type, when it was appended |
//! | `source` | `/streams/{stream}/sessions/{session}`, or the setting and the session |
//! | `subject`, `partitionkey` | its session |
//! | `sequence` | its seq, as a text that sorts like the number |
//!
//! An event that came as a CloudEvent goes on with the attributes that it came with: `id` and `source` say everywhere which
//! event it is. Payloads go as the text that Postgres returned.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanekeeper_core::cloudevent::{Attributes, BASE64, VERSION, is_json, permitted};
use lanekeeper_core::event::Event;
use lanekeeper_core::trace::TraceContext;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

/// What header values must not have as it is, beside what is not ASCII.
const NOT_IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
/// Unreserved characters stay as they are.
const NOT_IN_SOURCE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const JSON: &str = "application/json";

/// An event that is about to be sent.
pub(super) struct Outgoing<'a> {
    attributes: Map<String, Value>,
    /// JSON text.
    payload: &'a str,
    is_base64: bool,
}

impl<'a> Outgoing<'a> {
    /// `source`: the setting.
    pub(super) fn of(event: &'a Event, source: Option<&str>) -> Self {
        let mut attributes = Map::new();
        let mut set = |name: &str, value: &str| {
            attributes.insert(name.to_owned(), Value::from(value));
        };
        set("specversion", VERSION);
        set("type", &permitted(&event.event_type));
        set("partitionkey", &permitted(&event.session));
        let mut is_base64 = false;
        match Attributes::of_event(event.headers.as_deref()) {
            Some((own, is_encoded)) => {
                is_base64 = is_encoded && event.payload.starts_with('"');
                for (name, value) in own
                    .iter()
                    .filter(|(name, _)| !matches!(*name, "specversion" | "type"))
                {
                    attributes.insert(name.to_owned(), value.clone());
                }
            }
            None => {
                let encoded = |text| utf8_percent_encode(text, NOT_IN_SOURCE);
                let session = encoded(&event.session);
                let source = match source {
                    Some(source) => format!("{source}/{session}"),
                    None => format!("/streams/{}/sessions/{session}", encoded(&event.stream)),
                };
                set("id", &event.message_id.to_string());
                set("source", &source);
                set("subject", &permitted(&event.session));
                set("time", &event.created_at.to_string());
                set("datacontenttype", JSON);
                set("sequence", &format!("{:019}", event.seq));
                let trace = TraceContext::of_event(event.headers.as_deref());
                for (name, value) in [
                    ("traceparent", trace.traceparent),
                    ("tracestate", trace.tracestate),
                ] {
                    if let Some(value) = value.filter(|value| !value.is_empty()) {
                        set(name, &permitted(&value));
                    }
                }
            }
        }
        Self {
            attributes,
            payload: &event.payload,
            is_base64,
        }
    }

    /// The event in the JSON format.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.payload.len() + 1024);
        serde_json::to_writer(&mut text, &self.attributes)
            .expect("texts and numbers always serialise");
        let closing = text.pop();
        debug_assert_eq!(closing, Some(b'}'));
        let name = if self.is_base64 { BASE64 } else { "data" };
        text.extend_from_slice(format!(",\"{name}\":").as_bytes());
        text.extend_from_slice(self.payload.as_bytes());
        text.push(b'}');
        text
    }

    /// The data alone. What is no JSON was a text or bytes when it came.
    pub(super) fn data(&self) -> Vec<u8> {
        let content_type = self
            .attributes
            .get("datacontenttype")
            .and_then(Value::as_str);
        if (self.is_base64 || !is_json(content_type))
            && let Ok(Value::String(text)) = serde_json::from_str(self.payload)
        {
            return match self.is_base64.then(|| STANDARD.decode(&text)) {
                Some(Ok(bytes)) => bytes,
                _ => text.into_bytes(),
            };
        }
        self.payload.as_bytes().to_vec()
    }

    /// The attributes as headers.
    pub(super) fn label(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.attributes {
            let (header, text) = match (name.as_str(), value) {
                ("datacontenttype", Value::String(text)) => {
                    (CONTENT_TYPE.as_str().to_owned(), text.clone())
                }
                (_, Value::String(text)) => {
                    let text = utf8_percent_encode(text, NOT_IN_HEADER).to_string();
                    (format!("ce-{name}"), text)
                }
                (_, other) => (format!("ce-{name}"), other.to_string()),
            };
            // Neither fails: attributes are judged when they are read.
            if let (Ok(header), Ok(text)) =
                (HeaderName::try_from(header), HeaderValue::try_from(text))
            {
                headers.insert(header, text);
            }
        }
        headers
            .entry(CONTENT_TYPE)
            .or_insert(HeaderValue::from_static(JSON));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn event(payload: &str, headers: Option<Value>) -> Event {
        Event {
            message_id: Uuid::from_u128(1),
            stream: "hooks".into(),
            session: "a/ü \n".into(),
            seq: 7,
            event_type: "agent_stop".into(),
            created_at: "2026-01-02T03:04:05.678901Z".parse().unwrap(),
            payload: payload.into(),
            headers: headers.map(|headers| headers.to_string()),
        }
    }

    fn text(event: &Event, source: Option<&str>) -> String {
        String::from_utf8(Outgoing::of(event, source).text()).unwrap()
    }

    #[test]
    fn an_event_has_the_documented_attributes_and_its_payload_as_given() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let event = event(
            r#"{"b": 1.00, "a": 123456789012345678901234567890}"#,
            Some(json!({"traceparent": trace})),
        );
        let text = text(&event, None);
        assert!(
            text.ends_with(r#","data":{"b": 1.00, "a": 123456789012345678901234567890}}"#),
            "{text}"
        );
        let mut read: Value = serde_json::from_str(&text).unwrap();
        read.as_object_mut().unwrap().remove("data");
        let expected = json!({
            "specversion": "1.0", "id": "00000000-0000-0000-0000-000000000001", "type": "agent_stop",
            "source": "/streams/hooks/sessions/a%2F%C3%BC%20%0A", "subject": "a/ü %0A", "partitionkey": "a/ü %0A",
            "time": "2026-01-02T03:04:05.678901Z", "datacontenttype": "application/json",
            "sequence": "0000000000000000007", "traceparent": trace,
        });
        assert_eq!(read, expected);
        let with_source =
            Outgoing::of(&event, Some("https://a.example/b")).attributes["source"].clone();
        assert_eq!(with_source, "https://a.example/b/a%2F%C3%BC%20%0A");
    }

    #[test]
    fn a_cloudevent_goes_on_as_it_came() {
        let own = json!({"cloudevent": {
            "id": "A 1", "source": "/else", "subject": "ü", "n": 5, "flag": true, "partitionkey": "p",
        }});
        let came = event("{}", Some(own));
        let read: Value = serde_json::from_str(&text(&came, Some("https://a.example"))).unwrap();
        let expected = json!({
            "specversion": "1.0", "type": "agent_stop", "id": "A 1", "source": "/else", "subject": "ü", "n": 5,
            "flag": true, "partitionkey": "p", "data": {},
        });
        assert_eq!(read, expected);
        let mut headers = HeaderMap::new();
        Outgoing::of(&came, None).label(&mut headers);
        for (name, value) in [
            ("ce-id", "A%201"),
            ("ce-subject", "%C3%BC"),
            ("ce-n", "5"),
            ("ce-flag", "true"),
            ("ce-specversion", "1.0"),
            ("content-type", "application/json"),
        ] {
            assert_eq!(headers[name], value, "{name}");
        }
        assert!(!headers.contains_key("ce-sequence"));
    }

    #[test]
    fn bytes_and_texts_leave_as_they_came() {
        let with = |payload: &str, media: &str, is_base64: bool| {
            let mut own = json!({"id": "1", "source": "/a", "datacontenttype": media});
            if is_base64 {
                own["data_base64"] = json!(true);
            }
            event(payload, Some(json!({"cloudevent": own})))
        };
        let bytes = with(r#""/wA=""#, "image/png", true);
        assert_eq!(Outgoing::of(&bytes, None).data(), b"\xff\x00");
        assert!(text(&bytes, None).ends_with(r#","data_base64":"/wA="}"#));
        let plain = with(r#""a\"b""#, "text/plain", false);
        assert_eq!(Outgoing::of(&plain, None).data(), b"a\"b");
        assert!(text(&plain, None).ends_with(r#","data":"a\"b"}"#));
        let forged = with("{}", "image/png", true);
        assert_eq!(Outgoing::of(&forged, None).data(), b"{}");
    }

    #[test]
    fn headers_that_a_producer_forged_make_no_header() {
        let forged = event(
            "1",
            Some(json!({"cloudevent": {"id": "1", "source": "/a", "x": "a\r\nhost: b"}})),
        );
        let mut headers = HeaderMap::new();
        Outgoing::of(&forged, None).label(&mut headers);
        assert!(!headers.contains_key("ce-x"));
        assert_eq!(
            headers["ce-source"],
            "/streams/hooks/sessions/a%252F%25C3%25BC%2520%250A"
        );
    }
}
