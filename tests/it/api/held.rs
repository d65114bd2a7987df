//! I11: a body's memory is held until nothing works with the body any more, whether or not its client is still there.

use reqwest::{Method, RequestBuilder};

use super::site::{Answer, Site};
use super::slow::under_way;
use crate::process::plant::LIMIT;
use crate::support::{connect, wait_until};

/// Of which one token or source may have two in memory, and not three.
pub(crate) const LARGE: usize = 600 * 1024;
pub(crate) const SMALL_MEMORY: (&str, &str) = ("LANEKEEPER_HTTP__MAX_BODY_BYTES", "655360");

/// `send(n)` is a request with a [`LARGE`] body that appends a message to this session of `inbound`.
pub(crate) async fn assert_held_until_appended(
    site: &Site,
    session: &str,
    send: impl Fn(usize) -> RequestBuilder,
) {
    // The appends wait for a producer's transaction.
    let producer = connect(&site.plant.url).await;
    let append = "BEGIN; SELECT lanekeeper.enqueue('inbound', '{session}', 'text', '1')";
    let append = append.replace("{session}", session);
    producer.batch_execute(&append).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for n in 0..2 {
        let request = tokio::spawn(send(n).send());
        wait_until(LIMIT, "the append waits", async || {
            site.plant.count(waiting).await == n as i64 + 1
        })
        .await;
        request.abort();
    }
    wait_until(LIMIT, "the clients have left", async || {
        under_way(site, "POST").await == 0
    })
    .await;
    assert_eq!(site.plant.count(waiting).await, 2, "the appends go on");
    let refused = Answer::of(send(2).send().await.unwrap()).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    producer.batch_execute("COMMIT").await.unwrap();
    wait_until(LIMIT, "the memory is given back", async || {
        Answer::of(send(3).send().await.unwrap()).await.status == 201
    })
    .await;
    // The producer's, those two, and that one.
    assert_eq!(site.logged_events().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_client_has_left_holds_its_memory_until_it_is_appended() {
    let site = Site::open(&[SMALL_MEMORY]).await;
    let token = site.token(&["app", "--scope", "produce"]).await;
    let body = serde_json::json!({"origin": "test", "content": "x".repeat(LARGE)}).to_string();
    assert_held_until_appended(&site, "s", |_| {
        let request = site.request(Method::POST, "/v1/inbound/s");
        request.bearer_auth(&token).body(body.clone())
    })
    .await;
    assert!(site.worker.stop().await.success());
}
