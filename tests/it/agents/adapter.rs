//! C3, C7, C9: the adapter `agent` against peers that behave and peers that do not.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_adapters::{Environment, build};
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Verdict};
use lanekeeper_core::event::Event;
use lanekeeper_core::frame::{self, Frame};
use serde_json::json;
use uuid::Uuid;

use crate::conformance::destination::{deliver_batch, event, rejection, retry_error};
use crate::conformance::http_server::{HttpServer, Reply};

fn agent(server: &HttpServer) -> Arc<dyn Adapter> {
    let settings = json!({
        "url": server.url("/v1/agents/inbox/frames"), "token_env": "TOKEN", "timeout_ms": 3000,
    });
    let environment = Environment::with_variables(true, [("TOKEN", "lk_1_abc")]);
    build("agent", "bob", &settings, &environment).unwrap()
}

fn events(count: i64) -> Vec<Event> {
    (1..=count).map(|seq| event("s", seq, "1")).collect()
}

async fn deliver(adapter: &dyn Adapter, event: &Event) -> Verdict {
    adapter
        .deliver(&Delivery {
            event,
            subscription: "bob",
            attempt: 1,
            requeued: false,
            replay_id: None,
            asks_ack: true,
            trace: None,
            observed: None,
        })
        .await
}

#[tokio::test]
async fn one_event_is_a_frame_and_several_are_a_batch() {
    let server = HttpServer::start(|_| Reply::status("200 OK")).await;
    let adapter = agent(&server);
    assert_eq!(adapter.max_batch(), frame::MOST_FRAMES);
    let events = events(3);
    assert_eq!(deliver(&*adapter, &events[0]).await, Verdict::Sent);
    let verdict = deliver_batch(&*adapter, &events, true).await;
    assert_eq!(verdict, BatchVerdict::Each(vec![Verdict::Sent; 3]));
    let requests = server.log().requests;
    assert_eq!(requests[0].headers["authorization"], "Bearer lk_1_abc");
    for (request, count) in requests.iter().zip([1, 3]) {
        let received = frame::read(&request.body);
        assert_eq!(received.refused, None);
        let ids: Vec<Uuid> = received
            .frames
            .iter()
            .map(|frame| match frame {
                Frame::Message(message) => message.id,
                Frame::Ack(_) => panic!("an ACK"),
            })
            .collect();
        let expected: Vec<Uuid> = events[..count].iter().map(|one| one.message_id).collect();
        assert_eq!(ids, expected);
    }
}

#[tokio::test]
async fn an_ack_in_the_answer_counts_for_what_was_sent_and_a_strange_id_spoils_it() {
    let events = events(2);
    let [first, second] = [events[0].message_id, events[1].message_id];
    let sent = Verdict::Sent;
    let cases = [
        (
            json!({"v": 1, "type": "ACK", "ids": [first, second]}),
            [Verdict::Accepted, Verdict::Accepted],
        ),
        (
            json!({"v": 1, "type": "ACK", "ids": [second]}),
            [sent.clone(), Verdict::Accepted],
        ),
        (
            json!({"v": 1, "type": "ACK", "ids": [first, Uuid::now_v7()]}),
            [sent.clone(), sent.clone()],
        ),
        (json!({"ack": true}), [Verdict::Accepted, Verdict::Accepted]),
        (
            json!({"v": 1, "type": "EVENT", "ids": [first]}),
            [sent.clone(), sent],
        ),
    ];
    for (answer, expected) in cases {
        let text = answer.to_string();
        let body = text.clone();
        let server = HttpServer::start(move |_| Reply::with_body("200 OK", body.clone())).await;
        let verdict = deliver_batch(&*agent(&server), &events, true).await;
        assert_eq!(verdict, BatchVerdict::Each(expected.to_vec()), "{text}");
    }
}

#[tokio::test]
async fn an_ack_frame_is_settled_when_it_is_taken() {
    let server = HttpServer::start(|_| Reply::status("200 OK")).await;
    let adapter = agent(&server);
    let id = Uuid::now_v7();
    let mut ack = event("s", 1, &json!({"ids": [id]}).to_string());
    ack.headers = Some(r#"{"frame":"ACK"}"#.to_owned());
    assert_eq!(deliver(&*adapter, &ack).await, Verdict::Accepted);
    assert_eq!(
        frame::read(&server.log().requests[0].body).frames,
        [Frame::Ack(vec![id])]
    );
    ack.payload = "{}".to_owned();
    assert!(rejection(deliver(&*adapter, &ack).await).contains("`ids`"));
}

#[tokio::test]
async fn an_event_that_is_no_frame_is_refused_alone() {
    let server = HttpServer::start(|_| Reply::with_body("200 OK", r#"{"ack":true}"#)).await;
    let adapter = agent(&server);
    let mut events = events(3);
    events[1].headers = Some(r#"{"frame":"RESPONSE"}"#.to_owned());
    let verdict = deliver_batch(&*adapter, &events, true).await;
    assert_eq!(
        verdict,
        BatchVerdict::Each(vec![Verdict::Accepted]),
        "those before it"
    );
    let error = rejection(deliver(&*adapter, &events[1]).await);
    assert!(error.contains("correlation_id"), "{error}");
}

#[tokio::test]
async fn a_peer_that_breaks_off_or_is_silent_is_tried_again_and_one_that_refuses_is_not() {
    let events = events(1);
    for (reply, is_final) in [
        ((|_| Reply::Half) as fn(&_) -> Reply, false),
        (|_| Reply::Drip("200 OK"), false),
        (|_| Reply::Silence, false),
        (|_| Reply::status("503 Service Unavailable"), false),
        (|_| Reply::status("401 Unauthorized"), true),
        (|_| Reply::status("409 Conflict"), true),
    ] {
        let server = HttpServer::start(reply).await;
        let adapter = agent(&server);
        let delivering = deliver(&*adapter, &events[0]);
        let verdict = tokio::time::timeout(Duration::from_secs(20), delivering)
            .await
            .unwrap();
        let error = if is_final {
            rejection(verdict)
        } else {
            retry_error(verdict)
        };
        assert!(!error.contains("lk_1_abc"), "{error}");
    }
}
