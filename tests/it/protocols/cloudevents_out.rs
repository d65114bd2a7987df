//! CloudEvents that the webhook adapter sends.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanekeeper_adapters::{Environment, Signer, build};
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Verdict};
use lanekeeper_core::event::Event;
use serde_json::{Value, json};

use super::sdk;
use crate::conformance::destination::{deliver, deliver_batch, event, rejection, retry_error};
use crate::conformance::http_server::{HttpServer, Reply, Request};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn webhook(server: &HttpServer, more: &Value) -> Arc<dyn Adapter> {
    let mut settings = json!({
        "url": server.url("/hook"), "secret_env": "KEY", "timeout_ms": 5000, "format": "cloudevents",
    });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    let environment = Environment::with_variables(true, [("KEY", SECRET)]);
    build("webhook", "audit", &settings, &environment).unwrap()
}

fn assert_signed(request: &Request) {
    let header = |name: &str| request.headers[name].as_str();
    let signer = Signer::parse(SECRET).unwrap();
    let (id, time) = (header("webhook-id"), header("webhook-timestamp"));
    assert!(signer.verifies(id, time, &request.body, header("webhook-signature")));
}

/// As the scripts of tests/protocols take it.
fn message(request: &Request) -> Value {
    json!({"headers": request.headers, "body": STANDARD.encode(&request.body)})
}

