use std::time::Instant;

use serde_json::json;

use super::*;

fn headers(named: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in named {
        let name: axum::http::HeaderName = name.parse().unwrap();
        headers.append(
            name,
            axum::http::HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    headers
}

fn structured(event: &Value) -> Result<(String, String, Value), String> {
    read(Mode::Structured, &[], event.to_string().as_bytes())
}

/// Type, payload and headers of the one event.
fn read(
    mode: Mode,
    named: &[(&str, &str)],
    body: &[u8],
) -> Result<(String, String, Value), String> {
    let read = CloudEvents::read(mode, &headers(named), body, None);
    let read = read.map_err(|problem| problem.detail().to_owned())?;
    let [event] = &read.events[..] else {
        panic!("{} events", read.events.len());
    };
    let headers = serde_json::from_str(&event.headers).unwrap();
    Ok((
        event.event_type.clone(),
        event.payload.clone().into_owned(),
        headers,
    ))
}

const BINARY: [(&str, &str); 4] = [
    ("ce-specversion", "1.0"),
    ("ce-id", "1"),
    ("ce-source", "/a"),
    ("ce-type", "t"),
];

fn binary(more: &[(&str, &str)], body: &[u8]) -> Result<(String, String, Value), String> {
    read(Mode::Binary, &[&BINARY, more].concat(), body)
}

#[test]
fn the_mode_is_told_by_the_headers() {
    let mode = |named: &[(&str, &str)]| {
        Mode::of(&headers(named)).map_err(|problem| problem.problem_type())
    };
    assert_eq!(mode(&[]), Ok(None));
    assert_eq!(
        mode(&[("content-type", "application/json"), ("ce-other", "1")]),
        Ok(None)
    );
    let type_of = |content: &'static str| mode(&[("content-type", content), ("ce-id", "1")]);
    assert_eq!(type_of("application/json"), Ok(Some(Mode::Binary)));
    assert_eq!(
        type_of("Application/CloudEvents+JSON; charset=UTF-8"),
        Ok(Some(Mode::Structured))
    );
    assert_eq!(
        type_of("application/cloudevents-batch+json"),
        Ok(Some(Mode::Batched))
    );
    for other in [
        "application/cloudevents",
        "application/cloudevents+avro",
        "application/cloudevents-batch",
        "application/cloudevents-batch+protobuf",
    ] {
        assert_eq!(
            type_of(other),
            Err(problem_type::UNSUPPORTED_MEDIA_TYPE),
            "{other}"
        );
    }
}

#[test]
fn a_structured_event_keeps_its_attributes_and_the_text_of_its_data() {
    let body = br#"{"specversion":"1.0","id":"A 1","source":"/s","type":"t","subject":null,"n":5,
        "traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","data": {"b": 1.00, "a": "\u00e4"} }"#;
    let (event_type, payload, headers) = read(Mode::Structured, &[], body).unwrap();
    assert_eq!(event_type, "t");
    assert_eq!(payload, r#"{"b": 1.00, "a": "\u00e4"}"#);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let attributes = json!({"id": "A 1", "source": "/s", "n": 5, "traceparent": trace});
    assert_eq!(
        headers,
        json!({"cloudevent": attributes, "traceparent": trace})
    );
}

#[test]
fn what_is_no_cloudevent_is_refused_with_its_reason() {
    let whole = json!({"specversion": "1.0", "id": "1", "source": "/a", "type": "t"});
    assert!(structured(&whole).is_ok());
    for (name, value, reason) in [
        ("specversion", json!("0.3"), "0.3"),
        ("specversion", json!(null), "no `specversion`"),
        ("specversion", json!(1.0), "must be a text"),
        ("id", json!(null), "no `id`"),
        ("id", json!(""), "is empty"),
        ("source", json!("a b"), "URI"),
        ("type", json!({}), "`type`"),
        ("time", json!("now"), "RFC 3339"),
        ("ext", json!([1]), "`ext`"),
        ("Ext", json!(1), "lower-case"),
        ("data_base64", json!("?"), "no base64"),
        ("data_base64", json!(5), "no base64"),
    ] {
        let mut event = whole.clone();
        event[name] = value;
        let error = structured(&event).unwrap_err();
        assert!(
            error.contains(reason) && error.contains("nothing was enqueued"),
            "{error}"
        );
    }
    let mut two = whole.clone();
    two["data"] = json!(1);
    two["data_base64"] = json!("");
    assert!(
        structured(&two)
            .unwrap_err()
            .contains("`data` and `data_base64`")
    );
    let twice = r#"{"specversion":"1.0","id":"1","id":"2","source":"/a","type":"t"}"#;
    assert!(
        read(Mode::Structured, &[], twice.as_bytes())
            .unwrap_err()
            .contains("twice")
    );
    let twice = r#"{"specversion":"1.0","id":"1","source":"/a","type":"t","data":1,"data":2}"#;
    assert!(
        read(Mode::Structured, &[], twice.as_bytes())
            .unwrap_err()
            .contains("data")
    );
    for body in ["", "[]", "5", "null", "{\"id\":\"\u{0}", r#""event""#] {
        assert!(
            read(Mode::Structured, &[], body.as_bytes()).is_err(),
            "{body}"
        );
    }
    assert!(read(Mode::Structured, &[], b"{\"id\":\"\xff\"}").is_err());
}

#[test]
fn a_batch_is_bounded_and_names_the_event_that_is_wrong() {
    let event = r#"{"specversion":"1.0","id":"1","source":"/a","type":"t"}"#;
    let batch = |events: &[&str]| {
        let body = format!("[{}]", events.join(","));
        let read = CloudEvents::read(Mode::Batched, &HeaderMap::new(), body.as_bytes(), None);
        read.map(|all| (all.is_array, all.events.len()))
            .map_err(|problem| problem.detail().to_owned())
    };
    assert_eq!(batch(&[]), Ok((true, 0)));
    assert_eq!(batch(&[event; 1_000]), Ok((true, 1_000)));
    assert!(
        batch(&[event; 1_001])
            .unwrap_err()
            .contains("more than 1000")
    );
    let error = batch(&[event, r#"{"specversion":"1.0"}"#]).unwrap_err();
    assert!(
        error.contains("event 2") && error.contains("`type`"),
        "{error}"
    );
    assert!(batch(&["[]"]).is_err());
}

#[test]
fn a_binary_event_has_its_attributes_in_headers_and_any_data_in_the_body() {
    let more = [
        ("ce-subject", "Euro%20%e2%82%AC%20%F0%9F%98%80"),
        ("ce-quoted", "\"a \\\"b\\\" %25\""),
        ("content-type", "application/vnd.x+json"),
    ];
    let (event_type, payload, headers) = binary(&more, b"{\"n\": 1.0}").unwrap();
    assert_eq!(
        (event_type.as_str(), payload.as_str()),
        ("t", "{\"n\": 1.0}")
    );
    let expected = json!({"cloudevent": {
        "id": "1", "source": "/a", "subject": "Euro € 😀", "quoted": "a \"b\" %",
        "datacontenttype": "application/vnd.x+json",
    }});
    assert_eq!(headers, expected);
    assert_eq!(binary(&[], b"").unwrap().1, "null");
    assert_eq!(binary(&[], b"5").unwrap().1, "5");
    let text = binary(
        &[("content-type", "text/plain; charset=utf-8")],
        "ä\"".as_bytes(),
    );
    assert_eq!(text.unwrap().1, r#""ä\"""#);
    let (_, payload, headers) = binary(&[("content-type", "image/png")], b"\xff\x00").unwrap();
    assert_eq!(payload, r#""/wA=""#);
    assert_eq!(headers["cloudevent"]["data_base64"], true);
}

#[test]
fn headers_that_are_no_attributes_are_refused() {
    for (more, reason) in [
        (&[("ce-subject", "%C0%A0")][..], "percent-encoded"),
        (&[("ce-subject", "\"open")], "percent-encoded"),
        (&[("ce-subject", "\"a\" b")], "percent-encoded"),
        (&[("ce-subject", "a%0Ab")], "control character"),
        (&[("ce-id", "2")], "twice"),
        (&[("ce-a_b", "2")], "lower-case"),
        (&[("ce-datacontenttype", "text/plain")], "content-type"),
        (&[("content-type", "json")], "media type"),
    ] {
        let error = binary(more, b"1").unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    let not_text = binary(&[("content-type", "text/plain")], b"\xff").unwrap_err();
    assert!(not_text.contains("UTF-8"), "{not_text}");
    let error = read(Mode::Binary, &BINARY[1..], b"1").unwrap_err();
    assert!(error.contains("no `specversion`"), "{error}");
}

#[test]
fn source_and_id_are_the_key_however_long_they_are() {
    assert_eq!(key("/a", "b c"), "cloudevent /a b c");
    let long = key("/a", &"x".repeat(600));
    assert!(long.len() <= LONGEST_KEY && long != key("/a", &"x".repeat(601)));
    assert_eq!(long, key("/a", &"x".repeat(600)));
}

#[test]
fn a_large_value_that_is_no_attribute_costs_no_more_than_its_text() {
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let wide = vec![deep; 20_000].join(",");
    let body = format!(r#"{{"specversion":"1.0","ext":[{wide}]}}"#);
    let began = Instant::now();
    assert!(read(Mode::Structured, &[], body.as_bytes()).is_err());
    assert!(began.elapsed().as_secs() < 5);
}
