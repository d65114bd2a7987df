//! I5, I6, I7: a claim ends with its connection, is not made before its head is due, and holds only its lock while its
//! deliveries run.

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::WorkerSettings;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::{Protocol, Proxy, Upstream, wait_until};

/// The worker's other connections are well, and the server still has the lock: a settlement over one of
/// them would hit. But who knows only that its connection is silent may have lost the lock long ago.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_hanging_connection_held_is_settled_over_no_other_and_delivered_again() {
    let bed = Bed::new().await;
    let proxy = Proxy::start(Upstream::of(bed.db.url()), Protocol::Postgres).await;
    let settings = WorkerSettings {
        trust: Duration::from_secs(3),
        // It asks for nothing meanwhile: an answer that does not come would keep it from settling.
        lane_connections: 1,
        poll_floor: LIMIT,
        mark_after: LIMIT,
        ..WorkerSettings::default()
    };
    bed.fake.hold("s1");
    let url = proxy.through(bed.db.url());
    let worker = Bed::start(&url, bed.fake.clone(), settings).await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "it is being delivered", async || {
        bed.fake.seen().running == 1
    })
    .await;
    let silent = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'lanekeeper lanes'
          AND state_change < clock_timestamp() - interval '300 ms'";
    wait_until(LIMIT, "its connection has nothing to ask", async || {
        bed.count(silent).await == 1
    })
    .await;
    proxy.hang(" lanes");
    bed.fake.release("s1");
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 1]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spare_ready_entry_of_a_head_in_backoff_costs_no_attempt() {
    let bed = Bed::with(&Sub {
        schedule_ms: vec![3_600_000],
        ..Sub::default()
    })
    .await;
    let error = "not now".to_owned();
    bed.fake
        .script("s1", 1, [Verdict::Retry { error, after: None }]);
    let worker = bed.worker().await;
    bed.enqueue("s1", "step").await;
    let due_in_an_hour =
        "SELECT count(*) FROM lanekeeper.ready WHERE due_at > now() + interval '30 min'";
    wait_until(LIMIT, "its head is in backoff", async || {
        bed.count(due_in_an_hour).await == 1
    })
    .await;
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
             SELECT route, 0, clock_timestamp(), lane_id FROM lanekeeper.lane",
        )
        .await
        .unwrap();
    wait_until(LIMIT, "the spare entry is gone", async || {
        bed.count("SELECT count(*) FROM lanekeeper.ready").await == 1
    })
    .await;
    assert_eq!(bed.fake.seen().deliveries.len(), 1);
    assert_eq!(bed.count(due_in_an_hour).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_deliveries_run_no_transaction_and_no_pooled_connection_is_held() {
    let bed = Bed::new().await;
    let settings = WorkerSettings::default();
    let held = i64::try_from(settings.pool_size).unwrap() * 2;
    for number in 1..=held {
        bed.fake.hold(&format!("s{number}"));
    }
    let worker = bed.worker_with(settings).await;
    bed.enqueue_bulk(held, 1).await;
    wait_until(LIMIT, "their deliveries run", async || {
        i64::try_from(bed.fake.seen().running) == Ok(held)
    })
    .await;
    let in_transaction = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    assert_eq!(bed.count(in_transaction).await, 0);
    // Read over a pooled connection, when its turn comes.
    let large = "SELECT lanekeeper.enqueue('runs', 'large', 'step', to_jsonb(repeat('x', 100000)))";
    bed.client.execute(large, &[]).await.unwrap();
    let soon = Duration::from_secs(5);
    wait_until(soon, "a large payload is read meanwhile", async || {
        bed.accepted().contains_key("large")
    })
    .await;
    bed.fake.release_all();
    bed.drained().await;
    worker.stop().await;
}
