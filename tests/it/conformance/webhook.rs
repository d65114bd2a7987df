//! Webhooks, against a server that can misbehave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_adapters::{Environment, build};
use lanekeeper_core::adapter::{Adapter, Verdict};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::conforms;
use super::destination::{
    Conduct, Destination, Recorder, Watched, deliver, event, rejection, retry_error,
};
use super::http_server::{HttpServer, Reply};

conforms!(Receiver:
    accepted_event_arrives_whole,
    passing_failure_is_retried,
    final_refusal_is_a_rejection,
    silence_ends_at_the_time_out_in_a_retry,
    dropped_delivery_leaves_nothing_running,
    payload_passes_through_unchanged,
    any_session_name_is_carried,
    concurrent_deliveries_do_not_mix,
);

struct Receiver {
    server: HttpServer,
    adapter: Arc<dyn Adapter>,
}

#[async_trait]
impl Destination for Receiver {
    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let server = HttpServer::start(move |_| match conduct {
            Conduct::Accept => Reply::status("204 No Content"),
            Conduct::FailForNow => Reply::status("503 Service Unavailable"),
            Conduct::Refuse => Reply::status("422 Unprocessable Content"),
            Conduct::Hang => Reply::Silence,
        })
        .await;
        let adapter = webhook(&server.url("/hook"), timeout);
        Self { server, adapter }
    }

    fn adapter(&self) -> Arc<dyn Adapter> {
        self.adapter.clone()
    }
}

#[async_trait]
impl Recorder for Receiver {
    async fn bodies(&self, n: usize) -> Vec<String> {
        let log = self.server.wait_until(|log| log.requests.len() >= n).await;
        let text = |request| String::from_utf8(request).unwrap();
        log.requests
            .into_iter()
            .map(|request| text(request.body))
            .collect()
    }
}

#[async_trait]
impl Watched for Receiver {
    async fn reached(&self) {
        self.server.wait_until(|log| log.requests.len() == 1).await;
    }

    async fn abandoned(&self) {
        self.server
            .wait_until(|log| log.opened == 1 && log.closed == 1)
            .await;
    }
}

fn nearby() -> Environment {
    Environment::with_variables(true, [("", ""); 0])
}

fn webhook(url: &str, timeout: Duration) -> Arc<dyn Adapter> {
    let settings = json!({"url": url, "timeout_ms": u64::try_from(timeout.as_millis()).unwrap()});
    build("webhook", "audit", &settings, &nearby()).unwrap()
}

