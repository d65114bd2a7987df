//! Any body is either read completely and unchanged, or refused with the position of the error.

use axum::response::IntoResponse as _;
use futures_util::FutureExt as _;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};

use self::sent::{array, headers, sent};
use super::*;

mod sent;

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The status and the document of a refusal.
fn told(problem: Problem) -> (u16, Value) {
    let response = problem.into_response();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).now_or_never();
    let bytes = body.expect("it is there").expect("it is there");
    (status, serde_json::from_slice(&bytes).expect("a document"))
}

/// It says what is wrong and where, and repeats little of what was sent.
fn judge_refusal(problem: Problem) -> Result<(), TestCaseError> {
    let (status, document) = told(problem);
    prop_assert_eq!(status, 422);
    prop_assert_eq!(&document["code"], "invalid");
    let detail = document["detail"].as_str().unwrap_or_default();
    let place = ["line ", "index ", "is of session"];
    prop_assert!(place.iter().any(|at| detail.contains(at)), "{}", detail);
    prop_assert!(detail.ends_with("nothing was done") || detail.ends_with("nothing was enqueued"));
    prop_assert!(detail.chars().count() < 1_000, "{}", detail);
    Ok(())
}

/// What was taken is what another reader finds in the body, in its order; payloads and headers are the body's
/// own bytes.
fn judge_taken(bytes: &[u8], body: &Body<'_>) -> Result<(), TestCaseError> {
    type Members = BTreeMap<String, Box<RawValue>>;
    let read: Vec<Members> = if body.is_array {
        serde_json::from_slice(bytes).expect("it is an array of objects")
    } else {
        vec![serde_json::from_slice(bytes).expect("it is an object")]
    };
    let events = body.events("s");
    prop_assert_eq!(events.len(), read.len());
    let mut at = bytes.as_ptr() as usize;
    for (event, members) in events.iter().zip(&read) {
        let text = |name: &str| {
            let member = members.get(name)?;
            serde_json::from_str::<Option<String>>(member.get()).expect("a text")
        };
        let known = [
            "event_type",
            "payload",
            "message_id",
            "dedupe_key",
            "priority",
            "headers",
            "session",
        ];
        prop_assert!(members.keys().all(|name| known.contains(&name.as_str())));
        prop_assert_eq!(event.session, "s");
        prop_assert_eq!(Some(event.event_type.to_owned()), text("event_type"));
        prop_assert_eq!(event.payload, members["payload"].get());
        prop_assert_eq!(event.dedupe_key.map(str::to_owned), text("dedupe_key"));
        let id = text("message_id").map(|id| id.parse::<Uuid>().expect("an id"));
        prop_assert_eq!(event.message_id, id);
        let priority = members.get("priority").map_or("0", |it| it.get());
        let priority: Option<i16> = serde_json::from_str(priority).expect("a number");
        prop_assert_eq!(event.priority, priority.unwrap_or(0));
        let headers = members.get("headers").map(|it| it.get());
        prop_assert_eq!(event.headers, headers.filter(|it| *it != "null"));
        prop_assert!(text("session").is_none_or(|name| name == "s"));
        let (from, end) = (
            event.payload.as_ptr() as usize,
            bytes.as_ptr_range().end as usize,
        );
        prop_assert!(at < from && from + event.payload.len() <= end);
        at = from;
    }
    Ok(())
}

fn judge(bytes: &[u8]) -> Result<(), TestCaseError> {
    match Body::read(bytes, "s", None) {
        Ok(body) => judge_taken(bytes, &body),
        Err(problem) => judge_refusal(problem),
    }
}

/// One thing that happens to a text on its way.
#[derive(Clone, Debug)]
enum Change {
    Remove,
    Repeat,
    Put(Vec<u8>),
    End,
}

