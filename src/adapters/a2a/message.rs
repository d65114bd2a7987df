//! An event as a message of A2A.

use lanekeeper_core::a2a_part::Part;
use lanekeeper_core::adapter::Delivery;
use serde::Serialize;
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

pub(super) fn of(delivery: &Delivery<'_>) -> Box<RawValue> {
    let event = delivery.event;
    let message = Message {
        message_id: event.message_id.to_string(),
        context_id: &event.session,
        role: "ROLE_USER",
        parts: [Part::of_payload(&event.payload)],
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