/// Posts one event to a server that answers with `reply`.
async fn verdict_on(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Verdict {
    let server = HttpServer::start(move |_| reply()).await;
    let adapter = webhook(&server.url("/hook"), Duration::from_secs(15));
    deliver(&*adapter, &event("s-1", 1, "{}")).await
}

#[tokio::test]
async fn request_carries_the_documented_headers() {
    let server = HttpServer::start(|_| Reply::status("200 OK")).await;
    let adapter = webhook(&server.url("/hook?key=k"), Duration::from_secs(15));
    let mut event = event("a b%20\nü", 42, "{}");
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    event.headers = Some(json!({"traceparent": parent, "other": [1]}).to_string());
    assert_eq!(deliver(&*adapter, &event).await, Verdict::Accepted);
    let request = &server.log().requests[0];
    assert_eq!(request.line, "POST /hook?key=k HTTP/1.1");
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(
        header("webhook-id"),
        Some(event.message_id.to_string().as_str())
    );
    assert_eq!(header("lanekeeper-session"), Some("a%20b%2520%0A%C3%BC"));
    assert_eq!(header("lanekeeper-seq"), Some("42"));
    assert_eq!(header("lanekeeper-attempt"), Some("3"));
    assert_eq!(header("traceparent"), Some(parent));
    assert_eq!(
        header("webhook-signature"),
        None,
        "there is no secret to sign with"
    );
    let sent: i64 = header("webhook-timestamp").unwrap().parse().unwrap();
    assert!((jiff::Timestamp::now().as_second() - sent).abs() <= 5);
}

#[tokio::test]
async fn unusable_trace_context_does_not_hinder_the_delivery() {
    let server = HttpServer::start(|_| Reply::status("200 OK")).await;
    let adapter = webhook(&server.url("/"), Duration::from_secs(15));
    for headers in [r#"{"traceparent": 7}"#, r#"{"traceparent": "a\nb"}"#, "[]"] {
        let mut event = event("s-1", 1, "{}");
        event.headers = Some(headers.to_owned());
        assert_eq!(deliver(&*adapter, &event).await, Verdict::Accepted);
    }
    let requests = server.log().requests;
    assert!(
        requests
            .iter()
            .all(|request| !request.headers.contains_key("traceparent"))
    );
}

#[tokio::test]
async fn one_connection_serves_many_deliveries_failed_ones_included() {
    let server = HttpServer::start(|request| match request.headers["lanekeeper-seq"].as_str() {
        "2" => Reply::with_body("500 Internal Server Error", "x".repeat(20_000)),
        "3" => Reply::with_body("200 OK", "x".repeat(20_000)),
        _ => Reply::status("204 No Content"),
    })
    .await;
    let adapter = webhook(&server.url("/"), Duration::from_secs(15));
    for seq in 1..=5 {
        deliver(&*adapter, &event("s-1", seq, "{}")).await;
    }
    let log = server.log();
    assert_eq!((log.requests.len(), log.opened), (5, 1));
}

#[tokio::test]
async fn retry_after_throttles_and_gone_is_gone() {
    let verdict = verdict_on(|| Reply::with_header("429 Too Many Requests", "retry-after: 7"));
    match verdict.await {
        Verdict::Throttled { reason, after, .. } => {
            assert_eq!(after, Duration::from_secs(7));
            assert!(reason.contains("429"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let gone = verdict_on(|| Reply::with_body("410 Gone", "unsubscribed")).await;
    assert!(matches!(gone, Verdict::Gone { error } if error.contains("unsubscribed")));
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let reply = |_: &_| Reply::with_header("302 Found", "location: /elsewhere");
    let server = HttpServer::start(reply).await;
    let adapter = webhook(&server.url("/hook"), Duration::from_secs(15));
    let error = rejection(deliver(&*adapter, &event("s-1", 1, "{}")).await);
    assert!(
        error.contains("redirects are not followed") && error.contains("302"),
        "{error}"
    );
    assert_eq!(server.log().requests.len(), 1);
}

#[tokio::test]
async fn broken_off_answer_is_retried() {
    retry_error(verdict_on(|| Reply::Half).await);
}

#[tokio::test]
async fn body_that_never_ends_holds_up_neither_acceptance_nor_failure() {
    let started = Instant::now();
    assert_eq!(
        verdict_on(|| Reply::Drip("200 OK")).await,
        Verdict::Accepted
    );
    let error = retry_error(verdict_on(|| Reply::Drip("500 Internal Server Error")).await);
    assert!(error.contains("500 Internal Server Error: ddd"), "{error}");
    let took = started.elapsed();
    assert!(
        took < Duration::from_secs(8),
        "{took:?} is closer to the time-out of 15 s"
    );
}

#[tokio::test]
async fn huge_error_body_is_quoted_briefly_and_legibly() {
    let body = format!("\u{1b}[31m{}", "ä".repeat(5_000_000)).into_bytes();
    let reply = move || Reply::with_body("400 Bad Request", body.clone());
    let error = rejection(verdict_on(reply).await);
    assert!(error.contains("400 Bad Request: [31mää"), "{error}");
    assert!(
        !error.contains('\u{1b}') && error.chars().count() < 400,
        "{error}"
    );
}

#[tokio::test]
async fn errors_do_not_repeat_the_path_or_the_query() {
    let server =
        HttpServer::start(|request| Reply::with_body("404 Not Found", request.line.clone())).await;
    let url = server.url("/?token=hidden");
    let adapter = webhook(&url, Duration::from_secs(15));
    let error = rejection(deliver(&*adapter, &event("s-1", 1, "{}")).await);
    assert!(
        error.contains("404") && !error.contains("hidden"),
        "{error}"
    );
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let adapter = webhook(
        &format!("http://{closed}/hidden?hidden"),
        Duration::from_secs(15),
    );
    let error = retry_error(deliver(&*adapter, &event("s-1", 1, "{}")).await);
    assert!(
        error.contains(&closed.to_string()) && !error.contains("hidden"),
        "{error}"
    );
}

#[tokio::test]
async fn name_that_resolves_to_a_private_address_is_not_connected_to() {
    let server = HttpServer::start(|_| Reply::status("200 OK")).await;
    let settings = json!({"url": format!("http://localhost:{}/", server.port())});
    let strict = Environment::with_variables(false, [("", ""); 0]);
    let adapter = build("webhook", "audit", &settings, &strict).unwrap();
    let error = retry_error(deliver(&*adapter, &event("s-1", 1, "{}")).await);
    assert!(
        error.contains("localhost resolves to no public address"),
        "{error}"
    );
    assert_eq!(server.log().opened, 0);
    let adapter = build("webhook", "audit", &settings, &nearby()).unwrap();
    assert_eq!(
        deliver(&*adapter, &event("s-1", 1, "{}")).await,
        Verdict::Accepted
    );
}

#[tokio::test]
async fn https_is_spoken_with_http2_on_offer_and_plain_answers_are_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let first_flight = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut hello = vec![0; 4096];
        let length = connection.read(&mut hello).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut connection, b"HTTP/1.1 200 OK\r\n\r\n")
            .await
            .unwrap();
        hello.truncate(length);
        hello
    });
    let adapter = webhook(&url, Duration::from_secs(15));
    retry_error(deliver(&*adapter, &event("s-1", 1, "{}")).await);
    let hello = first_flight.await.unwrap();
    assert_eq!(hello[0], 22, "a TLS handshake record");
    assert!(
        hello
            .windows(12)
            .any(|window| window == b"\x02h2\x08http/1.1"),
        "no ALPN"
    );
}

#[tokio::test]
async fn an_answer_whose_body_is_cut_off_is_judged_by_its_status() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let cut = "content-length: 100\r\n\r\nonly this";
    let answers = [
        format!("HTTP/1.1 200 OK\r\n{cut}"),
        format!("HTTP/1.1 500 Oops\r\n{cut}"),
        "HTTP/1.1 200 OK\r\ncontent-".to_owned(),
    ];
    let answering = tokio::spawn(async move {
        for answer in answers {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"{}}") {
                connection.read_buf(&mut request).await.unwrap();
            }
            tokio::io::AsyncWriteExt::write_all(&mut connection, answer.as_bytes())
                .await
                .unwrap();
        }
    });
    let adapter = webhook(&url, Duration::from_secs(15));
    let deliver = async || deliver(&*adapter, &event("s-1", 1, "{}")).await;
    assert_eq!(deliver().await, Verdict::Accepted, "it has the event");
    let error = retry_error(deliver().await);
    assert!(
        error.contains("500") && error.ends_with("only this"),
        "{error}"
    );
    // Without the end of its head there is no answer.
    let error = retry_error(deliver().await);
    assert!(error.contains("no answer"), "{error}");
    answering.await.unwrap();
}