/// One of ours, and two that came as CloudEvents themselves.
fn events() -> Vec<Event> {
    let own = event("ünï \"1\" 100%", 7, r#"{"n": 1, "text": "漢字"}"#);
    let mut text = event("s", 8, r#""plain ü""#);
    text.headers = Some(
        json!({"cloudevent": {"id": "A 2", "source": "/else", "datacontenttype": "text/plain", "n": 5}}).to_string(),
    );
    let mut bytes = event("s", 9, r#""/wAB""#);
    bytes.headers = Some(
        json!({"cloudevent": {
            "id": "3", "source": "/else", "datacontenttype": "application/octet-stream", "data_base64": true,
        }})
        .to_string(),
    );
    vec![own, text, bytes]
}

#[tokio::test]
async fn every_content_mode_says_the_same_and_is_signed_and_the_same_at_every_attempt() {
    let server = HttpServer::start(|_| Reply::status("204 No Content")).await;
    let event = event("run 42", 7, r#"{"n": 1.00}"#);
    for mode in ["structured", "batched", "binary"] {
        let adapter = webhook(
            &server,
            &json!({"content_mode": mode, "source": "https://a.example/x/"}),
        );
        assert_eq!(adapter.max_batch(), if mode == "batched" { 50 } else { 1 });
        for _ in 0..2 {
            assert_eq!(deliver(&*adapter, &event).await, Verdict::Accepted);
        }
    }
    let requests = server.log().requests;
    for request in &requests {
        assert_signed(request);
        assert_eq!(request.headers["lanekeeper-session"], "run%2042");
        assert_eq!(request.headers["lanekeeper-seq"], "7");
        assert_eq!(request.headers["webhook-id"], event.message_id.to_string());
    }
    let attributes = json!({
        "specversion": "1.0", "id": event.message_id, "source": "https://a.example/x/run%2042", "type": "agent_stop",
        "subject": "run 42", "partitionkey": "run 42", "sequence": "0000000000000000007",
        "time": "2026-01-02T03:04:05.678901Z", "datacontenttype": "application/json",
    });
    let without_data = |body: &[u8]| {
        let text = std::str::from_utf8(body).unwrap();
        assert!(
            text.contains(r#","data":{"n": 1.00}}"#),
            "as it is stored: {text}"
        );
        let mut read: Value = serde_json::from_str(text).unwrap();
        let event = if read.is_array() {
            &mut read[0]
        } else {
            &mut read
        };
        event.as_object_mut().unwrap().remove("data");
        event.clone()
    };
    let [
        structured,
        structured_again,
        batched,
        batched_again,
        binary,
        _,
    ] = &requests[..]
    else {
        panic!("{} requests", requests.len());
    };
    assert_eq!(
        structured.headers["content-type"],
        "application/cloudevents+json; charset=utf-8"
    );
    assert_eq!(without_data(&structured.body), attributes);
    assert_eq!(structured.body, structured_again.body);
    assert_eq!(
        batched.headers["content-type"],
        "application/cloudevents-batch+json; charset=utf-8"
    );
    assert_eq!(without_data(&batched.body), attributes);
    assert_eq!(batched.body, batched_again.body);
    assert_eq!(binary.body, br#"{"n": 1.00}"#);
    for (name, value) in attributes.as_object().unwrap() {
        let header = match name.as_str() {
            "datacontenttype" => "content-type".to_owned(),
            name => format!("ce-{name}"),
        };
        let value = value
            .as_str()
            .unwrap()
            .replace('%', "%25")
            .replace(' ', "%20");
        assert_eq!(binary.headers[&header], value, "{header}");
    }
}

#[tokio::test]
async fn a_batch_is_answered_as_any_batch_and_one_event_as_any_event() {
    let answers = [
        ("200 OK", r#"{"accepted":1}"#),
        ("200 OK", ""),
        ("503 Service Unavailable", ""),
        ("400 Bad Request", ""),
    ];
    for (status, body) in answers {
        let server = HttpServer::start(move |_| Reply::with_body(status, body)).await;
        let adapter = webhook(&server, &json!({"content_mode": "batched"}));
        let events: Vec<Event> = (1..=3).map(|seq| event("s", seq, "1")).collect();
        let verdict = deliver_batch(&*adapter, &events, false).await;
        let request = server.log().requests.remove(0);
        assert_signed(&request);
        let sent: Vec<Value> = serde_json::from_slice(&request.body).unwrap();
        let ids: Vec<String> = sent
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect();
        let expected: Vec<String> = events
            .iter()
            .map(|one| one.message_id.to_string())
            .collect();
        assert_eq!(
            (ids, request.headers["lanekeeper-batch"].as_str()),
            (expected, "3")
        );
        match (status, body) {
            ("200 OK", "") => assert_eq!(verdict, BatchVerdict::Each(vec![Verdict::Accepted; 3])),
            ("200 OK", _) => {
                assert_eq!(verdict.of(0), Some(&Verdict::Accepted));
                assert!(retry_error(verdict.of(1).unwrap().clone()).contains("1 of 3"));
            }
            (_, _) => {
                let BatchVerdict::Whole(verdict) = verdict else {
                    panic!("{verdict:?}")
                };
                assert!(matches!(
                    verdict,
                    Verdict::Retry { .. } | Verdict::Rejected { .. }
                ));
            }
        }
        let one = deliver(&*adapter, &events[0]).await;
        match status {
            "200 OK" => assert_eq!(one, Verdict::Accepted),
            "400 Bad Request" => assert!(rejection(one).contains("400")),
            _ => assert!(retry_error(one).contains("503")),
        }
    }
}

#[tokio::test]
async fn the_sdks_read_what_is_sent() {
    let server = HttpServer::start(|_| Reply::status("204 No Content")).await;
    let events = events();
    for mode in ["structured", "binary"] {
        let adapter = webhook(&server, &json!({"content_mode": mode}));
        for event in &events {
            assert_eq!(deliver(&*adapter, event).await, Verdict::Accepted);
        }
    }
    let messages: Vec<Value> = server.log().requests.iter().map(message).collect();
    let batched = webhook(&server, &json!({"content_mode": "batched"}));
    deliver_batch(&*batched, &events, false).await;
    let batch = message(server.log().requests.last().unwrap());

    if let Some(read) = sdk::ask("cloudevents_sdk.py", &["read"], &json!(messages)) {
        let read = read.as_array().unwrap();
        assert_eq!(read.len(), 6);
        for (at, one) in read.iter().enumerate() {
            let (attributes, event) = (&one["attributes"], &events[at % 3]);
            let id = [
                event.message_id.to_string(),
                "A 2".to_owned(),
                "3".to_owned(),
            ];
            assert_eq!(attributes["id"], id[at % 3], "{one}");
            assert_eq!(attributes["type"], "agent_stop");
            assert_eq!(attributes["partitionkey"], *event.session, "{one}");
            let data = [
                json!({"n": 1, "text": "漢字"}),
                json!("plain ü"),
                json!({"bytes": "/wAB"}),
            ];
            assert_eq!(one["data"], data[at % 3], "{one}");
            if at % 3 == 0 {
                assert_eq!(attributes["sequence"], "0000000000000000007");
                assert_eq!(
                    attributes["source"],
                    "/streams/hooks/sessions/%C3%BCn%C3%AF%20%221%22%20100%25"
                );
            } else {
                assert_eq!(attributes["source"], "/else");
            }
        }
    }
    // That of npm leaves the headers of the binary mode encoded.
    let of_node = [&messages[..3], &[batch]].concat();
    if let Some(read) = sdk::ask("cloudevents_sdk.mjs", &[], &json!(of_node)) {
        let ids: Vec<&str> = read
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap())
            .collect();
        let own = events[0].message_id.to_string();
        assert_eq!(ids, [&own, "A 2", "3", &own, "A 2", "3"]);
        assert_eq!(read[3]["data"], json!({"n": 1, "text": "漢字"}));
        assert_eq!(read[3]["subject"], "ünï \"1\" 100%");
        assert_eq!(read[4]["n"], 5);
        assert_eq!(read[5]["data_base64"], "/wAB");
    }
}
