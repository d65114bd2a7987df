//! C5: a session that is full, over HTTP and on the command line.

use reqwest::Method;
use serde_json::{Value, json};

use super::site::Site;
use crate::command::run;

const EVENT: &str = r#"{"event_type":"step","payload":1}"#;

/// A worker whose subscription takes two events a session, and whose destination takes none.
async fn site(sets: &str) -> Site {
    let site = Site::open(&[]).await;
    site.plant.receiver.set_broken(true);
    let client = &site.plant.client;
    let bound = format!(
        "UPDATE lanekeeper.subscription SET max_pending = 2, {sets} WHERE name = 'out';
         UPDATE lanekeeper.stream SET bounded = true WHERE name = 'runs'"
    );
    client.batch_execute(&bound).await.unwrap();
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_session_is_answered_429_and_with_a_time_only_where_it_drains() {
    let site = site("paused_at = now(), pause_reason = 'test', version = version + 1").await;
    for _ in 0..2 {
        assert_eq!(site.post("s", EVENT).await.status, 201);
    }
    let refused = site.post("s", EVENT).await;
    refused.assert_problem(429, "queue_full");
    assert_eq!(
        refused.retry_after, None,
        "nothing is delivered while it is paused"
    );
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(
        detail.contains("'out'") && detail.contains("nothing was enqueued"),
        "{detail}"
    );
    assert!(refused.body["hint"].as_str().unwrap().contains("resume"));
    let before = site.logged_events().await;
    let two = format!("[{EVENT},{EVENT},{EVENT}]");
    let refused = site.post("other", &two).await;
    refused.assert_problem(429, "queue_full");
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("other"), "{detail}");
    assert_eq!(site.logged_events().await, before, "all or nothing");
    assert_eq!(
        site.post("third", EVENT).await.status,
        201,
        "others have room"
    );

    let ran = run(
        &["enqueue", "runs", "s", "step", "--payload", "1"],
        &[("DATABASE_URL", &site.plant.url)],
        "",
    )
    .await;
    assert_eq!(ran.code, Some(75), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("is full") && ran.stderr.contains("do: "),
        "{}",
        ran.stderr
    );
    let over_http = run(
        &["enqueue", "runs", "s", "step", "--payload", "1"],
        &[("LANEKEEPER_URL", &site.worker.http())],
        "",
    )
    .await;
    assert_eq!(over_http.code, Some(75), "{}", over_http.stderr);
    let lines: String = (0..4)
        .map(|_| {
            json!({"session": "fourth", "event_type": "step", "payload": 1}).to_string() + "\n"
        })
        .collect();
    let ran = run(
        &["enqueue", "runs", "--lines"],
        &[("DATABASE_URL", &site.plant.url)],
        &lines,
    )
    .await;
    assert_eq!(ran.code, Some(75), "{}", ran.stderr);
    assert!(ran.stderr.contains("tail -n +3"), "{}", ran.stderr);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_session_that_drains_says_when_to_come_again() {
    let site = Site::open(&[]).await;
    site.plant.receiver.set_broken(true);
    let client = &site.plant.client;
    client
        .batch_execute(
            "UPDATE lanekeeper.subscription SET max_pending = 1, retry_schedule_ms = '{60000}', version = version + 1;
             UPDATE lanekeeper.stream SET bounded = true WHERE name = 'runs'; NOTIFY lanekeeper",
        )
        .await
        .unwrap();
    site.post("s", EVENT).await;
    let waits = "SELECT count(*) FROM lanekeeper.progress WHERE retry_at IS NOT NULL";
    crate::support::wait_until(crate::process::plant::LIMIT, "its head waits", async || {
        site.plant.count(waits).await == 1
    })
    .await;
    let refused = site
        .events(Method::POST, "runs", "s")
        .body(EVENT)
        .send()
        .await
        .unwrap();
    let refused = super::site::Answer::of(refused).await;
    refused.assert_problem(429, "queue_full");
    assert!(
        refused.retry_after.is_some_and(|seconds| seconds >= 1),
        "{:?}",
        refused.body
    );
    assert_ne!(refused.body["hint"], Value::Null);
    assert!(site.worker.stop().await.success());
}
