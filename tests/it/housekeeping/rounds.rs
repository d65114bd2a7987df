//! When a worker's rounds of retention begin.

use std::time::Duration;

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
