//! Lanes: found, looked at, retried, skipped, parked and unparked.

use serde_json::json;

use super::super::site::Site;
use super::{Operator, append, block, column, on_record};
use crate::process::plant::LIMIT;
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_lane_is_found_with_its_reason_and_its_head_is_skipped_once() {
    let site = Site::open(&[]).await;
    let lane = block(&site, "s", 3).await;
    let operator = Operator::of(&site).await;
    let listed = operator
        .get(&site, "/v1/lanes?held_up=true&subscription=out")
        .await;
    let [found] = listed.body["lanes"].as_array().unwrap().as_slice() else {
        panic!("{}", listed.body);
    };
    assert_eq!(
        (&found["lane_id"], &found["head_seq"]),
        (&json!(lane), &json!(1))
    );
    assert!(
        found["last_error"].as_str().unwrap().contains("50"),
        "{found}"
    );
    let path = format!("/v1/lanes/{lane}");
    assert_eq!(operator.get(&site, &path).await.body["session"], "s");

    let skip = format!("{path}/skip");
    let blind = operator.post(&site, &skip, "").await;
    blind.assert_problem(422, "invalid");
    let body = r#"{"head":1,"reason":"known bad"}"#;
    let skipped = operator.post(&site, &skip, body).await;
    assert_eq!(
        (skipped.status, &skipped.body),
        (200, &json!({"lane_id": lane, "state": "ready"}))
    );
    // Repeated, because its answer was lost: the head is another one by now.
    let again = operator.post(&site, &skip, body).await;
    again.assert_problem(409, "another_head");
    assert_eq!(column(&site, "s", "head_seq").await, "2");
    assert_eq!(
        on_record(&site).await,
        [(
            "skip".to_owned(),
            "known bad (by console, HTTP API)".to_owned()
        )]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_parked_unparked_and_retried_and_its_events_arrive_in_order() {
    let site = Site::open(&[]).await;
    let lane = block(&site, "s", 3).await;
    let operator = Operator::of(&site).await;
    let act = async |action: &str, body: &str| {
        let path = format!("/v1/lanes/{lane}/{action}");
        let answer = operator.post(&site, &path, body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body["state"].as_str().unwrap().to_owned()
    };
    for _ in 0..2 {
        assert_eq!(act("park", r#"{"reason":"  "}"#).await, "parked");
    }
    let held_up = operator.get(&site, "/v1/lanes?held_up=true").await;
    assert_eq!(held_up.body["lanes"][0]["state"], "parked");
    assert_eq!(act("unpark", "{}").await, "ready");
    site.plant.receiver.set_broken(false);
    assert_eq!(act("retry", "").await, "ready");
    site.plant.settled().await;
    site.plant.assert_complete(1, 3);
    let by = "by console, HTTP API".to_owned();
    let actions = ["park", "park", "unpark", "retry"];
    let expected = actions.map(|action| (action.to_owned(), by.clone()));
    assert_eq!(on_record(&site).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_lanes_have_each_lane_and_come_to_an_end() {
    // An open circuit would hold the others up, too.
    let site = Site::open(&[("LANEKEEPER_WORKER__BREAKER_LANES", "0")]).await;
    let mut lanes = Vec::new();
    for n in 1..=5 {
        lanes.push(block(&site, &format!("s{n}"), 1).await);
    }
    let operator = Operator::of(&site).await;
    let path = format!("/v1/lanes/{}/park", lanes[2]);
    assert_eq!(operator.post(&site, &path, "").await.status, 200);
    // A retry meanwhile moves a lane to a later page.
    let listed = async |limit: usize| {
        let path = format!("/v1/lanes?held_up=true&limit={limit}");
        let (rows, pages) = operator.pages(&site, &path, "lanes", "after").await;
        let mut ids: Vec<i64> = rows
            .iter()
            .map(|row| row["lane_id"].as_i64().unwrap())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        (ids, pages)
    };
    wait_until(LIMIT, "every lane is on a page of two", async || {
        let (ids, pages) = listed(2).await;
        ids == lanes && pages >= 3
    })
    .await;
    for bad in [
        "after=x",
        "after=1",
        "limit=0",
        "limit=1001",
        "limit=x",
        "before=1",
        "held_up=2",
    ] {
        let refused = operator.get(&site, &format!("/v1/lanes?{bad}")).await;
        refused.assert_problem(422, "invalid");
    }
    let beyond = operator
        .get(&site, "/v1/lanes?after=253402300799999999.1")
        .await;
    assert_eq!(beyond.body, json!({"lanes": []}));
    for path in ["/v1/lanes?subscription=none", "/v1/lanes/4711"] {
        operator
            .get(&site, path)
            .await
            .assert_problem(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_order_does_nothing() {
    let site = Site::open(&[]).await;
    let lane = block(&site, "s", 1).await;
    let operator = Operator::of(&site).await;
    let path = format!("/v1/lanes/{lane}/park");
    let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(1_001));
    for bad in [
        "[]",
        "null",
        "7",
        "x",
        r#"{"why":"x"}"#,
        r#"{"reason":7}"#,
        r#"{"reason":"\u0000"}"#,
        &long,
    ] {
        operator
            .post(&site, &path, bad)
            .await
            .assert_problem(422, "invalid");
    }
    let large = "x".repeat(100_000);
    let refused = operator.post(&site, &path, &large).await;
    refused.assert_problem(413, "payload_too_large");
    for (path, status, code) in [
        ("/v1/lanes/x/park".to_owned(), 422, "invalid"),
        ("/v1/lanes/4711/park".to_owned(), 404, "not_found"),
        (format!("/v1/lanes/{lane}/explode"), 404, "not_found"),
    ] {
        operator
            .post(&site, &path, "")
            .await
            .assert_problem(status, code);
    }
    let wrong = operator.get(&site, &path).await;
    wrong.assert_problem(405, "method_not_allowed");
    assert_ne!(column(&site, "s", "state").await, "parked");
    assert_eq!(on_record(&site).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_whose_delivery_does_not_stop_is_left_as_it_is() {
    let site = Site::open(&[]).await;
    let operator = Operator::of(&site).await;
    site.plant.receiver.hold(site.worker.sender);
    append(&site, "s", 2).await;
    wait_until(LIMIT, "it is being delivered", async || {
        !site.plant.held_by(&site.worker).await.is_empty()
    })
    .await;
    let lane = column(&site, "s", "lane_id").await;
    let busy = operator
        .post(&site, &format!("/v1/lanes/{lane}/park"), "")
        .await;
    busy.assert_problem(503, "lane_busy");
    assert_eq!(busy.retry_after, Some(1));
    site.plant.receiver.release(site.worker.sender);
    site.plant.settled().await;
    assert_eq!(on_record(&site).await, []);
}
