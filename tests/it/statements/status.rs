//! The statistics of subscriptions for metrics, at a cost that does not depend on history (I9).

use jiff::{SignedDuration, Timestamp};
use lanekeeper_postgres::{inspect, worker};
use tokio_postgres::types::Type;

use super::snapshot::{hold, pages};
use crate::engine::bed::Bed;

/// Pages that the statement reads, from memory or not.
async fn pages_read(bed: &Bed, floors: &[(i32, Timestamp)]) -> i64 {
    let statement = format!(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}",
        include_str!("../../../src/postgres/sql/status.sql")
    );
    let (routes, floors): (Vec<i32>, Vec<Timestamp>) = floors.iter().copied().unzip();
    let rows = bed
        .client
        .query_typed(
            &statement,
            &[
                (&1_000_i64, Type::INT8),
                (&1_000_i64, Type::INT8),
                (&1_000_i64, Type::INT8),
                (&routes, Type::INT4_ARRAY),
                (&floors, Type::TIMESTAMPTZ_ARRAY),
                (&None::<Vec<i32>>, Type::INT4_ARRAY),
            ],
        )
        .await
        .unwrap();
    pages(&rows[0].get(0))
}

#[tokio::test]
async fn a_scan_with_a_low_water_mark_passes_over_no_ready_entry_below_it() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(3, 2).await;
    let mut holder = bed.db.connect().await;
    let _held = hold(&mut holder).await;
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
             SELECT 1, 0, clock_timestamp() - interval '1 hour' + n * interval '1 ms', 1
             FROM generate_series(1, 30000) AS n;
             DELETE FROM lanekeeper.ready WHERE due_at < clock_timestamp() - interval '10 minutes'",
        )
        .await
        .unwrap();
    // By the server's clock, as that of a scan.
    let now = worker::clock(&bed.client).await.unwrap();
    let floor = now - SignedDuration::from_mins(10);
    let stepped_over = pages_read(&bed, &[]).await;
    let below_left_out = pages_read(&bed, &[(1, floor)]).await;
    assert!(
        below_left_out * 5 < stepped_over,
        "{below_left_out} of {stepped_over}"
    );
    // What is known of another subscription says nothing of this one.
    assert!(pages_read(&bed, &[(2, floor)]).await * 2 > stepped_over);

    for floors in [vec![], vec![(1, floor)]] {
        let seen = inspect::status(&bed.client, 10, 10, floors.into_iter())
            .await
            .unwrap();
        assert_eq!((seen[0].lanes.ready, seen[0].behind), (3, 6));
    }
    // A floor that is too high hides what is below it, and only that.
    let later = now + SignedDuration::from_mins(10);
    let seen = inspect::status(&bed.client, 10, 10, [(1, later)].into_iter())
        .await
        .unwrap();
    assert_eq!(seen[0].lanes.ready, 0);
}
