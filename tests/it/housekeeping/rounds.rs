//! When a worker's retention rounds begin.

use std::time::{Duration, Instant};

use crate::engine::bed::{Bed, LIMIT};
use crate::support::wait_until;

/// Stands still in a step that each round takes once.
const STUCK: &str = "
    CREATE OR REPLACE FUNCTION lanekeeper.move_recent() RETURNS boolean
    LANGUAGE sql RETURN pg_advisory_lock(42) IS NULL;
    SELECT pg_advisory_lock(42)";
const ROUNDS: &str = "
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event = 'advisory' AND query LIKE '%move_recent%'";
const CONTROL: &str = "
    FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'lanekeeper control'";

/// A round may take long, or wait a minute for an idle moment. Each connection for control that is opened meanwhile begins one
/// of its own otherwise, and all of them use the pool at once.
#[tokio::test]
async fn a_round_is_not_begun_while_another_is_at_work() {
    let bed = Bed::new().await;
    bed.client.batch_execute(STUCK).await.unwrap();
    let worker = bed.worker().await;
    wait_until(LIMIT, "a round", async || bed.count(ROUNDS).await == 1).await;
    for _ in 0..3 {
        let ended = bed
            .count(&format!("SELECT max(pid)::bigint {CONTROL}"))
            .await;
        let end = format!("SELECT pg_terminate_backend({ended})");
        bed.client.query_one(&end, &[]).await.unwrap();
        // Its beat comes before its round.
        let beats = format!(
            "SELECT count(*) FROM lanekeeper.worker AS w
             WHERE w.beat_at > (SELECT max(backend_start) {CONTROL} AND pid <> {ended})"
        );
        wait_until(LIMIT, "another connection", async || {
            bed.count(&beats).await == 1
        })
        .await;
    }
    // Longer than an idle moment takes to be noticed.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bed.count(ROUNDS).await, 1);
    let free = "SELECT pg_advisory_unlock(42)";
    bed.client.query_one(free, &[]).await.unwrap();
    worker.stop().await;
}

/// Sessions that a change has to visit, and in how many turns.
const SESSIONS: i64 = 4_000;
const TURNS: i64 = SESSIONS / 200;
/// Between two turns beside deliveries, at the least.
const PAUSE: Duration = Duration::from_millis(50);

/// The turns of the pass that is under way.
const TURNS_DONE: &str = "
    SELECT coalesce((SELECT count(*) FROM lanekeeper.session AS s, lanekeeper.stream_change AS c
                     WHERE s.session_id <= c.scanned_to), 0) / 200";

#[tokio::test(flavor = "multi_thread")]
async fn what_an_apply_left_to_be_finished_yields_to_deliveries() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(SESSIONS, 1).await;
    let worker = bed.worker().await;
    bed.drained().await;
    // Deliveries go on until the end: an event at a time, so that no moment is idle.
    let url = bed.db.url().to_owned();
    let delivering = tokio_util::sync::CancellationToken::new();
    let until = delivering.clone();
    let producing = tokio::spawn(async move {
        let client = crate::support::connect(&url).await;
        while !until.is_cancelled() {
            crate::engine::bed::enqueue(&client, "busy", "step").await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    wait_until(LIMIT, "deliveries go on", async || {
        bed.accepted()
            .get("busy")
            .is_some_and(|seqs| seqs.len() > 20)
    })
    .await;
    let change = "INSERT INTO lanekeeper.stream_change (stream_id, scan_at)
                  SELECT stream_id, clock_timestamp() FROM lanekeeper.stream WHERE name = 'runs'";
    let since = Instant::now();
    bed.client.execute(change, &[]).await.unwrap();
    let mut most = 0;
    while most < TURNS / 2 {
        let turns = bed.count(TURNS_DONE).await;
        let passed = since.elapsed();
        most = most.max(turns);
        let allowed = 2 + i64::try_from(passed.as_millis() / PAUSE.as_millis()).unwrap();
        assert!(turns <= allowed, "{turns} turns within {passed:?}");
        assert!(passed < LIMIT, "{most} turns: it goes on beside deliveries");
    }
    delivering.cancel();
    producing.await.unwrap();
    wait_until(LIMIT, "the change is finished", async || {
        bed.count("SELECT count(*) FROM lanekeeper.stream_change")
            .await
            == 0
    })
    .await;
    worker.stop().await;
}
