//! Subscriptions and workers: how they stand, and pausing a subscription.

use serde_json::json;

use super::super::site::Site;
use super::{Operator, block, on_record};
use crate::command::run;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_says_how_it_stands_and_whether_workers_deliver_it() {
    let site = Site::open(&[]).await;
    block(&site, "s", 3).await;
    let operator = Operator::of(&site).await;
    let path = "/v1/subscriptions/out";
    wait_until(LIMIT, "the worker has reported it", async || {
        operator.get(&site, path).await.body["delivery"]["state"] == "delivering"
    })
    .await;
    let shown = operator.get(&site, path).await.body;
    assert_eq!(
        (
            &shown["lanes"]["blocked"],
            &shown["behind"],
            &shown["events"]
        ),
        (&json!(1), &json!(3), &json!(null))
    );
    let workers = operator.get(&site, "/v1/workers").await.body;
    assert_eq!(workers["workers"][0]["pid"], site.worker.pid());
    let missing = operator.get(&site, "/v1/subscriptions/none").await;
    missing.assert_problem(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_subscriptions_have_each_once_by_name() {
    let site = Site::open(&[]).await;
    let more: String = ["b", "a", "z"]
        .map(|name| format!("[subscription.{name}]\nstream = \"runs\"\nadapter = \"stdout\"\n"))
        .concat();
    let url = [("DATABASE_URL", &*site.plant.url)];
    let ran = run(&["apply", "-f", "-"], &url, &more).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let operator = Operator::of(&site).await;
    let path = "/v1/subscriptions?limit=3";
    let (rows, pages) = operator.pages(&site, path, "subscriptions", "after").await;
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["subscription"].as_str().unwrap())
        .collect();
    assert_eq!(pages, 2);
    assert!(
        names.is_sorted()
            && ["a", "b", "out", "z"]
                .iter()
                .all(|name| names.contains(name)),
        "{names:?}"
    );
    let beyond = operator.get(&site, "/v1/subscriptions?after=zzz").await;
    assert_eq!(beyond.body, json!({"subscriptions": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_paused_and_resumed_once() {
    let site = Site::open(&[]).await;
    let operator = Operator::of(&site).await;
    for (action, state) in [("pause", "paused"), ("resume", "running")] {
        for changed in [true, false] {
            let path = format!("/v1/subscriptions/out/{action}");
            let done = operator.post(&site, &path, r#"{"reason":"tonight"}"#).await;
            let expected = json!({"subscription": "out", "state": state, "changed": changed});
            assert_eq!((done.status, &done.body), (200, &expected));
        }
        let paused =
            operator.get(&site, "/v1/subscriptions/out").await.body["pause_reason"].clone();
        let expected = match state {
            "paused" => json!("tonight (by console, HTTP API)"),
            _ => json!(null),
        };
        assert_eq!(paused, expected);
    }
    let actions: Vec<String> = on_record(&site)
        .await
        .into_iter()
        .map(|(action, _)| action)
        .collect();
    assert_eq!(actions, ["pause", "resume"]);
    let missing = operator
        .post(&site, "/v1/subscriptions/none/pause", "")
        .await;
    missing.assert_problem(404, "not_found");
}
