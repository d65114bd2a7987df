//! I9: where a worker's walks start. That the statement keeps to the bound it is given is in
//! `statements::tokens`; this is about the bound that it is given.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::bed::{Bed, LIMIT};
use crate::support::wait_until;

const DELETED: i64 = 5000;
const DELIVERIES: i64 = 300;
/// Between two of them: ten seconds in all.
const PAUSE: Duration = Duration::from_millis(33);

/// Entries that were read of the tokens' index so far: sessions tell the server when they end.
async fn read(bed: &Bed) -> i64 {
    wait_until(LIMIT, "the worker's sessions have ended", async || {
        bed.count(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name LIKE 'lanekeeper %'",
        )
        .await
            == 0
    })
    .await;
    bed.count(
        "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes
         WHERE schemaname = 'lanekeeper' AND relname = 'ready'",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_tokens_that_a_snapshot_keeps_are_walked_when_a_worker_begins_and_not_again() {
    let bed = Bed::new().await;
    let snapshot = bed.db.connect().await;
    snapshot
        .batch_execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lanekeeper.lane",
        )
        .await
        .unwrap();
    let worker = bed.worker().await;
    bed.enqueue_bulk(DELETED, 1).await;
    bed.drained().await;
    worker.stop().await;
    let before = read(&bed).await;

    let worker = bed.worker().await;
    for number in 1..=DELIVERIES {
        bed.enqueue("one", "step").await;
        let delivered = bed
            .fake
            .wait_for(usize::try_from(DELETED + number).unwrap());
        timeout(LIMIT, delivered).await.unwrap();
        sleep(PAUSE).await;
    }
    worker.stop().await;
    let read = read(&bed).await - before;
    println!("{read} entries");
    // Two connections, whose walks from the beginning look twice, once or twice until somebody looks for them;
    // and a few such looks until it is known that nothing can be there. Once a second and connection it would be
    // twenty times, if not forty.
    assert!(read <= 14 * DELETED + 50 * DELIVERIES, "{read} entries");
    snapshot.batch_execute("COMMIT").await.unwrap();
}
