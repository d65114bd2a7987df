//! One log, two ways: what the protocol appends is delivered, and what is enqueued its readers see.

use reqwest::Method;
use serde_json::{Value, json};

use super::{JSON, append, ask, create, header, site};
use crate::api::site::Answer;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_of_the_protocol_appends_webhooks_get_in_order_and_the_other_way_round() {
    let site = site().await;
    create(&site, "runs/r1").await;
    append(&site, "runs/r1", r#"[{"n":1},{"n":2}]"#).await;
    site.post("r1", r#"{"event_type":"step","payload":{"n":3}}"#)
        .await;
    let typed = [JSON, ("lanekeeper-event-type", "step")];
    assert_eq!(
        ask(&site, Method::POST, "runs/r1", &typed, r#"{"n":4}"#)
            .await
            .status(),
        204
    );
    let read = ask(&site, Method::GET, "runs/r1", &[], "").await;
    assert_eq!(header(&read, "stream-next-offset"), "0000000000000000004");
    let read: Value = super::json(read).await;
    assert_eq!(read, json!([{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]));
    let logged: Value = super::json(site.read("r1", "").send().await.unwrap()).await;
    let types: Vec<&Value> = logged["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["event_type"])
        .collect();
    assert_eq!(json!(types), json!(["message", "message", "step", "step"]));
    site.plant.settled().await;
    assert_eq!(site.plant.assert_complete(1, 4), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_nobody_created_by_the_protocol_is_a_stream_of_json() {
    let site = site().await;
    site.post("r1", r#"{"event_type":"step","payload":[1]}"#)
        .await;
    let head = ask(&site, Method::HEAD, "runs/r1", &[], "").await;
    assert_eq!(
        (head.status().as_u16(), header(&head, "content-type")),
        (200, "application/json".to_owned())
    );
    assert_eq!(
        ask(&site, Method::PUT, "runs/r1", &[JSON], "")
            .await
            .status(),
        200
    );
    let text = [("content-type", "text/plain")];
    assert_eq!(
        ask(&site, Method::PUT, "runs/r1", &text, "").await.status(),
        409
    );
    let append = ask(&site, Method::POST, "runs/r1", &text, "x").await;
    Answer::of(append)
        .await
        .assert_problem(409, "stream_conflict");
    let read: Value = super::json(ask(&site, Method::GET, "runs/r1", &[], "").await).await;
    assert_eq!(read, json!([[1]]));
    assert_eq!(
        ask(&site, Method::GET, "runs/none", &[], "").await.status(),
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_by_the_protocol_delivers_what_is_there_and_refuses_what_comes() {
    let site = site().await;
    create(&site, "runs/r1").await;
    let close = [JSON, ("stream-closed", "true")];
    assert_eq!(
        ask(&site, Method::POST, "runs/r1", &close, "[1,2]")
            .await
            .status(),
        204
    );
    let late = ask(&site, Method::POST, "runs/r1", &[JSON], "3").await;
    assert_eq!(
        (late.status().as_u16(), header(&late, "stream-closed")),
        (409, "true".to_owned())
    );
    site.post("r1", r#"{"event_type":"step","payload":1}"#)
        .await
        .assert_problem(409, "session_closed");
    site.plant.settled().await;
    assert_eq!(site.plant.assert_complete(1, 2), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_event_closes_the_stream_and_its_producer_may_send_it_again() {
    let site = site().await;
    let terminal = "UPDATE lanekeeper.stream SET bounded = true, terminal = '{run_completed}' WHERE name = 'runs'";
    site.plant.client.batch_execute(terminal).await.unwrap();
    create(&site, "runs/r1").await;
    append(&site, "runs/r1", "[1,2]").await;
    let end = [
        JSON,
        ("lanekeeper-event-type", "run_completed"),
        ("producer-id", "p"),
        ("producer-epoch", "0"),
        ("producer-seq", "0"),
    ];
    for status in [200, 204] {
        let ended = ask(&site, Method::POST, "runs/r1", &end, "3").await;
        assert_eq!(
            (ended.status().as_u16(), header(&ended, "stream-closed")),
            (status, "true".to_owned())
        );
    }
    let late = ask(&site, Method::POST, "runs/r1", &[JSON], "4").await;
    assert_eq!(
        (late.status().as_u16(), header(&late, "stream-closed")),
        (409, "true".to_owned())
    );
    let read = ask(&site, Method::GET, "runs/r1", &[], "").await;
    assert_eq!(header(&read, "stream-closed"), "true");
    // Created with its end, and several messages of which each would be the last.
    let created = ask(&site, Method::PUT, "runs/r2", &[JSON, end[1]], "1").await;
    assert_eq!(
        (created.status().as_u16(), header(&created, "stream-closed")),
        (201, "true".to_owned())
    );
    create(&site, "runs/r3").await;
    let several = ask(&site, Method::POST, "runs/r3", &end[..2], "[1,2]").await;
    Answer::of(several)
        .await
        .assert_problem(409, "session_closed");
    // A deleted stream that its end closed may be created again.
    let deleted = ask(&site, Method::DELETE, "runs/r1", &[], "").await;
    assert_eq!(deleted.status(), 204);
    create(&site, "runs/r1").await;
    append(&site, "runs/r1", "5").await;
    site.plant.settled().await;
}
