//! Destinations: their limits and circuits, and closing a circuit.

use serde_json::json;

use super::super::site::Site;
use super::{Operator, append};
use crate::process::plant::LIMIT;
use crate::support::{RedisServer, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_back_is_tried_at_once() {
    let redis = RedisServer::start();
    let url = redis.url();
    let site = Site::open(&[
        ("REDIS_URL", &url),
        ("LANEKEEPER_WORKER__BREAKER_OPEN_MS", "3600000"),
        ("LANEKEEPER_WORKER__BREAKER_LANES", "2"),
    ])
    .await;
    wait_until(LIMIT, "limits are shared", async || {
        site.worker.logged("limits are shared")
    })
    .await;
    site.plant.receiver.set_broken(true);
    for n in 1..=3 {
        append(&site, &format!("s{n}"), 1).await;
    }
    let operator = Operator::of(&site).await;
    let destination = async || {
        let listed = operator.get(&site, "/v1/destinations").await.body;
        assert_eq!(listed["circuits"], "redis_and_workers");
        let all = listed["destinations"].as_array().unwrap();
        let out = |it: &&serde_json::Value| it["subscriptions"] == json!(["out"]);
        all.iter().find(out).unwrap().clone()
    };
    wait_until(LIMIT, "the circuit is open for all", async || {
        let circuit = &destination().await["circuit"];
        circuit["state"] == "open"
            && circuit["next_probe_s"]
                .as_f64()
                .is_some_and(|left| left > 60.0)
    })
    .await;
    site.plant.receiver.set_broken(false);
    let name = destination().await["destination"].clone();
    let order = json!({"destination": name}).to_string();
    let done = operator.post(&site, "/v1/destinations/reset", &order).await;
    assert_eq!(done.body, json!({"destination": name, "changed": true}));
    site.plant.settled().await;
    let again = operator.post(&site, "/v1/destinations/reset", &order).await;
    assert_eq!(again.body, json!({"destination": name, "changed": false}));
    let missing = json!({"destination": "webhook https://elsewhere.example 000000000000"});
    let missing = operator
        .post(&site, "/v1/destinations/reset", &missing.to_string())
        .await;
    missing.assert_problem(404, "not_found");

    drop(redis);
    let listed = operator.get(&site, "/v1/destinations").await.body;
    assert_eq!(listed["circuits"], "workers_without_redis");
    let away = operator.post(&site, "/v1/destinations/reset", &order).await;
    away.assert_problem(503, "unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_circuit_is_shown_and_not_closed() {
    let site = Site::open(&[]).await;
    let operator = Operator::of(&site).await;
    let (all, pages) = operator
        .pages(&site, "/v1/destinations?limit=1", "destinations", "after")
        .await;
    assert!(pages == all.len() || all.is_empty(), "{all:?}");
    let out = all
        .iter()
        .find(|it| it["subscriptions"] == json!(["out"]))
        .unwrap();
    assert_eq!(
        (&out["circuit"]["state"], &out["limits"]),
        (&json!("closed"), &json!([]))
    );
    let order = json!({"destination": out["destination"]}).to_string();
    let refused = operator.post(&site, "/v1/destinations/reset", &order).await;
    refused.assert_problem(409, "no_redis");
    for bad in ["", "{}", r#"{"destination":7}"#] {
        let refused = operator.post(&site, "/v1/destinations/reset", bad).await;
        assert!(
            [404, 422].contains(&refused.status),
            "{bad}: {}",
            refused.body
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_reset_a_shared_destination_is_not_told_which_streams_share_it() {
    let site = Site::open(&[]).await;
    let shared = "INSERT INTO lanekeeper.subscription (stream_id, name, adapter, settings, retry_schedule_ms, max_attempts,
                                                       on_exhausted, coalesce, paused_at, pause_reason)
                  SELECT t.stream_id, 'hidden', s.adapter, s.settings, s.retry_schedule_ms, s.max_attempts,
                         s.on_exhausted, s.coalesce, now(), 'a test'
                  FROM lanekeeper.subscription AS s, lanekeeper.stream AS t
                  WHERE s.name = 'out' AND t.name = 'messages'";
    let made = site.plant.client.execute(shared, &[]).await.unwrap();
    assert_eq!(made, 1);
    let scopes = [
        "one", "--scope", "read", "--scope", "operate", "--stream", "runs",
    ];
    let one = Operator::with(&site, &scopes).await;
    let (all, _) = one
        .pages(&site, "/v1/destinations?limit=10", "destinations", "after")
        .await;
    let order = json!({"destination": all[0]["destination"]}).to_string();
    let refused = one.post(&site, "/v1/destinations/reset", &order).await;
    refused.assert_problem(403, "forbidden");
    assert!(
        !refused.body.to_string().contains("messages"),
        "{}",
        refused.body
    );
}
