//! D5 over HTTP: replays are started, looked at and changed by operators of the stream, and by nobody else.

use reqwest::Method;
use serde_json::{Value, json};

use super::site::{Answer, Site};
use crate::process::plant::LIMIT;
use crate::support::wait_until;

async fn ask(site: &Site, method: Method, path: &str, token: &str, body: &str) -> Answer {
    let request = site.request(method, path).bearer_auth(token);
    Answer::of(request.body(body.to_owned()).send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_counts_starts_pauses_and_cancels_a_replay() {
    let site = Site::open(&[]).await;
    site.plant.enqueue("s", 2, 30).await;
    site.plant.settled().await;
    let token = site.token(&["console", "--scope", "operate"]).await;
    let post = async |path: &str, body: Value| {
        ask(&site, Method::POST, path, &token, &body.to_string()).await
    };
    let counted = post(
        "/v1/replays",
        json!({"subscription": "out", "all": true, "dry_run": true}),
    )
    .await;
    assert_eq!(counted.status, 200);
    assert_eq!(
        (&counted.body["sessions"], &counted.body["events"]),
        (&json!(2), &json!(60))
    );

    let slow = json!({"subscription": "out", "sessions": "s*", "rate": "10/s", "reason": "endpoint was down"});
    let started = post("/v1/replays", slow.clone()).await;
    assert_eq!(started.status, 201, "{}", started.body);
    let id = started.body["replay_id"].as_i64().unwrap();
    assert_eq!(started.body["planned"]["events"], 60);
    assert_eq!(started.body["started_by"], "token console");
    post("/v1/replays", slow)
        .await
        .assert_problem(409, "replay_under_way");
    let path = format!("/v1/replays/{id}");
    let paused = post(&format!("{path}/pause"), json!({"reason": "later"})).await;
    let who =
        "SELECT count(*) FROM lanekeeper.operation WHERE reason LIKE '%later (by %, HTTP API)'";
    assert_eq!(site.plant.count(who).await, 1);
    assert_eq!(
        (paused.status, &paused.body["state"]),
        (200, &json!("paused"))
    );
    let listed = ask(&site, Method::GET, "/v1/replays", &token, "").await;
    assert_eq!(listed.body["replays"][0]["replay_id"], id);
    let resumed = ask(&site, Method::POST, &format!("{path}/resume"), &token, "").await;
    assert_eq!(resumed.body["state"], "running");
    let cancelled = ask(&site, Method::POST, &format!("{path}/cancel"), &token, "").await;
    assert_eq!(cancelled.body["state"], "cancelled");
    wait_until(LIMIT, "it has ended", async || {
        !ask(&site, Method::GET, &path, &token, "").await.body["ended_at"].is_null()
    })
    .await;
    let listed = ask(&site, Method::GET, "/v1/replays", &token, "").await;
    assert_eq!(listed.body["replays"], json!([]));
    let listed = ask(&site, Method::GET, "/v1/replays?all=true", &token, "").await;
    assert_eq!(listed.body["replays"][0]["state"], "cancelled");
    let again = ask(&site, Method::POST, &format!("{path}/resume"), &token, "").await;
    again.assert_problem(422, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_replays_without_the_scope_or_beyond_their_streams() {
    let site = Site::open(&[]).await;
    site.plant.enqueue("s", 1, 3).await;
    site.plant.settled().await;
    let all = json!({"subscription": "out", "all": true}).to_string();
    let producer = site
        .token(&["ci", "--scope", "produce", "--scope", "read"])
        .await;
    let elsewhere = site
        .token(&["b", "--scope", "operate", "--stream", "messages"])
        .await;
    let narrow = site
        .token(&[
            "c",
            "--scope",
            "operate",
            "--stream",
            "runs",
            "--session",
            "s1",
        ])
        .await;
    let operator = site.token(&["d", "--scope", "operate"]).await;
    for (method, path) in [
        (Method::POST, "/v1/replays"),
        (Method::GET, "/v1/replays"),
        (Method::GET, "/v1/replays/1"),
        (Method::POST, "/v1/replays/1/cancel"),
    ] {
        let refused = ask(&site, method.clone(), path, &producer, &all).await;
        refused.assert_problem(403, "forbidden");
        let refused = ask(&site, method.clone(), path, &narrow, &all).await;
        refused.assert_problem(403, "forbidden");
        let refused = ask(&site, method, path, "lk_1_00", &all).await;
        refused.assert_problem(401, "unauthorized");
    }
    let refused = ask(&site, Method::POST, "/v1/replays", &elsewhere, &all).await;
    refused.assert_problem(404, "not_found");
    let started = ask(&site, Method::POST, "/v1/replays", &operator, &all).await;
    assert_eq!(started.status, 201);
    let path = format!("/v1/replays/{}", started.body["replay_id"]);
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::POST, format!("{path}/cancel")),
    ] {
        let refused = ask(&site, method, &path, &elsewhere, "").await;
        refused.assert_problem(404, "not_found");
    }
    let listed = ask(&site, Method::GET, "/v1/replays?all=true", &elsewhere, "").await;
    assert_eq!(listed.body["replays"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_takes_long_keeps_neither_producers_nor_other_operators_waiting() {
    let site = Site::open(&[]).await;
    site.plant.enqueue("s", 1, 3).await;
    site.plant.settled().await;
    let token = site
        .token(&["console", "--scope", "operate", "--scope", "produce"])
        .await;
    // In place of a large log, the count waits for a lock of ours.
    let client = &site.plant.client;
    let slow = "DO $$ BEGIN EXECUTE regexp_replace(
                    pg_get_functiondef('lanekeeper.replay_ranges'::regproc),
                    '\\mBEGIN\\M', 'BEGIN PERFORM pg_advisory_xact_lock_shared(4711);'); END $$";
    client.batch_execute(slow).await.unwrap();
    client
        .batch_execute("SELECT pg_advisory_lock(4711)")
        .await
        .unwrap();
    let count = json!({"subscription": "out", "all": true, "dry_run": true}).to_string();
    let start = async || ask(&site, Method::POST, "/v1/replays", &token, &count).await;
    let counting = async {
        let first = start().await;
        assert_eq!((first.status, &first.body["events"]), (200, &json!(3)));
    };
    let meanwhile = async {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 4711";
        wait_until(LIMIT, "it is counted", async || {
            site.plant.count(waiting).await == 1
        })
        .await;
        // As many as producers have connections.
        for _ in 0..4 {
            let refused = start().await;
            refused.assert_problem(429, "busy");
            assert!(
                refused.body["detail"]
                    .as_str()
                    .unwrap()
                    .contains("being counted")
            );
        }
        let append = site.events(Method::POST, "runs", "t").bearer_auth(&token);
        let append = append.body(r#"{"event_type":"a","payload":1}"#);
        assert_eq!(append.send().await.unwrap().status(), 201);
        let listed = ask(&site, Method::GET, "/v1/replays", &token, "").await;
        assert_eq!(listed.status, 200);
        client
            .batch_execute("SELECT pg_advisory_unlock(4711)")
            .await
            .unwrap();
    };
    tokio::join!(counting, meanwhile);
    assert_eq!(start().await.status, 200, "another one may be counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_says_too_little_or_nonsense_starts_nothing() {
    let site = Site::open(&[]).await;
    site.plant.enqueue("s", 1, 3).await;
    site.plant.settled().await;
    let token = site.token(&["console", "--scope", "operate"]).await;
    for body in [
        "",
        "[]",
        "[\"out\"]",
        r#"{"subscription":"out"}"#,
        r#"{"subscription":"out","all":true,"sessions":"s1"}"#,
        r#"{"subscription":"out","all":true,"rate":"fast"}"#,
        r#"{"subscription":"out","all":true,"rate":"0/s"}"#,
        r#"{"subscription":"out","all":true,"concurrency":0}"#,
        r#"{"subscription":"out","all":true,"concurrency":1001}"#,
        r#"{"subscription":"out","all":true,"from":"yesterday"}"#,
        r#"{"subscription":"out","all":true,"from_seq":1}"#,
        r#"{"subscription":"out","sessions":"s1","from_seq":0}"#,
        r#"{"subscription":"out","sessions":"s1","from_seq":9}"#,
        r#"{"subscription":"out","sessions":""}"#,
        r#"{"subscription":"out","all":true,"mode":"side"}"#,
        "{\"subscription\":\"out\",\"sessions\":\"a\\u0000b\"}",
    ] {
        let refused = ask(&site, Method::POST, "/v1/replays", &token, body).await;
        let code = refused.body["code"].as_str().unwrap().to_owned();
        let is_known = code == "invalid" || code == "not_found" || code == "nul_character";
        assert!(
            is_known && (refused.status == 422 || refused.status == 404),
            "{body}: {code}"
        );
    }
    for path in [
        "/v1/replays/0",
        "/v1/replays/x",
        "/v1/replays/99999999999999999999",
    ] {
        let refused = ask(&site, Method::GET, path, &token, "").await;
        refused.assert_problem(404, "not_found");
    }
    for query in ["limit=0", "limit=9999999", "all=maybe", "x=1"] {
        let path = format!("/v1/replays?{query}");
        ask(&site, Method::GET, &path, &token, "")
            .await
            .assert_problem(422, "invalid");
    }
    let wrong = ask(&site, Method::DELETE, "/v1/replays", &token, "").await;
    wrong.assert_problem(405, "method_not_allowed");
    let replays = site
        .plant
        .count("SELECT count(*) FROM lanekeeper.replay")
        .await;
    assert_eq!(replays, 0);
}
