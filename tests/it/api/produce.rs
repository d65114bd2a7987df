//! Appending over HTTP, and reading the log.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::site::{Answer, Site};
use crate::process::plant::LIMIT;
use crate::support::wait_until;

const ID: &str = "018f0000-0000-7000-8000-000000000001";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_committed_repeatable_and_delivered_in_order() {
    let site = Site::open(&[]).await;
    let one = format!(r#"{{"event_type":"a","payload":{{"n":1}},"message_id":"{ID}"}}"#);
    let answer = site.post("run%2F7", &one).await;
    assert_eq!(answer.status, 201);
    assert_eq!(
        answer.body,
        json!({"message_id": ID, "seq": 1, "duplicate": false})
    );
    assert_eq!(site.logged_events().await, 1);
    let answer = site.post("run%2F7", &one).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.body,
        json!({"message_id": ID, "seq": 1, "duplicate": true})
    );

    let many = r#" [{"event_type":"b","payload":[1.50],"dedupe_key":"k","priority":5,"headers":{"h":"v"}},
                    {"event_type":"c","payload":null,"session":"run/7"}]"#;
    let answer = site.post("run%2F7", many).await;
    assert_eq!(answer.status, 201);
    let seqs: Vec<_> = answer
        .body
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["seq"])
        .collect();
    assert_eq!(seqs, [2, 3]);

    let read = site.read("run%2F7", "from=2&limit=1");
    let response = read.send().await.unwrap();
    let text = response.text().await.unwrap();
    assert!(
        text.contains(r#""payload":[1.50]"#),
        "as it was sent: {text}"
    );
    let page: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(page["next"], 3);
    let event = &page["events"][0];
    assert_eq!(
        (
            &event["session"],
            &event["seq"],
            &event["priority"],
            &event["headers"]["h"]
        ),
        (&json!("run/7"), &json!(2), &json!(5), &json!("v"))
    );
    site.plant.settled().await;
    assert_eq!(site.plant.assert_complete(1, 3), 0);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_read_by_type_and_by_time_and_a_reader_comes_to_its_end() {
    let site = Site::open(&[]).await;
    for event_type in ["a", "b", "a"] {
        let event = format!(r#"{{"event_type":"{event_type}","payload":1}}"#);
        assert_eq!(site.post("s", &event).await.status, 201);
    }
    let page = async |query: &str| {
        let response = site.read("s", query).send().await.unwrap();
        let text = response.text().await.unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let whole = page("").await;
    let second = whole["events"][1]["created_at"].as_str().unwrap();
    for (query, seqs, next) in [
        ("types=a".to_owned(), vec![1, 3], 4),
        ("types=c,b".to_owned(), vec![2], 4),
        ("types=a&limit=1".to_owned(), vec![1], 2),
        ("types=a&from=2".to_owned(), vec![3], 4),
        ("types=c".to_owned(), vec![], 4),
        ("from=4".to_owned(), vec![], 4),
        (format!("since={second}"), vec![2, 3], 4),
        (format!("until={second}"), vec![1], 4),
        (format!("since={second}&types=b"), vec![2], 4),
        ("since=2999-01-01T00:00:00Z".to_owned(), vec![], 1),
    ] {
        let page = page(&query).await;
        let read: Vec<_> = page["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| &event["seq"])
            .collect();
        assert_eq!(read, seqs, "{query}");
        assert_eq!(page["next"], next, "{query}");
    }
    for query in ["since=yesterday", "until=1", "type=a"] {
        let refused = site.read("s", query).send().await.unwrap();
        assert_eq!(refused.status(), 422, "{query}");
    }
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_is_refused_with_its_reason_and_appends_nothing() {
    let site = Site::open(&[("LANEKEEPER_HTTP__MAX_BODY_BYTES", "2000000")]).await;
    let event = r#"{"event_type":"a","payload":1}"#;
    let thousand_and_one = format!("[{}]", vec![event; 1001].join(","));
    let large = format!(
        r#"{{"event_type":"a","payload":"{}"}}"#,
        "x".repeat(1_100_000)
    );
    let larger = format!(
        r#"{{"event_type":"a","payload":"{}"}}"#,
        "x".repeat(2_100_000)
    );
    let deep = format!(
        r#"{{"event_type":"a","payload":{}1{}}}"#,
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    for (body, status, code) in [
        ("", 422, "invalid"),
        ("no", 422, "invalid"),
        ("[]", 422, "invalid"),
        ("{}", 422, "invalid"),
        ("\u{feff}{}", 422, "invalid"),
        (r#"{"event_type":"a"}"#, 422, "invalid"),
        (
            r#"{"event_type":"a","payload":1,"pyaload":2}"#,
            422,
            "invalid",
        ),
        (
            r#"{"event_type":"a","payload":1,"session":"other"}"#,
            422,
            "invalid",
        ),
        (
            r#"{"event_type":"a","payload":1,"message_id":"7"}"#,
            422,
            "invalid",
        ),
        (
            r#"{"event_type":"a","payload":1,"priority":1000}"#,
            422,
            "invalid",
        ),
        (r#"{"event_type":"","payload":1}"#, 422, "invalid"),
        (
            r#"{"event_type":"a","payload":1,"headers":[]}"#,
            422,
            "invalid",
        ),
        (
            r#"[{"event_type":"a","payload":1},{"event_type":"a","payload":"\u0000"}]"#,
            422,
            "nul_character",
        ),
        (
            r#"{"event_type":"a","payload":1e999999}"#,
            422,
            "number_out_of_range",
        ),
        (thousand_and_one.as_str(), 422, "invalid"),
        (deep.as_str(), 422, "too_deep"),
        (large.as_str(), 413, "payload_too_large"),
        (larger.as_str(), 413, "payload_too_large"),
    ] {
        let answer = site.post("s", body).await;
        println!("{} {}", body.get(..60).unwrap_or(body), answer.body);
        answer.assert_problem(status, code);
    }
    site.post("%00", event).await.assert_problem(422, "invalid");
    let nul = r#"{"event_type":"a\u0000","payload":1}"#;
    site.post("s", nul).await.assert_problem(422, "invalid");
    let long = "x".repeat(513);
    site.post(&long, event).await.assert_problem(422, "invalid");
    let unknown = site.events(Method::POST, "nowhere", "s").body(event);
    let unknown = Answer::of(unknown.send().await.unwrap()).await;
    unknown.assert_problem(404, "unknown_stream");
    let unread = site.events(Method::GET, "runs", "s").send().await.unwrap();
    Answer::of(unread).await.assert_problem(404, "not_found");
    let ranged = site.read("s", "form=2");
    Answer::of(ranged.send().await.unwrap())
        .await
        .assert_problem(422, "invalid");
    let put = site.events(Method::PUT, "runs", "s").send().await.unwrap();
    Answer::of(put)
        .await
        .assert_problem(405, "method_not_allowed");
    let elsewhere = reqwest::get(site.worker.http() + "/v2").await.unwrap();
    Answer::of(elsewhere).await.assert_problem(404, "not_found");
    assert_eq!(site.logged_events().await, 0);
    assert_eq!(site.post("s", event).await.status, 201);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_the_server_takes_are_told_to_come_again() {
    let site = Site::open(&[("LANEKEEPER_HTTP__MAX_REQUESTS", "2")]).await;
    let event = r#"{"event_type":"a","payload":1}"#;
    for session in ["s", "t"] {
        assert_eq!(site.post(session, event).await.status, 201);
    }
    // A producer that keeps its transaction open holds its sessions' other appends.
    let blocker = crate::support::connect(&site.plant.url).await;
    blocker
        .batch_execute(
            "BEGIN; SELECT lanekeeper.enqueue('runs', 's', 'a', '2');
             SELECT lanekeeper.enqueue('runs', 't', 'a', '2')",
        )
        .await
        .unwrap();
    let (waiting, ()) = tokio::join!(
        async { tokio::join!(site.post("s", event), site.post("t", event)) },
        async {
            wait_until(LIMIT, "both wait for their locks", async || {
                site.plant.count(WAITING).await == 2
            })
            .await;
            let refused = site.post("elsewhere", event).await;
            refused.assert_problem(429, "busy");
            assert!(refused.retry_after.is_some());
            blocker.batch_execute("COMMIT").await.unwrap();
        }
    );
    for answer in [waiting.0, waiting.1] {
        assert_eq!((answer.status, &answer.body["seq"]), (201, &json!(3)));
    }
    assert_eq!(site.post("elsewhere", event).await.status, 201);
    assert!(site.worker.stop().await.success());
}

/// Backends of this database that wait for an append lock.
const WAITING: &str = "SELECT count(*) FROM pg_locks
    WHERE NOT granted AND locktype = 'advisory'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_somebody_keeps_open_holds_up_no_other_and_no_more_than_a_connection() {
    let site = Site::open(&[]).await;
    let event = r#"{"event_type":"a","payload":1}"#;
    assert_eq!(site.post("s", event).await.status, 201);
    let blocker = crate::support::connect(&site.plant.url).await;
    blocker
        .batch_execute("BEGIN; SELECT lanekeeper.enqueue('runs', 's', 'a', '2')")
        .await
        .unwrap();
    let address = site.worker.http().replace("http://", "");
    let patient = site.post("s", event);
    let others = async {
        wait_until(LIMIT, "one waits for the lock", async || {
            site.plant.count(WAITING).await == 1
        })
        .await;
        // Clients that give up, as hook calls do.
        for _ in 0..20 {
            let mut connection = tokio::net::TcpStream::connect(&address).await.unwrap();
            let request = format!(
                "POST /v1/streams/runs/sessions/s/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{event}",
                event.len()
            );
            connection.write_all(request.as_bytes()).await.unwrap();
            drop(connection);
            assert_eq!(site.post("elsewhere", event).await.status, 201);
        }
        assert_eq!(
            site.plant.count(WAITING).await,
            1,
            "one connection waits for it"
        );
        let reader = site.token(&["reader", "--scope", "read"]).await;
        let read = site.read("elsewhere", "").bearer_auth(reader);
        assert_eq!(read.send().await.unwrap().status(), 200);
    };
    let (answer, ()) = tokio::join!(patient, others);
    answer.assert_problem(503, "session_busy");
    assert!(answer.retry_after.is_some());
    blocker.batch_execute("ROLLBACK").await.unwrap();
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_under_way_when_the_worker_is_told_to_stop_is_answered() {
    let site = Site::open(&[]).await;
    let event = r#"{"event_type":"a","payload":1}"#;
    let address = site.worker.http().replace("http://", "");
    let mut connection = tokio::net::TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "POST /v1/streams/runs/sessions/s/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        event.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    // The worker has the request's head when a later request has been answered.
    assert_eq!(site.post("other", event).await.status, 201);
    site.worker.signal(rustix::process::Signal::TERM);
    wait_until(LIMIT, "it stops", async || {
        site.worker.logged("worker stopped")
    })
    .await;
    connection.write_all(event.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requests_trace_goes_on_with_the_event_unless_that_has_its_own() {
    let site = Site::open(&[]).await;
    let [request, own] =
        ["a", "b"].map(|digit| format!("00-{}-{}-01", digit.repeat(32), digit.repeat(16)));
    let body = format!(
        r#"[{{"event_type":"a","payload":1,"headers":{{"h":1}}}},
            {{"event_type":"a","payload":1,"headers":{{"traceparent":"{own}"}}}}]"#
    );
    let posted = site
        .events(Method::POST, "runs", "s")
        .header("traceparent", &request)
        .body(body);
    assert_eq!(posted.send().await.unwrap().status(), 201);
    site.plant.settled().await;
    let seen = site.plant.receiver.seen();
    let contexts: Vec<_> = seen
        .arrivals
        .iter()
        .map(|one| one.traceparent.clone())
        .collect();
    assert_eq!(contexts, [Some(request), Some(own)]);
    let kept = "SELECT count(*) FROM lanekeeper.event WHERE headers ->> 'h' = '1'";
    assert_eq!(site.plant.count(kept).await, 1);
    for bad in ["garbage", "00-0-0-00"] {
        let posted = site
            .events(Method::POST, "runs", "bad")
            .header("traceparent", bad)
            .body(r#"{"event_type":"a","payload":1}"#);
        assert_eq!(posted.send().await.unwrap().status(), 201);
    }
    let kept =
        "SELECT count(*) FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id)
                WHERE s.name = 'bad' AND e.headers IS NOT NULL";
    assert_eq!(site.plant.count(kept).await, 0);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_whole_appends_nothing() {
    let site = Site::open(&[]).await;
    let address = site.worker.http().replace("http://", "");
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = "POST /v1/streams/runs/sessions/s/events HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n";
    let event = r#"{"event_type":"a","payload":1}"#;
    connection
        .write_all(format!("{head}{event}").as_bytes())
        .await
        .unwrap();
    drop(connection);
    // Whatever was sent before is through when this is.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(site.post("other", event).await.status, 201);
    assert_eq!(site.logged_events().await, 1);
    assert!(site.worker.stop().await.success());
}
