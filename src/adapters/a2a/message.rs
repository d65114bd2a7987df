//! An event as a message of A2A.
//!
//! A payload that is a text, or an object with a text and nothing else (`{"text": …}`), is a text part; any other is a data
//! part, as the text that Postgres returned.

use lanekeeper_core::adapter::Delivery;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::Push;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    message_id: String,
    context_id: &'a str,
    role: &'static str,
    parts: [Part<'a>; 1],
    metadata: Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Data {
        data: &'a RawValue,
        media_type: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnlyText {
    text: String,
}

pub(super) fn of(delivery: &Delivery<'_>) -> Box<RawValue> {
    let event = delivery.event;
    let message = Message {
        message_id: event.message_id.to_string(),
        context_id: &event.session,
        role: "ROLE_USER",
        parts: [part(&event.payload)],
        metadata: json!({"lanekeeper": {
            "stream": &*event.stream,
            "session": &*event.session,
            "seq": event.seq,
            "type": &*event.event_type,
            "created_at": event.created_at,
            "attempt": delivery.attempt,
        }}),
    };
    to_raw_value(&message).expect("texts, numbers and JSON of Postgres always serialise")
}

fn part(payload: &str) -> Part<'_> {
    let text = match payload.trim_start().as_bytes().first() {
        Some(b'"') => serde_json::from_str(payload).ok(),
        Some(b'{') => serde_json::from_str(payload)
            .ok()
            .map(|OnlyText { text }| text),
        _ => None,
    };
    match (text, serde_json::from_str(payload)) {
        (None, Ok(data)) => Part::Data {
            data,
            media_type: "application/json",
        },
        (text, _) => Part::Text {
            text: text.unwrap_or_else(|| payload.to_owned()),
        },
    }
}

/// What is asked of the agent beside the message: to answer at once, and to tell of the task where that is wanted.
pub(super) fn configuration(delivery: &Delivery<'_>, push: Option<&Push>) -> Value {
    let mut configuration = json!({"returnImmediately": true, "historyLength": 0});
    if let Some(push) = push {
        let message_id = delivery.event.message_id;
        let mut url = push.url.clone();
        // Fails for URLs that cannot be posted to, which the settings refuse.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .extend(["v1", "a2a", delivery.subscription]);
            path.push(&message_id.to_string());
        }
        configuration["taskPushNotificationConfig"] = json!({
            "id": message_id,
            "url": url,
            "authentication": {"scheme": "Bearer", "credentials": push.key.token(message_id)},
        });
    }
    configuration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_text_part_and_anything_else_a_data_part() {
        let text = |payload: &str| serde_json::to_string(&part(payload)).unwrap();
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
}
