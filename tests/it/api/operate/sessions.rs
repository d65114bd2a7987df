//! Sessions: listed, looked at, paused and resumed.

use serde_json::json;

use super::super::site::Site;
use super::{Operator, append, block, column};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_shown_with_its_lanes_and_what_became_of_each_event() {
    let site = Site::open(&[]).await;
    append(&site, "a b/<s>", 2).await;
    site.plant.settled().await;
    block(&site, "a b/<s>", 1).await;
    let operator = Operator::of(&site).await;
    let path = "/v1/sessions/runs/a%20b%2F%3Cs%3E";
    let shown = operator.get(&site, path).await;
    assert_eq!(
        (&shown.body["session"], &shown.body["newest_seq"]),
        (&json!("a b/<s>"), &json!(3))
    );
    assert_eq!(shown.body["lane_status"][0]["state"], "blocked");
    let path = format!("{path}/timeline?limit=2");
    let (events, pages) = operator.pages(&site, &path, "events", "before").await;
    assert_eq!(pages, 2);
    let fates: Vec<(i64, &str, &str)> = events
        .iter()
        .map(|event| {
            let fate = &event["fates"][0];
            (
                event["seq"].as_i64().unwrap(),
                fate["subscription"].as_str().unwrap(),
                fate["state"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        fates,
        [
            (3, "out", "retrying"),
            (2, "out", "delivered"),
            (1, "out", "delivered")
        ]
    );
    for path in [
        "/v1/sessions/runs/none",
        "/v1/sessions/none/s",
        "/v1/sessions/runs/none/timeline",
        "/v1/sessions?stream=none",
    ] {
        operator
            .get(&site, path)
            .await
            .assert_problem(404, "not_found");
    }
    let nul = operator.get(&site, "/v1/sessions/runs/%00").await;
    nul.assert_problem(422, "invalid");
    for bad in ["limit=201", "limit=0", "before=x", "after=1"] {
        let path = format!("/v1/sessions/runs/s/timeline?{bad}");
        operator
            .get(&site, &path)
            .await
            .assert_problem(422, "invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_sessions_have_each_session_once() {
    let site = Site::open(&[]).await;
    for n in 1..=5 {
        append(&site, &format!("s{n}"), 1).await;
    }
    let operator = Operator::of(&site).await;
    let path = "/v1/sessions?stream=runs&limit=2";
    let (rows, pages) = operator.pages(&site, path, "sessions", "before").await;
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["session"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["s5", "s4", "s3", "s2", "s1"]);
    assert_eq!(pages, 3);
    let agents = operator
        .get(&site, "/v1/sessions?turn=running&cli=codex")
        .await;
    assert_eq!(agents.body, json!({"sessions": []}));
    for bad in ["turn=asleep", "before=x", "limit=0", "session=s1"] {
        let refused = operator.get(&site, &format!("/v1/sessions?{bad}")).await;
        refused.assert_problem(422, "invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_paused_and_resumed_and_a_repetition_changes_nothing() {
    let site = Site::open(&[]).await;
    let lane = block(&site, "s", 2).await;
    let operator = Operator::of(&site).await;
    for (action, state) in [("pause", "parked"), ("resume", "ready")] {
        let path = format!("/v1/sessions/runs/s/{action}");
        let done = operator.post(&site, &path, r#"{"reason":"a look"}"#).await;
        let changed = json!([{"lane_id": lane, "subscription": "out", "state": state}]);
        assert_eq!(done.body, json!({"changed": changed, "left": []}));
        let again = operator.post(&site, &path, "").await;
        assert_eq!(again.body, json!({"changed": [], "left": []}));
    }
    assert_ne!(column(&site, "s", "state").await, "parked");
    let missing = operator
        .post(&site, "/v1/sessions/runs/none/pause", "")
        .await;
    missing.assert_problem(404, "not_found");
}
