//! D4: clients that are too slow, too many, or never read.

use reqwest::Method;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::client::Follower;
use super::session::{append, live};
use crate::api::site::{Answer, Site};
use crate::process::plant::LIMIT;
use crate::support::wait_until;

/// What a metric without attributes shows.
async fn metric(site: &Site, name: &str) -> f64 {
    let metrics = site.request(Method::GET, "/metrics").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let line = metrics
        .lines()
        .find(|line| line.starts_with(&format!("{name}{{")));
    let (_, value) = line
        .unwrap_or_else(|| panic!("{name}:\n{metrics}"))
        .rsplit_once(' ')
        .unwrap();
    value.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_falls_behind_is_disconnected_with_the_cursor_to_resume_from() {
    let site = Site::open(&[
        ("LANEKEEPER_LIVE__MAX_LAG_EVENTS", "100"),
        ("LANEKEEPER_HTTP__READ_TIMEOUT_MS", "30000"),
    ])
    .await;
    append(&site, "r1", "step", 1).await;
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    follower.seqs(1).await;
    // More than the sockets' buffers hold, while it takes nothing.
    let large = "SELECT e.seq FROM generate_series(1, 600) AS n,
         LATERAL lanekeeper.enqueue('runs', 'r1', 'step', to_jsonb(repeat('x', 60000) || n)) AS e";
    site.plant.client.batch_execute(large).await.unwrap();
    append(&site, "r1", "step", 300).await;
    wait_until(LIMIT, "it has been behind for a while", async || {
        metric(&site, "lanekeeper_live_lag_seconds").await > 3.0
    })
    .await;
    let mut last = 1;
    let told = loop {
        let got = follower.got().await;
        if got.name == "disconnect" {
            break got;
        }
        last += 1;
        assert_eq!(got.seq(), last);
    };
    assert_eq!(told.data["reason"], "too_slow");
    assert_eq!(follower.next().await, None);
    assert!(last < 901, "it was disconnected early");
    let cursor = told.data["resume_from"].as_str().unwrap();
    let mut follower = Follower::open(live(&site, "r1", &format!("cursor={cursor}"))).await;
    let rest = usize::try_from(901 - last).unwrap();
    assert_eq!(
        follower.seqs(rest).await,
        (last + 1..=901).collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_are_closed_and_leave_the_others_alone() {
    let site = Site::open(&[("LANEKEEPER_HTTP__READ_TIMEOUT_MS", "5000")]).await;
    append(&site, "r1", "step", 1).await;
    let host = site.worker.http().replace("http://", "");
    let mut silent = Vec::new();
    for _ in 0..10 {
        let mut client = TcpStream::connect(&host).await.unwrap();
        let head = format!(
            "GET /v1/streams/runs/sessions/r1/events/live HTTP/1.1\r\nhost: {}\r\n\r\n",
            host
        );
        client.write_all(head.as_bytes()).await.unwrap();
        // What it sends besides means nothing and is not kept.
        client.write_all(&[b'x'; 1_000]).await.unwrap();
        silent.push(client);
    }
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    follower.seqs(1).await;
    let large = "SELECT e.seq FROM generate_series(1, 400) AS n,
         LATERAL lanekeeper.enqueue('runs', 'r1', 'step', to_jsonb(repeat('x', 60000) || n)) AS e";
    site.plant.client.batch_execute(large).await.unwrap();
    assert_eq!(follower.seqs(400).await, (2..=401).collect::<Vec<_>>());
    wait_until(LIMIT, "only the one that reads is left", async || {
        metric(&site, "lanekeeper_live_followers").await < 1.5
    })
    .await;
    append(&site, "r1", "step", 1).await;
    assert_eq!(follower.seqs(1).await, [402]);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_followers_than_the_setting_says_and_the_api_keeps_its_places() {
    let site = Site::open(&[
        ("LANEKEEPER_LIVE__MAX_FOLLOWERS", "40"),
        ("LANEKEEPER_HTTP__MAX_CONNECTIONS", "32"),
    ])
    .await;
    append(&site, "r1", "step", 1).await;
    let mut followers = Vec::new();
    for _ in 0..40 {
        followers.push(Follower::open(live(&site, "r1", "")).await);
    }
    let refused = Answer::of(live(&site, "r1", "").send().await.unwrap()).await;
    refused.assert_problem(429, "busy");
    assert_eq!(refused.retry_after, Some(5));
    assert_eq!(
        site.post("r1", r#"{"event_type":"a","payload":1}"#)
            .await
            .status,
        201
    );
    for follower in &mut followers {
        assert_eq!(follower.seqs(2).await, [1, 2]);
    }
    followers.pop();
    wait_until(LIMIT, "its place is free", async || {
        live(&site, "r1", "").send().await.unwrap().status() == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_tells_its_followers_where_to_resume() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 2).await;
    let mut follower = Follower::open(live(&site, "r1", "")).await;
    follower.seqs(2).await;
    let stopped = site.worker.stop();
    let got = async {
        let got = follower.got().await;
        assert_eq!(follower.next().await, None);
        got
    };
    let (status, got) = tokio::join!(stopped, got);
    assert!(status.success());
    assert_eq!(
        (got.name.as_str(), &got.data["reason"]),
        ("disconnect", &"stopping".into())
    );
}
