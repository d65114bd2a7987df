use uuid::Uuid;

use super::*;
use crate::adapter::Delivery;
use crate::event::Event;

const ID: &str = "019a5f0e-7c1b-7d3a-9d55-0d1c2b3a4f5e";

fn message(more: &str) -> String {
    format!(
        r#"{{"v":1,"type":"EVENT","id":"{ID}","session":"s","name":"n","data":{{"a":1.0}}{more}}}"#
    )
}

fn refusal(text: &str) -> FrameError {
    let received = read(text.as_bytes());
    assert_eq!(received.frames, [], "{text:.200}");
    received
        .refused
        .unwrap_or_else(|| panic!("taken: {text:.200}"))
}

fn event(headers: Option<&str>, payload: &str) -> Event {
    Event {
        message_id: ID.parse().unwrap(),
        stream: "to_bob".into(),
        session: "s \"1\"".into(),
        seq: 7,
        event_type: "ask".into(),
        created_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        payload: payload.to_owned(),
        headers: headers.map(str::to_owned),
    }
}

fn delivery(event: &Event) -> Delivery<'_> {
    Delivery {
        event,
        subscription: "bob",
        attempt: 2,
        requeued: false,
        replay_id: None,
        asks_ack: true,
        trace: None,
        observed: None,
    }
}

