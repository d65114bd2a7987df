//! I9 for maintenance: a call costs only what it scans, with plans that were made on an empty schema.

use lanekeeper_postgres::maintenance::{expire_sessions, finish_changes};

use super::plans::Observed;
use crate::engine::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

const SESSIONS: i64 = 3000;

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_round_planned_on_an_empty_schema_reads_only_what_it_scans() {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "second",
        ..Sub::default()
    })
    .await;
    for statement in [
        "VACUUM ANALYZE",
        "UPDATE lanekeeper.subscription SET start_from = 'earliest'",
    ] {
        bed.client.batch_execute(statement).await.unwrap();
    }
    let observed = Observed::new(bed.db.url()).await;
    // Housekeeping runs on connections without the settings of a lane connection.
    observed
        .client
        .batch_execute(
            "SET enable_hashjoin = on; SET enable_mergejoin = on; SET enable_bitmapscan = on;
             SET enable_seqscan = on; SET plan_cache_mode = auto",
        )
        .await
        .unwrap();
    let change = "INSERT INTO lanekeeper.stream_change (stream_id)
                  SELECT stream_id FROM lanekeeper.stream WHERE name = 'runs'";
    bed.enqueue("first", "step").await;
    bed.client.batch_execute(change).await.unwrap();
    wait_until(LIMIT, "the first change is finished", async || {
        finish_changes(&observed.client, 100)
            .await
            .unwrap()
            .unfinished
            == 0
    })
    .await;
    expire_sessions(&observed.client, 30, 100).await.unwrap();

    bed.enqueue_bulk(SESSIONS, 2).await;
    bed.client
        .batch_execute("UPDATE lanekeeper.progress SET cursor = 2")
        .await
        .unwrap();
    bed.client.batch_execute(change).await.unwrap();
    let mut most = 0;
    wait_until(LIMIT, "the change is finished", async || {
        observed.forget();
        let turn = finish_changes(&observed.client, 100).await.unwrap();
        most = most.max(observed.work().rows);
        turn.unfinished == 0
    })
    .await;
    // A session, two lanes that are looked for and found, two versions of progress.
    assert!(most < 1500, "{most} rows in a turn over 100 sessions");

    bed.client
        .batch_execute("UPDATE lanekeeper.session_round SET begun_at = '-infinity'")
        .await
        .unwrap();
    let mut more = true;
    let mut most = 0;
    while more {
        observed.forget();
        more = expire_sessions(&observed.client, 30, 100)
            .await
            .unwrap()
            .more;
        most = most.max(observed.work().rows);
    }
    assert!(most < 1500, "{most} rows in a turn over 100 sessions");
}
