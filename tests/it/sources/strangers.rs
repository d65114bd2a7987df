//! What strangers cost who send requests for sources: nobody else waits for them, or is refused because of them.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use super::FILE;
use super::fixture::{once, send};
use super::receiving::{GH_SECRET, hub, site, site_with};
use crate::api::held::{LARGE, SMALL_MEMORY, assert_held_until_appended};
use crate::api::site::{Answer, Site};
use crate::api::slow::hold;
use crate::process::plant::LIMIT;
use crate::support::{connect, wait_until};

/// With a request's body that never arrives whole.
fn begun(path: &str, sent: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1048576\r\n\r\n{sent}")
}

async fn append(site: &Site, token: &str, bytes: usize) -> Answer {
    let body = format!(
        "{{\"event_type\":\"a\",\"payload\":\"{}\"}}",
        "x".repeat(bytes)
    );
    let request = site.events(Method::POST, "runs", "s").bearer_auth(token);
    Answer::of(request.body(body).send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_of_strangers_leave_tokens_their_room() {
    let file = FILE.replace("max_bytes  = 2048", "");
    let patient = [("LANEKEEPER_HTTP__READ_TIMEOUT_MS", "60000")];
    let site = site_with(&file, &patient).await;
    let token = site.token(&["app", "--scope", "produce"]).await;
    let is_full = async |name: &str| send(&site, name, &[], "x").await.status == 429;

    // As many as there are connections, with nothing in them, for each thing that strangers may ask for.
    let mut held = Vec::new();
    for path in ["/v1/sources/gh", "/v1/sources/std", "/sign-in"] {
        held.extend(hold(&site, 80, &begun(path, "x")).await);
    }
    for name in ["gh", "std"] {
        wait_until(LIMIT, "the strangers' share is taken", async || {
            is_full(name).await
        })
        .await;
    }
    assert_eq!(append(&site, &token, 1).await.status, 201);
    drop(held);
    for name in ["gh", "std"] {
        wait_until(LIMIT, "it is given back", async || !is_full(name).await).await;
    }

    // More than fits into memory.
    let large = "x".repeat(1_048_575);
    let takes_no_more = async || {
        let path = "/v1/sources/std";
        let request = site.request(Method::POST, path).body(large.clone());
        Answer::of(request.send().await.unwrap()).await.status == 429
    };
    let deadline = Instant::now() + LIMIT;
    // Bodies that arrive at the same time may refuse each other, and leave room: others come then.
    let held = 'taken: loop {
        let mut held = Vec::new();
        for name in ["gh", "std"] {
            held.extend(hold(&site, 20, &begun(&format!("/v1/sources/{name}"), &large)).await);
        }
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            if takes_no_more().await {
                break 'taken held;
            }
        }
        assert!(Instant::now() < deadline, "the strangers' memory is taken");
    };
    let appended = append(&site, &token, 300_000).await;
    assert_eq!(appended.status, 201, "{}", appended.body);
    drop(held);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_do_not_queue_behind_each_other_while_the_sources_cannot_be_read() {
    let site = site(FILE).await;
    let locker = connect(&site.plant.url).await;
    let lock = "BEGIN; LOCK TABLE lanekeeper.source IN ACCESS EXCLUSIVE MODE";
    locker.batch_execute(lock).await.unwrap();
    let begun = Instant::now();
    let all = futures_util::future::join_all((0..6).map(async |_| {
        let (answer, _) = once(&site.worker.http(), "gh", &[], b"x").await;
        (answer.status, begun.elapsed())
    }));
    for (status, took) in all.await {
        assert_eq!(status, 503);
        // It waits for Postgres for 5 s.
        assert!(took < Duration::from_secs(9), "{took:?}");
    }
    locker.batch_execute("ROLLBACK").await.unwrap();
    wait_until(LIMIT, "they are read again", async || {
        send(&site, "gh", &[], "x").await.status == 401
    })
    .await;
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_platform_has_given_up_holds_its_memory_until_it_is_appended() {
    let file = FILE
        .replace("max_bytes  = 2048", "")
        .replace("gh-{/repository}", "s");
    let site = site_with(&file, &[SMALL_MEMORY]).await;
    let text = "x".repeat(LARGE - 100);
    assert_held_until_appended(&site, "s", |n| {
        let body = json!({"repository": n, "comment": {"body": text}, "sender": 7}).to_string();
        let request = site.request(Method::POST, "/v1/sources/gh");
        let request = request.header("x-hub-signature-256", hub(GH_SECRET, &body));
        request.body(body)
    })
    .await;
    assert!(site.worker.stop().await.success());
}
