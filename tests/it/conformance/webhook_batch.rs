//! C7: several events in one request of a webhook.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_adapters::{Environment, Signer, build};
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Verdict};
use lanekeeper_core::event::Event;
use serde_json::{Value, json};

use super::destination::{deliver_batch, event, retry_error};
use super::http_server::{HttpServer, Reply};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn webhook(server: &HttpServer) -> Arc<dyn Adapter> {
    let settings =
        json!({"url": server.url("/hook"), "secret_env": "KEY", "timeout_ms": 5000, "batch": 50});
    let environment = Environment::with_variables(true, [("KEY", SECRET)]);
    build("webhook", "audit", &settings, &environment).unwrap()
}

fn events(count: i64) -> Vec<Event> {
    (1..=count)
        .map(|seq| event("s-1", seq, r#"{"n": 1.0}"#))
        .collect()
}

/// What an answer to a batch of three means.
async fn verdict_on(
    asks_ack: bool,
    reply: impl Fn() -> Reply + Send + Sync + 'static,
) -> BatchVerdict {
    let server = HttpServer::start(move |_| reply()).await;
    deliver_batch(&*webhook(&server), &events(3), asks_ack).await
}

#[tokio::test]
async fn a_batch_is_one_request_with_every_event_and_a_signature_over_all() {
    let server = HttpServer::start(|_| Reply::status("204 No Content")).await;
    let adapter = webhook(&server);
    assert_eq!(adapter.max_batch(), 50);
    let events = events(50);
    let verdict = deliver_batch(&*adapter, &events, false).await;
    assert_eq!(verdict, BatchVerdict::Each(vec![Verdict::Accepted; 50]));
    let log = server.log();
    assert_eq!(log.requests.len(), 1);
    let request = &log.requests[0];
    let header = |name: &str| request.headers[name].as_str();
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let batch = body["batch"].as_array().unwrap();
    let ids: Vec<&str> = batch
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    let expected: Vec<String> = events
        .iter()
        .map(|one| one.message_id.to_string())
        .collect();
    assert_eq!(ids, expected);
    assert_eq!(
        (header("lanekeeper-batch"), header("lanekeeper-seq")),
        ("50", "1")
    );
    let id = header("webhook-id");
    assert!(
        !expected.iter().any(|event| event == id),
        "not that of an event"
    );
    let signer = Signer::parse(SECRET).unwrap();
    let timestamp = header("webhook-timestamp").parse().unwrap();
    assert_eq!(
        header("webhook-signature"),
        signer.sign(id, timestamp, &request.body)
    );
}

#[tokio::test]
async fn an_answer_says_how_many_events_were_accepted_and_its_status_what_became_of_the_next() {
    let two = || r#"{"accepted": 2, "error": "the third has no total"}"#;
    let accepted = [Verdict::Accepted, Verdict::Accepted];
    for status in [
        "200 OK",
        "503 Service Unavailable",
        "422 Unprocessable Content",
    ] {
        let BatchVerdict::Each(verdicts) =
            verdict_on(false, move || Reply::with_body(status, two())).await
        else {
            panic!("{status}");
        };
        assert_eq!(
            (&verdicts[..2], verdicts.len()),
            (&accepted[..], 3),
            "{status}"
        );
        let (Verdict::Retry { error, .. } | Verdict::Rejected { error }) = &verdicts[2] else {
            panic!("{verdicts:?}");
        };
        assert!(error.contains("no total"), "{error}");
        let is_final = matches!(verdicts[2], Verdict::Rejected { .. });
        assert_eq!(is_final, status.starts_with('4'), "{status}");
    }
    let refused = verdict_on(false, || Reply::with_body("400 Bad Request", "why")).await;
    assert!(matches!(
        refused,
        BatchVerdict::Whole(Verdict::Rejected { .. })
    ));
}

/// To take it for an acceptance of all would lose what the rest of the answer says was not accepted.
#[tokio::test]
async fn an_answer_to_a_batch_that_is_not_whole_or_claims_too_much_accepts_nothing() {
    let drips: fn() -> Reply = || Reply::Drip("200 OK");
    let halves: fn() -> Reply = || Reply::Half;
    let claims: fn() -> Reply = || Reply::with_body("200 OK", r#"{"accepted":4}"#);
    let broken: fn() -> Reply = || Reply::with_body("200 OK", r#"{"accepted":2"#);
    let huge: fn() -> Reply = || Reply::with_body("200 OK", " ".repeat(100_000));
    for reply in [drips, halves, claims, broken, huge] {
        let BatchVerdict::Whole(verdict) = verdict_on(false, reply).await else {
            panic!("accepted something");
        };
        retry_error(verdict);
    }
}

#[tokio::test]
async fn an_answer_that_names_an_event_that_it_was_not_sent_acknowledges_nothing() {
    let body = json!({"ack": [uuid::Uuid::now_v7()]}).to_string();
    let verdict = verdict_on(true, move || Reply::with_body("200 OK", body.clone())).await;
    assert_eq!(verdict, BatchVerdict::Each(vec![Verdict::Sent; 3]));
    let verdict = verdict_on(true, || Reply::with_body("200 OK", r#"{"ack":true}"#)).await;
    assert_eq!(verdict, BatchVerdict::Each(vec![Verdict::Accepted; 3]));
}

#[tokio::test]
async fn a_silent_receiver_of_a_batch_ends_at_the_time_out() {
    let server = HttpServer::start(|_| Reply::Silence).await;
    let settings = json!({"url": server.url("/"), "timeout_ms": 300, "batch": 2});
    let environment = Environment::with_variables(true, [("", ""); 0]);
    let adapter = build("webhook", "audit", &settings, &environment).unwrap();
    let events = events(2);
    let ended = tokio::time::timeout(
        Duration::from_secs(5),
        deliver_batch(&*adapter, &events, false),
    );
    let BatchVerdict::Whole(verdict) = ended.await.unwrap() else {
        panic!("accepted something");
    };
    assert!(retry_error(verdict).contains("within 300ms"));
}