fn changes() -> impl Strategy<Value = Vec<(Change, Index, usize)>> {
    let tokens = select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\\u0000",
        "\\ud800",
        "\0",
        "null",
        "true",
        "1e9999",
        "-",
        "{\"event_type\":1}",
        "\"payload\":2,",
        "\"session\":\"other\",",
        "\u{feff}",
    ]);
    let token = prop_oneof![
        tokens.prop_map(|token| token.as_bytes().to_vec()),
        vec(any::<u8>(), 1..4),
        (any::<u8>(), 1..3_000_usize).prop_map(|(byte, times)| vec![byte; times]),
    ];
    let change = prop_oneof![
        Just(Change::Remove),
        Just(Change::Repeat),
        token.prop_map(Change::Put),
        Just(Change::End),
    ];
    vec((change, any::<Index>(), 0..40_usize), 1..4)
}

fn changed(mut bytes: Vec<u8>, changes: &[(Change, Index, usize)]) -> Vec<u8> {
    for (change, at, len) in changes {
        let from = at.index(bytes.len() + 1);
        let to = (from + len).min(bytes.len());
        match change {
            Change::Remove => drop(bytes.drain(from..to)),
            Change::Repeat => {
                let part = bytes[from..to].to_vec();
                bytes.splice(to..to, part);
            }
            Change::Put(token) => drop(bytes.splice(from..to, token.iter().copied())),
            Change::End => bytes.truncate(from),
        }
    }
    bytes
}

proptest! {
    #[test]
    fn whatever_was_sent_is_taken_as_it_is_and_in_its_order(sent in vec(sent(), 1..4), alone in any::<bool>()) {
        let (text, count) = if alone { (sent[0].text(), 1) } else { (array(&sent), sent.len()) };
        let body = Body::read(text.as_bytes(), "s", None);
        let body = body.map_err(|problem| TestCaseError::fail(format!("{problem:?}")))?;
        judge_taken(text.as_bytes(), &body)?;
        let events = body.events("s");
        prop_assert_eq!((events.len(), body.is_array), (count, !alone));
        for (event, sent) in events.iter().zip(&sent) {
            prop_assert_eq!(event.event_type, &sent.event_type);
            prop_assert_eq!(event.payload, &sent.payload);
            prop_assert_eq!(event.message_id.map(|id| id.as_u128()), sent.message_id);
            prop_assert_eq!(event.dedupe_key, sent.dedupe_key.as_deref());
            prop_assert_eq!(event.priority, sent.priority.unwrap_or(0));
            prop_assert_eq!(event.headers, sent.headers.as_deref());
        }
    }

    #[test]
    fn any_bytes_are_taken_as_they_are_or_refused_with_a_place(bytes in vec(any::<u8>(), 0..60)) {
        judge(&bytes)?;
    }

    #[test]
    fn any_tokens_are_taken_as_they_are_or_refused_with_a_place(
        text in "([\\[\\]{},:\" ]|\"event_type\":|\"payload\":|\"a\"|null|-?1|1e9|\\\\u0000){0,24}"
    ) {
        judge(text.as_bytes())?;
    }

    #[test]
    fn a_body_that_was_damaged_is_taken_as_it_is_or_refused_with_a_place(
        sent in vec(sent(), 1..3), alone in any::<bool>(), changes in changes()
    ) {
        let text = if alone { sent[0].text() } else { array(&sent) };
        judge(&changed(text.into_bytes(), &changes))?;
    }

    #[test]
    fn a_wrong_event_among_others_is_refused_with_its_line(
        sent in vec(sent(), 1..6), at in any::<Index>(), value in select(vec![
            "[\"a\",1,null,null,null,null,null]", "[]", "1", "\"a\"", "null", "{}",
            r#"{"event_type":"a"}"#, r#"{"payload":1}"#, r#"{"event_type":1,"payload":1}"#,
            r#"{"event_type":null,"payload":1}"#, r#"{"event_type":["a"],"payload":1}"#,
            r#"{"event_type":"a","payload":1,"payload":1}"#, r#"{"event_type":"a","event_type":"a","payload":1}"#,
            r#"{"event_type":"a","payload":1,"priority":1.5}"#, r#"{"event_type":"a","payload":1,"priority":40000}"#,
            r#"{"event_type":"a","payload":1,"priority":"5"}"#, r#"{"event_type":"a","payload":1,"message_id":7}"#,
            r#"{"event_type":"a","payload":1,"message_id":"not one"}"#,
            r#"{"event_type":"a","payload":1,"dedupe_key":{}}"#, r#"{"event_type":"a","payload":1,"more":{}}"#,
            r#"{"event_type":"a","payload":1e}"#, r#"{"event_type":"a","payload":01}"#,
            r#"{"event_type":"\ud800","payload":1}"#, r#"{"event_type":"a","payload":"\x"}"#,
        ]),
    ) {
        let mut lines: Vec<String> = sent.iter().map(|it| it.text().replace(['\n', '\r'], " ")).collect();
        let place = at.index(lines.len() + 1);
        lines.insert(place, value.to_owned());
        let text = format!("[{}]", lines.join(",\n"));
        let Err(problem) = Body::read(text.as_bytes(), "s", None) else {
            return Err(TestCaseError::fail("it was taken"));
        };
        let (_, document) = told(problem);
        let line = format!("at line {} ", place + 1);
        prop_assert!(document["detail"].as_str().unwrap_or_default().contains(&line), "{}", document);
    }

    #[test]
    fn headers_keep_what_they_bring_when_the_trace_joins_them(text in headers()) {
        let trace = TraceContext { traceparent: Some(TRACEPARENT.to_owned()), tracestate: Some("a=b".to_owned()) };
        let body = format!(r#"{{"event_type":"a","payload":1,"headers":{text}}}"#);
        let body = Body::read(body.as_bytes(), "s", Some(&trace));
        let body = body.map_err(|problem| TestCaseError::fail(format!("{problem:?}")))?;
        let events = body.events("s");
        let after = events[0].headers.expect("headers");
        let before: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).expect("an object");
        if before.contains_key("traceparent") {
            prop_assert_eq!(after, text);
            return Ok(());
        }
        let mut after: BTreeMap<String, Box<RawValue>> = serde_json::from_str(after).expect("an object");
        let joined = ["traceparent", "tracestate"].map(|name| after.remove(name).map(|it| it.get().to_owned()));
        prop_assert_eq!(joined, [format!("\"{TRACEPARENT}\""), "\"a=b\"".to_owned()].map(Some));
        let texts = |all: &BTreeMap<String, Box<RawValue>>| -> Vec<(String, String)> {
            all.iter().map(|(name, value)| (name.clone(), value.get().to_owned())).collect()
        };
        prop_assert_eq!(texts(&after), texts(&before));
    }
}