#[test]
fn what_is_written_is_read_as_it_was() {
    let payload = r#"{"b": 1.00, "a": 123456789012345678901234567890}"#;
    for (headers, kind) in [
        (None, Kind::Event),
        (
            Some(r#"{"traceparent":"x","frame":"REQUEST"}"#),
            Kind::Request,
        ),
    ] {
        let event = event(headers, payload);
        let text = Outgoing::of(&delivery(&event)).unwrap().text().unwrap();
        let received = read(&text);
        assert_eq!(received.refused, None);
        let [Frame::Message(message)] = &received.frames[..] else {
            panic!("{received:?}");
        };
        assert_eq!((message.kind, message.id), (kind, event.message_id));
        assert_eq!(
            (message.session.as_str(), message.name.as_str()),
            ("s \"1\"", "ask")
        );
        assert_eq!(message.data, payload);
    }
    let answer = format!(r#"{{"frame":"RESPONSE","correlation_id":"{ID}"}}"#);
    let event = event(Some(&answer), "null");
    let text = Outgoing::of(&delivery(&event)).unwrap().text().unwrap();
    let both = batch(&[text, ack(&[event.message_id])]);
    let received = read(&both);
    assert_eq!((received.frames.len(), &received.refused), (2, &None));
    assert!(
        matches!(&received.frames[0], Frame::Message(message) if message.correlation_id == Some(event.message_id))
    );
    assert_eq!(received.frames[1], Frame::Ack(vec![event.message_id]));
}

#[test]
fn an_event_of_which_no_frame_can_be_made_is_refused() {
    for headers in [
        r#"{"frame":"RESPONSE"}"#,
        r#"{"frame":"BATCH"}"#,
        r#"{"frame":"response"}"#,
        r#"{"frame":7}"#,
        r#"{"correlation_id":"x"}"#,
        r#"{"frame":"ACK"}"#,
    ] {
        let event = event(Some(headers), "{}");
        assert!(Outgoing::of(&delivery(&event)).is_err(), "{headers}");
    }
    let mut long = event(None, "{}");
    long.session = "s".repeat(MOST_SESSION_BYTES + 1).into();
    assert!(Outgoing::of(&delivery(&long)).is_err());
}

#[test]
fn what_is_no_frame_is_refused_with_its_reason() {
    for (text, reason) in [
        ("", "not JSON"),
        ("nope", "not JSON"),
        ("[]", "not an object"),
        ("null", "not an object"),
        (r#"[1,"EVENT"]"#, "not an object"),
        ("{}", "no `v`"),
        (r#"{"v":2,"type":"EVENT"}"#, "version is 2"),
        (r#"{"v":"1","type":"EVENT"}"#, "version is"),
        (r#"{"v":1.0,"type":"EVENT"}"#, "version is 1.0"),
        (r#"{"v":1}"#, "no `type`"),
        (r#"{"v":1,"type":"event"}"#, "not known"),
        (r#"{"v":1,"type":"EVENT"}"#, "no `id`"),
        (r#"{"v":1,"type":"ACK"}"#, "no `ids`"),
        (r#"{"v":1,"type":"ACK","ids":["x"]}"#, "not JSON"),
        (r#"{"v":1,"type":"BATCH"}"#, "no `frames`"),
        (r#"{"v":1,"type":"BATCH","frames":[]}"#, "between 1 and 50"),
        (r#"{"v":1,"type":"BATCH","frames":{}}"#, "`frames`"),
        (
            r#"{"v":1,"type":"BATCH","frames":[{"v":1,"type":"BATCH","frames":[]}]}"#,
            "BATCH inside",
        ),
    ] {
        let error = refusal(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    let whole = message("");
    for cut in 1..whole.len() {
        refusal(&whole[..cut]);
    }
    let answer = whole.replace("EVENT", "RESPONSE");
    assert_eq!(refusal(&answer), FrameError::Missing("correlation_id"));
    let nameless = whole.replace(r#""session":"s""#, r#""session":"""#);
    assert!(refusal(&nameless).to_string().contains("`session`"));
}

#[test]
fn unknown_fields_are_ignored_and_unknown_versions_are_not() {
    let later = message(r#","hop":{"count":1}"#);
    assert_eq!(read(later.as_bytes()).refused, None);
}

#[test]
fn ten_thousand_levels_are_refused_without_a_stack() {
    let open = "[".repeat(10_000);
    let nested = format!("{open}{}", "]".repeat(10_000));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    for data in [&nested, &objects] {
        let frame = message("").replace(r#"{"a":1.0}"#, data);
        assert_eq!(refusal(&frame), FrameError::TooDeep);
        assert_eq!(refusal(data), FrameError::TooDeep);
        let inside = format!(r#"{{"v":1,"type":"BATCH","frames":[{frame}]}}"#);
        assert_eq!(refusal(&inside), FrameError::TooDeep);
    }
    assert_eq!(refusal(&open), FrameError::TooDeep);
    // Brackets in a text are no levels, whatever is escaped in it.
    let text = message("").replace(r#"{"a":1.0}"#, &format!(r#""\"\\{open}""#));
    assert_eq!(read(text.as_bytes()).refused, None);
    let most = MOST_DEPTH - 1;
    let deepest = format!("{}{}", "[".repeat(most), "]".repeat(most));
    let frame = message("").replace(r#"{"a":1.0}"#, &deepest);
    assert_eq!(read(frame.as_bytes()).refused, None);
}

#[test]
fn of_a_batch_whose_third_frame_is_refused_the_first_two_are_read() {
    let good = message("");
    for bad in [
        r#"{"v":9,"type":"EVENT"}"#.to_owned(),
        message("").replace(r#""session":"s""#, r#""session":"other""#),
        "7".to_owned(),
    ] {
        let text = format!(r#"{{"v":1,"type":"BATCH","frames":[{good},{good},{bad},{good}]}}"#);
        let received = read(text.as_bytes());
        assert_eq!(received.frames.len(), 2, "{bad}");
        assert!(received.refused.is_some(), "{bad}");
    }
}

#[test]
fn batches_and_acknowledgements_are_bounded() {
    let many = vec![message("").into_bytes(); MOST_FRAMES + 1];
    assert_eq!(read(&batch(&many)).refused, Some(FrameError::BatchSize));
    assert_eq!(read(&batch(&many[1..])).frames.len(), MOST_FRAMES);
    let ids = vec![Uuid::nil(); MOST_IDS + 1];
    assert!(read(&ack(&ids)).refused.is_some());
    assert_eq!(read(&ack(&ids[1..])).refused, None);
    let hundred_thousand = vec![Uuid::nil(); 100_000];
    assert!(read(&ack(&hundred_thousand)).refused.is_some());
}
