//! H3: the probes show the worker's real state, and `lanekeeper health` agrees with them.

use std::time::Duration;

use reqwest::StatusCode;
use rustix::process::Signal;

use crate::command::{Ran, run};
use crate::process::plant::{LIMIT, Plant};
use crate::support::{Server, WorkerProcess, wait_until};

async fn health(http: &str) -> Ran {
    run(&["health", "--url", http], &[], "").await
}

async fn probe(worker: &WorkerProcess, path: &str) -> (StatusCode, String) {
    let answer = reqwest::get(worker.http() + path).await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

async fn assert_passes(worker: &WorkerProcess, path: &str) {
    let good = (StatusCode::OK, "ok\n".to_owned());
    assert_eq!(probe(worker, path).await, good, "{path}");
}

/// It serves before it has its first answer from Postgres.
async fn ready(http: &str) {
    wait_until(LIMIT, "the worker is ready", async || {
        health(http).await.code == Some(0)
    })
    .await;
}

fn set_up() {
    // The clients of tests are made without TLS of their own.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_drains_is_live_and_not_ready_until_it_is_gone() {
    set_up();
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    let http = worker.http();
    ready(&http).await;
    for path in ["/livez", "/readyz", "/startupz"] {
        assert_passes(&worker, path).await;
    }
    let ran = health(&http).await;
    assert_eq!(
        (ran.code, ran.stdout, ran.stderr),
        (Some(0), String::new(), String::new())
    );

    plant.receiver.hold(worker.sender);
    plant.enqueue("session-", 1, 1).await;
    let arrived = |seen: &crate::support::Seen| seen.arrivals.len() == 1;
    plant
        .receiver
        .wait_until(LIMIT, "a delivery is under way", arrived)
        .await;
    worker.signal(Signal::TERM);
    wait_until(LIMIT, "the worker is not ready", async || {
        health(&http).await.code == Some(1)
    })
    .await;
    let ran = health(&http).await;
    assert!(
        ran.stderr.contains("answers 503: the worker is draining"),
        "{}",
        ran.stderr
    );
    assert_passes(&worker, "/livez").await;
    assert_passes(&worker, "/startupz").await;
    let ran = health(&format!("{http}/livez")).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);

    plant.receiver.release(worker.sender);
    assert!(worker.stop().await.success());
    let ran = health(&http).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr
            .contains(&format!("no worker answers at {http}/readyz")),
        "{}",
        ran.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_postgres_is_away_is_live_and_ready_again_when_it_is_back() {
    set_up();
    let server = Server::start().await;
    let plant = Plant::on(server.url.clone(), "runs", Duration::ZERO).await;
    let worker = plant
        .worker(&[("LANEKEEPER_WORKER__TRUST_MS", "2000")])
        .await;
    ready(&worker.http()).await;
    let server = server.crash().await;
    wait_until(LIMIT, "it is not ready", async || {
        probe(&worker, "/readyz").await.0 == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    let (_, reason) = probe(&worker, "/readyz").await;
    assert!(
        reason.starts_with("Postgres has not answered for"),
        "{reason}"
    );
    // A restart would mend nothing.
    assert_passes(&worker, "/livez").await;
    assert_passes(&worker, "/startupz").await;
    let server = server.start().await;
    wait_until(LIMIT, "it is ready again", async || {
        probe(&worker, "/readyz").await.0 == StatusCode::OK
    })
    .await;
    assert!(worker.stop().await.success());
    server.stop().await;
}

#[tokio::test]
async fn the_configured_listener_is_asked_where_no_url_is_given() {
    // Nothing listens there: the address is what the message has.
    let listen = [("LANEKEEPER_HTTP__LISTEN", "0.0.0.0:1")];
    let ran = run(&["health"], &listen, "").await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr
            .contains("no worker answers at http://127.0.0.1:1/readyz"),
        "{}",
        ran.stderr
    );
    // A proxy of the environment is not asked.
    let proxied = [
        listen[0],
        ("HTTP_PROXY", "http://127.0.0.1:2"),
        ("http_proxy", "http://127.0.0.1:2"),
    ];
    let ran = run(&["health"], &proxied, "").await;
    assert!(ran.stderr.contains("no worker answers"), "{}", ran.stderr);
    let wrong = run(&["health", "--url", "localhost:8080"], &[], "").await;
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
}
