//! I3, I9: one poisoned session and a thousand blocked lanes cost the other lanes nothing that can be measured. The
//! tests compare pages, not times.

use std::time::Duration;

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::WorkerSettings;
use lanekeeper_limit::BreakerSettings;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

const OTHERS: i64 = 1000;

/// A destination that fails a thousand sessions and accepts none would be left alone.
fn settings() -> WorkerSettings {
    WorkerSettings {
        breaker: BreakerSettings {
            lanes: 0,
            ..BreakerSettings::default()
        },
        ..WorkerSettings::default()
    }
}

/// Fails for ever: the poisoned head twice a second, so that it is always being tried again.
fn failing() -> Fake {
    Fake::answering(|delivery| match &*delivery.event.event_type {
        "poison" => Verdict::Retry {
            error: "poisoned".to_owned(),
            after: Some(Duration::from_millis(500)),
        },
        "blocked" => Verdict::Retry {
            error: "blocked".to_owned(),
            after: Some(Duration::from_secs(600)),
        },
        _ => Verdict::Accepted,
    })
}

/// On a connection of its own: a session tells the server what it read when it ends at the latest,
/// and before PostgreSQL 15 only then can be waited for.
async fn enqueue(bed: &Bed, kind: &str, sessions: i64, count: i64) {
    let client = bed.db.connect().await;
    client
        .execute(
            "SELECT lanekeeper.enqueue_many('runs', (
                 SELECT jsonb_agg(jsonb_build_object('session', $1 || s, 'event_type', $1, 'payload', n))
                 FROM generate_series(1, $2::bigint) AS s, generate_series(1, $3::bigint) AS n))",
            &[&kind, &sessions, &count],
        )
        .await
        .unwrap();
}

/// Pages that were read of the engine's tables so far, when nobody is connected who would add some;
/// the bed's own connection reads none of them.
async fn pages(bed: &Bed) -> i64 {
    wait_until(LIMIT, "the worker's sessions have ended", async || {
        bed.count(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await
            == 0
    })
    .await;
    bed.count(
        "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint
         FROM pg_statio_user_tables WHERE schemaname = 'lanekeeper'",
    )
    .await
}

/// What it costs to deliver five events to each of the others.
async fn cost(bed: &Bed) -> i64 {
    let before = pages(bed).await;
    let worker = bed.worker_with(settings()).await;
    enqueue(bed, "other", OTHERS, 5).await;
    // Asked of the destination: a question to the database would be counted.
    wait_until(LIMIT, "the others are complete", async || {
        bed.fake.seen().accepted().len() == 5 * OTHERS as usize
    })
    .await;
    worker.stop().await;
    pages(bed).await - before
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_session_and_a_thousand_blocked_lanes_cost_the_others_nothing() {
    let mut clean = Bed::with(&Sub::default()).await;
    clean.fake = failing();
    let alone = cost(&clean).await;

    let mut bed = Bed::with(&Sub::default()).await;
    bed.fake = failing();
    enqueue(&bed, "poison", 1, 10_000).await;
    enqueue(&bed, "blocked", 1000, 2).await;
    let worker = bed.worker_with(settings()).await;
    let watching = bed.db.connect().await;
    wait_until(LIMIT, "each has failed", async || {
        let failed = "SELECT count(*) FROM lanekeeper.progress WHERE attempts > 0";
        let row = watching.query_one(failed, &[]).await.unwrap();
        row.get::<_, i64>(0) == 1001
    })
    .await;
    drop(watching);
    worker.stop().await;
    let beside = cost(&bed).await;

    println!("{alone} pages alone, {beside} beside them");
    assert!(beside <= alone + alone / 5, "{alone}, then {beside}");
    let mut deliveries = bed.accepted();
    assert_eq!(
        deliveries.len(),
        OTHERS as usize,
        "only the others came through"
    );
    deliveries.retain(|_, seqs| *seqs != [1, 2, 3, 4, 5]);
    assert!(deliveries.is_empty(), "{deliveries:?}");
}
