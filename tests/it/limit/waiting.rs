//! Lanes that wait for a limit cost nothing, and delay no others.

use std::time::Duration;

use lanekeeper_engine::WorkerSettings;
use lanekeeper_limit::RedisSettings;
use lanekeeper_secret::Secret;

use crate::engine::bed::{Bed, LIMIT, Sub};
use crate::support::{RedisServer, wait_until};

async fn limited(rate: &str) -> Bed {
    let bed = Bed::new().await;
    bed.client
        .execute(
            "UPDATE lanekeeper.subscription
             SET settings = jsonb_build_object('limit', jsonb_build_array(jsonb_build_object('rate', $1::text)))",
            &[&rate],
        )
        .await
        .unwrap();
    bed
}

/// How often anybody has looked for tokens, progress or events of the bed's database.
async fn looks(bed: &Bed) -> i64 {
    bed.count(
        "SELECT coalesce(sum(seq_scan + idx_scan), 0)::bigint FROM pg_stat_user_tables
         WHERE schemaname = 'lanekeeper' AND (relname IN ('ready', 'progress') OR relname LIKE 'event%')",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_lanes_that_wait_ask_postgres_for_nothing() {
    /// Longer than any worker goes without a look when there is something for it.
    const PAUSE: Duration = Duration::from_secs(4);
    let bed = limited("1/h").await;
    let redis = RedisServer::start();
    let settings = WorkerSettings {
        redis: Some(RedisSettings {
            sentinel: None,
            url: Secret::new(redis.url()),
            prefix: "test".to_owned(),
            timeout: Duration::from_millis(250),
        }),
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    wait_until(LIMIT, "limits are shared", async || {
        worker.probe().limits().shared
    })
    .await;
    bed.enqueue_bulk(10_000, 1).await;
    wait_until(LIMIT, "the one that may go has gone", async || {
        bed.fake.seen().accepted().len() == 1
    })
    .await;
    wait_until(LIMIT, "no lane is held", async || {
        bed.count("SELECT coalesce(sum(held_lanes), 0)::bigint FROM lanekeeper.worker_status")
            .await
            == 0
    })
    .await;
    // What was looked at before is told late; from then on nothing is.
    wait_until(LIMIT, "nobody looks for anything", async || {
        let before = looks(&bed).await;
        tokio::time::sleep(PAUSE).await;
        looks(&bed).await == before
    })
    .await;
    assert_eq!(bed.fake.seen().deliveries.len(), 1);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.ready").await,
        9_999
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_wait_for_a_limit_take_no_place_from_others() {
    let bed = limited("1/h").await;
    bed.subscribe(&Sub {
        name: "free",
        ..Sub::default()
    })
    .await;
    let settings = WorkerSettings {
        max_lanes: Some(2),
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    bed.enqueue_bulk(50, 4).await;
    wait_until(LIMIT, "the unlimited one has everything", async || {
        let seen = bed.fake.seen();
        seen.deliveries
            .iter()
            .filter(|one| one.subscription == "free")
            .count()
            == 200
    })
    .await;
    let seen = bed.fake.seen();
    assert!(
        seen.deliveries
            .iter()
            .filter(|one| one.subscription == "out")
            .count()
            <= 1
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_stop_waits_for_no_turn() {
    let bed = limited("2/s").await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(5, 10).await;
    wait_until(LIMIT, "one went", async || {
        !bed.fake.seen().accepted().is_empty()
    })
    .await;
    assert_eq!(worker.stop().await, lanekeeper_engine::Stopped::Clean);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.claim").await, 0);
    assert!(bed.undelivered().await > 0);
}