#[test]
fn a_refusal_repeats_little_of_what_was_sent() {
    let long = "é".repeat(100_000);
    for body in [
        json!({ &long: 1 }),
        json!({"event_type": "a", "payload": 1, "session": long}),
        json!({"event_type": "a", "payload": 1, "priority": long}),
        json!({"event_type": "a", "payload": 1, "message_id": long}),
    ] {
        let body = body.to_string();
        let problem = Body::read(body.as_bytes(), "s", None).err();
        judge_refusal(problem.expect("a refusal")).expect("as all are");
    }
}

#[test]
fn an_array_has_1_to_1000_events_and_what_comes_behind_is_not_read() {
    let event = r#"{"event_type":"a","payload":1}"#;
    let of = |count: usize| format!("[{}]", vec![event; count].join(","));
    let read =
        |text: &str| Body::read(text.as_bytes(), "s", None).map(|body| body.events("s").len());
    assert_eq!(read(&of(1_000)).ok(), Some(1_000));
    for (text, reason) in [
        (of(0), "an array without an event"),
        (of(1_001), "more than 1000 events"),
        (of(1_001).replace(']', ",no"), "more than 1000 events"),
    ] {
        let (_, document) = told(read(&text).expect_err("a refusal"));
        assert!(
            document["detail"]
                .as_str()
                .expect("a text")
                .contains(reason)
        );
    }
}
