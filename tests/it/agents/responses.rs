//! C3: a RESPONSE finds its REQUEST, and who waits for it.

use std::time::Duration;

use lanekeeper_postgres::pool;
use lanekeeper_postgres::response::{expect_response, response};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::inbox::post;
use crate::api::site::{Answer, Site};
use crate::support::wait_until;

const LIMIT: Duration = Duration::from_secs(30);

/// A site whose stream `out` is sent to bob.
async fn site() -> Site {
    let site = Site::open(&[]).await;
    let client = &site.plant.client;
    client
        .batch_execute(
            "INSERT INTO lanekeeper.stream (name) VALUES ('out');
             INSERT INTO lanekeeper.subscription (stream_id, name, adapter, settings, retry_schedule_ms, max_attempts,
                                                  on_exhausted, coalesce, paused_at, pause_reason)
             SELECT t.stream_id, 'to_bob', 'agent', '{\"url\": \"http://127.0.0.1:9/\", \"peer\": \"bob\"}', '{1000}', 0,
                    'dead_letter', false, now(), 'a test'
             FROM lanekeeper.stream AS t WHERE t.name = 'out'",
        )
        .await
        .unwrap();
    site
}

fn answer_to(request: Uuid, data: &Value) -> String {
    json!({"v": 1, "type": "RESPONSE", "id": Uuid::now_v7(), "session": "s", "name": "quoted",
           "correlation_id": request, "data": data})
    .to_string()
}

async fn ask(site: &Site, token: &str, id: Uuid, wait: &str) -> Answer {
    let body = json!({"event_type": "quote", "payload": 1, "message_id": id, "headers": {"frame": "REQUEST"}});
    let request = site.events(Method::POST, "out", "s").bearer_auth(token);
    Answer::of(
        request
            .header("prefer", wait)
            .body(body.to_string())
            .send()
            .await
            .unwrap(),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_waits_for_the_answer_of_the_peer_that_was_asked_and_of_nobody_else() {
    let site = site().await;
    let app = site.token(&["app", "--scope", "produce"]).await;
    let bob = site.token(&["bob", "--scope", "produce"]).await;
    let mallory = site.token(&["mallory", "--scope", "produce"]).await;
    let id = Uuid::now_v7();
    let answering = async {
        let awaited = "SELECT count(*) FROM lanekeeper.awaited_response";
        wait_until(LIMIT, "somebody waits", async || {
            site.plant.count(awaited).await == 1
        })
        .await;
        // Taken like any message, and no answer to what mallory was not asked.
        let forged = post(&site, "runs", &mallory, answer_to(id, &json!("forged"))).await;
        assert_eq!(forged.status, 200, "{}", forged.body);
        for data in [json!({"price": 12}), json!("a second answer")] {
            let answered = post(&site, "runs", &bob, answer_to(id, &data)).await;
            assert_eq!(answered.status, 200, "{}", answered.body);
        }
    };
    let (answer, ()) = tokio::join!(ask(&site, &app, id, "wait=30"), answering);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let response = &answer.body["response"];
    assert_eq!(
        (&response["payload"], &response["stream"]),
        (&json!({"price": 12}), &json!("runs"))
    );
    assert_eq!(response["headers"]["correlation_id"], json!(id));
    // Asked again, as after a lost answer: the request is there, and its answer too.
    let again = ask(&site, &app, id, "wait=30").await;
    assert_eq!(
        (again.status, &again.body["duplicate"]),
        (200, &json!(true))
    );
    assert_eq!(again.body["response"], *response);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_without_an_answer_and_the_request_stays_appended() {
    let site = site().await;
    let app = site.token(&["app", "--scope", "produce"]).await;
    let answer = ask(&site, &app, Uuid::now_v7(), "wait=1").await;
    assert_eq!((answer.status, &answer.body["seq"]), (201, &json!(1)));
    assert!(answer.body.get("response").is_none());
    let old = "UPDATE lanekeeper.awaited_response SET asked_at = now() - interval '2 days'";
    site.plant.client.execute(old, &[]).await.unwrap();
    let forget = "SELECT lanekeeper.forget_acked(10)";
    assert_eq!(site.plant.count(forget).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_waits_for_an_answer_by_a_future() {
    let site = site().await;
    let bob = site.token(&["bob", "--scope", "produce"]).await;
    let database = site.plant.url.parse().unwrap();
    let pool = pool::build(&database, 2, Duration::from_secs(5)).unwrap();
    let id = Uuid::now_v7();
    let client = crate::support::connect(&site.plant.url).await;
    expect_response(&client, "out", id).await.unwrap();
    let short = response(&pool, "out", id, Duration::ZERO).await.unwrap();
    assert!(short.is_none());
    let (answer, answered) = tokio::join!(
        response(&pool, "out", id, LIMIT),
        post(&site, "runs", &bob, answer_to(id, &json!([1.0]))),
    );
    assert_eq!(answered.status, 200, "{}", answered.body);
    let answer = answer.unwrap().unwrap();
    assert_eq!(
        (answer.session.as_str(), answer.event.payload.get()),
        ("s", "[1.0]")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_names_the_id_of_another_streams_request_neither_gets_its_answer_nor_keeps_it_from_others()
 {
    let site = site().await;
    let app = site.token(&["app", "--scope", "produce"]).await;
    let bob = site.token(&["bob", "--scope", "produce"]).await;
    let thief = ["thief", "--scope", "produce", "--stream", "inbound"];
    let thief = site.token(&thief).await;
    let id = Uuid::now_v7();
    let name_it = async || {
        let body = json!({"event_type": "quote", "payload": 1, "message_id": id});
        let request = site
            .events(Method::POST, "inbound", "s")
            .bearer_auth(&thief);
        let request = request.header("prefer", "wait=1").body(body.to_string());
        Answer::of(request.send().await.unwrap()).await
    };
    // Before the request: it is not waited for in its place.
    let before = name_it().await;
    assert_eq!(before.status, 201, "{}", before.body);
    let answering = async {
        let awaited =
            "SELECT count(*) FROM lanekeeper.awaited_response AS a JOIN lanekeeper.stream AS t
                       ON t.stream_id = a.stream_id WHERE t.name = 'out'";
        wait_until(LIMIT, "somebody waits", async || {
            site.plant.count(awaited).await == 1
        })
        .await;
        let answered = post(&site, "runs", &bob, answer_to(id, &json!("secret"))).await;
        assert_eq!(answered.status, 200, "{}", answered.body);
    };
    let (answer, ()) = tokio::join!(ask(&site, &app, id, "wait=30"), answering);
    assert_eq!(
        answer.body["response"]["payload"], "secret",
        "{}",
        answer.body
    );
    // Behind it: the answer is there.
    let behind = name_it().await;
    assert_eq!(
        (behind.status, &behind.body["duplicate"]),
        (200, &json!(true))
    );
    assert!(behind.body.get("response").is_none(), "{}", behind.body);
}
