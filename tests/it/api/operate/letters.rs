//! Dead letters: found, read, requeued and dropped.

use serde_json::{Value, json};

use super::super::site::{Answer, Site};
use super::{Operator, dead_letters, on_record};
use crate::process::plant::LIMIT;
use crate::support::wait_until;

/// What came of each, by id.
fn results(answer: &Answer) -> Vec<(i64, &str)> {
    let letters = answer.body["dead_letters"].as_array();
    let letters = letters.unwrap_or_else(|| panic!("{}", answer.body));
    let result = |it: &'_ Value| it["dead_id"].as_i64().unwrap();
    letters
        .iter()
        .map(|it| (result(it), it["result"].as_str().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_requeued_and_delivered_and_a_repetition_requeues_nothing() {
    let site = Site::open(&[]).await;
    let ids = dead_letters(&site, "s", 3).await;
    let operator = Operator::of(&site).await;
    let shown = operator
        .get(&site, &format!("/v1/dead-letters/{}", ids[0]))
        .await;
    assert_eq!(
        (&shown.body["payload"], &shown.body["error"]),
        (&json!({"n": 1}), &json!("status 500"))
    );
    let order = json!({"dead_ids": ids, "reason": "endpoint is back"}).to_string();
    let path = "/v1/dead-letters/requeue";
    let done = operator.post(&site, path, &order).await;
    let expected: Vec<(i64, &str)> = ids.iter().map(|id| (*id, "requeued")).collect();
    assert_eq!(results(&done), expected);
    let left = "SELECT count(*) FROM lanekeeper.dead WHERE resolution IS NULL";
    wait_until(LIMIT, "they are delivered", async || {
        site.plant.count(left).await == 0
    })
    .await;
    let again = operator.post(&site, path, &order).await;
    let expected: Vec<(i64, &str)> = ids.iter().map(|id| (*id, "resolved_before")).collect();
    assert_eq!(results(&again), expected);
    let all = operator.get(&site, "/v1/dead-letters?resolved=true").await;
    assert_eq!(all.body["dead_letters"].as_array().unwrap().len(), 3);
    assert_eq!(
        operator.get(&site, "/v1/dead-letters").await.body,
        json!({"dead_letters": []})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_dropped_and_one_that_there_is_not_stops_all() {
    let site = Site::open(&[]).await;
    let ids = dead_letters(&site, "s", 2).await;
    let operator = Operator::of(&site).await;
    let path = "/v1/dead-letters/drop";
    let unknown = json!({"dead_ids": [ids[0], 4711]}).to_string();
    let refused = operator.post(&site, path, &unknown).await;
    refused.assert_problem(404, "not_found");
    assert!(refused.body["detail"].as_str().unwrap().contains("4711"));
    let many: Vec<i64> = (1..=1_001).collect();
    for bad in [
        json!({"dead_ids": []}),
        json!({"dead_ids": many}),
        json!({"dead_ids": ["1"]}),
        json!({"dead_id": 1}),
        json!([1]),
    ] {
        let refused = operator.post(&site, path, &bad.to_string()).await;
        refused.assert_problem(422, "invalid");
    }
    operator
        .post(&site, path, "")
        .await
        .assert_problem(422, "invalid");
    assert_eq!(on_record(&site).await, []);
    // One of them twice.
    let order = json!({"dead_ids": [ids[1], ids[0], ids[1]]}).to_string();
    for result in ["dropped", "resolved_before"] {
        let done = operator.post(&site, path, &order).await;
        assert_eq!(results(&done), [(ids[0], result), (ids[1], result)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_dead_letters_keep_their_filter_and_have_each_once() {
    let site = Site::open(&[]).await;
    let mut ids = dead_letters(&site, "s", 5).await;
    dead_letters(&site, "other", 2).await;
    ids.reverse();
    let operator = Operator::of(&site).await;
    let path = "/v1/dead-letters?subscription=out&stream=runs&session=s&text=STATUS&limit=2";
    let (rows, pages) = operator.pages(&site, path, "dead_letters", "before").await;
    let found: Vec<i64> = rows
        .iter()
        .map(|row| row["dead_id"].as_i64().unwrap())
        .collect();
    assert_eq!((found, pages), (ids, 3));
    let none = operator.get(&site, "/v1/dead-letters?text=elsewhere").await;
    assert_eq!(none.body, json!({"dead_letters": []}));
    for bad in [
        "stream=runs",
        "session=s",
        "before=x",
        "limit=0",
        "resolved=maybe",
    ] {
        let refused = operator
            .get(&site, &format!("/v1/dead-letters?{bad}"))
            .await;
        refused.assert_problem(422, "invalid");
    }
    let long = "x".repeat(501);
    let refused = operator
        .get(&site, &format!("/v1/dead-letters?text={long}"))
        .await;
    refused.assert_problem(422, "invalid");
    for path in [
        "/v1/dead-letters/4711",
        "/v1/dead-letters?subscription=none",
    ] {
        operator
            .get(&site, path)
            .await
            .assert_problem(404, "not_found");
    }
}
