//! I9: where a worker's scans start. `statements::entries` tests that the claim keeps to the scan start that it is
//! given; this tests which scan start the worker gives.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::bed::{Bed, LIMIT};

const DELETED: i64 = 5000;
const DELIVERIES: i64 = 300;
/// The pause between two deliveries: ten seconds in all.
const PAUSE: Duration = Duration::from_millis(33);

/// After this time, backstop scans start above the deleted entries, and sessions have reported their statistics.
const MOMENT: Duration = Duration::from_secs(8);

/// Index entries of `ready` that were read so far.
async fn read(bed: &Bed) -> i64 {
    bed.count(
        "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes
         WHERE schemaname = 'lanekeeper' AND relname = 'ready'",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_ready_entries_that_a_snapshot_keeps_are_scanned_when_a_worker_starts_and_not_again()
 {
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

    let worker = bed.worker().await;
    bed.enqueue("one", "step").await;
    let first = bed.fake.wait_for(usize::try_from(DELETED + 1).unwrap());
    timeout(LIMIT, first).await.unwrap();
    sleep(MOMENT).await;
    let before = read(&bed).await;
    for number in 1..=DELIVERIES {
        bed.enqueue("one", "step").await;
        let delivered = bed
            .fake
            .wait_for(usize::try_from(DELETED + 1 + number).unwrap());
        timeout(LIMIT, delivered).await.unwrap();
        sleep(PAUSE).await;
    }
    sleep(MOMENT).await;
    let read = read(&bed).await - before;
    worker.stop().await;
    println!("{read} entries");
    // One backstop scan from the beginning may come in between. One a second on each connection would be twenty.
    assert!(read <= 6 * DELETED + 50 * DELIVERIES, "{read} entries");
    snapshot.batch_execute("COMMIT").await.unwrap();
}
