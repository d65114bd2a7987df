//! The JSON body that every destination receives.
//!
//! It contains the payload as the text that Postgres returned, without parsing it, so its bytes, nesting and numbers
//! arrive as they are stored.

use crate::adapter::Delivery;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

/// Everything but `data`, which is appended as text.
#[derive(Serialize)]
struct Head<'a> {
    id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<&'a str>,
    stream: &'a str,
    session: &'a str,
    seq: i64,
    r#type: &'a str,
    created_at: Timestamp,
    attempt: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    requeued: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_id: Option<i64>,
}

/// The body for a destination that belongs to one subscription.
pub fn body(delivery: &Delivery<'_>) -> Vec<u8> {
    write(delivery, None)
}

/// The same as text.
pub fn text(delivery: &Delivery<'_>) -> String {
    String::from_utf8(body(delivery)).expect("JSON that is made of text is text")
}

/// The body for several events of one session: an object whose `batch` has the body of each, in their order.
pub fn batch_body(deliveries: &[Delivery<'_>]) -> Vec<u8> {
    let payloads = deliveries.iter().map(|one| one.event.payload.len() + 512);
    let mut all = Vec::with_capacity(payloads.sum::<usize>());
    all.extend_from_slice(b"{\"batch\":[");
    for (at, delivery) in deliveries.iter().enumerate() {
        if at > 0 {
            all.push(b',');
        }
        all.extend_from_slice(&body(delivery));
    }
    all.extend_from_slice(b"]}");
    all
}

/// The body for a destination that several subscriptions share: it names the subscription too.
pub fn shared_body(delivery: &Delivery<'_>) -> Vec<u8> {
    write(delivery, Some(delivery.subscription))
}

fn write(delivery: &Delivery<'_>, subscription: Option<&str>) -> Vec<u8> {
    let event = delivery.event;
    let head = Head {
        id: event.message_id,
        subscription,
        stream: &event.stream,
        session: &event.session,
        seq: event.seq,
        r#type: &event.event_type,
        created_at: event.created_at,
        attempt: delivery.attempt,
        requeued: delivery.requeued,
        replayed: delivery.replay_id.is_some(),
        replay_id: delivery.replay_id,
    };
    // Names of 512 bytes grow sixfold at worst when escaped; the usual body needs one allocation.
    let mut body = Vec::with_capacity(event.payload.len() + 512);
    serde_json::to_writer(&mut body, &head).expect("strings and numbers always serialise");
    let closing = body.pop();
    debug_assert_eq!(closing, Some(b'}'));
    body.extend_from_slice(b",\"data\":");
    body.extend_from_slice(event.payload.as_bytes());
    body.push(b'}');
    body
}

#[cfg(test)]
mod tests {
    use crate::event::Event;

    use super::*;

    fn event(payload: &str) -> Event {
        Event {
            message_id: Uuid::from_u128(1),
            stream: "hooks".into(),
            session: "a \"b\"\n".into(),
            seq: 7,
            event_type: "agent_stop".into(),
            created_at: "2026-01-02T03:04:05.678Z".parse().unwrap(),
            payload: payload.into(),
            headers: None,
        }
    }

    fn delivery(event: &Event) -> Delivery<'_> {
        Delivery {
            event,
            subscription: "audit",
            attempt: 2,
            requeued: false,
            replay_id: None,
            asks_ack: false,
            trace: None,
            observed: None,
        }
    }

    #[test]
    fn body_has_the_documented_keys_in_their_order_and_the_payload_as_given() {
        let event = event(r#"{"b": 1.00, "a": 123456789012345678901234567890}"#);
        assert_eq!(
            String::from_utf8(body(&delivery(&event))).unwrap(),
            concat!(
                r#"{"id":"00000000-0000-0000-0000-000000000001","stream":"hooks","#,
                r#""session":"a \"b\"\n","seq":7,"type":"agent_stop","#,
                r#""created_at":"2026-01-02T03:04:05.678Z","attempt":2,"#,
                r#""data":{"b": 1.00, "a": 123456789012345678901234567890}}"#,
            )
        );
    }

    #[test]
    fn body_of_a_requeued_dead_letter_says_so() {
        let event = event("null");
        let requeued = Delivery {
            requeued: true,
            ..delivery(&event)
        };
        let body: serde_json::Value = serde_json::from_slice(&body(&requeued)).unwrap();
        assert_eq!(body["requeued"], true);
    }

    #[test]
    fn body_of_a_replayed_event_says_so_and_nothing_of_a_dead_letter() {
        let event = event("null");
        let replayed = Delivery {
            replay_id: Some(7),
            ..delivery(&event)
        };
        let body: serde_json::Value = serde_json::from_slice(&body(&replayed)).unwrap();
        assert_eq!(
            (&body["replayed"], &body["replay_id"]),
            (&true.into(), &7.into())
        );
        assert_eq!(body.get("requeued"), None);
    }

    #[test]
    fn body_of_a_batch_has_the_body_of_each_event() {
        let (first, second) = (event("1"), event("{\"a\": 1.0}"));
        let deliveries = [delivery(&first), delivery(&second)];
        let each = deliveries.map(|one| String::from_utf8(body(&one)).unwrap());
        let batch = String::from_utf8(batch_body(&deliveries)).unwrap();
        assert_eq!(batch, format!("{{\"batch\":[{}]}}", each.join(",")));
    }

    #[test]
    fn shared_body_names_the_subscription() {
        let event = event("null");
        let body: serde_json::Value =
            serde_json::from_slice(&shared_body(&delivery(&event))).unwrap();
        assert_eq!(body["subscription"], "audit");
    }
}
