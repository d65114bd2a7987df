//! I9: plans that were made on an empty schema and never get statistics.

use std::time::Instant;

use tokio_postgres::Client;

use super::bed::{Bed, enqueue};

const TABLES: &str = "SELECT c.oid::regclass::text FROM pg_class AS c
    WHERE c.relnamespace = 'lanekeeper'::regnamespace AND c.relkind = 'r'";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_started_on_an_empty_schema_drains_it_when_it_has_filled() {
    let bed = Bed::new().await;
    without_autovacuum(&bed.client).await;
    let workers = [bed.worker().await, bed.worker().await];
    // Every statement has run, and has the plan that it will keep.
    bed.enqueue_bulk(1, 1).await;
    bed.drained().await;

    let start = Instant::now();
    for part in 0..4 {
        bed.client
            .execute(
                "SELECT lanekeeper.enqueue_many('runs', (
                     SELECT jsonb_agg(jsonb_build_object('session', 's' || s, 'event_type', 'step', 'payload', n)
                                      ORDER BY n, s)
                     FROM generate_series($1::bigint + 1, $1 + 500) AS s, generate_series(1, 10) AS n))",
                &[&(part * 500_i64 + 1)],
            )
            .await
            .unwrap();
    }
    bed.drained().await;
    println!(
        "20,000 events of 2,000 sessions took {:.1?}",
        start.elapsed()
    );
    let accepted = bed.accepted();
    assert_eq!(accepted.values().map(Vec::len).sum::<usize>(), 20_001);
    let analysed = "SELECT count(*) FROM pg_stat_user_tables
                    WHERE schemaname = 'lanekeeper'
                      AND coalesce(last_autoanalyze, last_analyze, last_autovacuum, last_vacuum) IS NOT NULL";
    assert_eq!(bed.count(analysed).await, 0, "statistics came after all");
    for worker in workers {
        worker.stop().await;
    }
}

/// A plan of the bulk call that was made while there were few lanes once read all of them at each call.
#[tokio::test]
async fn an_append_reads_as_little_as_ever_with_plans_from_when_there_was_nothing() {
    let bed = Bed::new().await;
    without_autovacuum(&bed.client).await;
    // The statistics say that there is nothing, and go on saying it.
    bed.client
        .batch_execute("VACUUM ANALYZE lanekeeper.lane, lanekeeper.session, lanekeeper.progress, lanekeeper.stream")
        .await
        .unwrap();
    let old = bed.db.connect().await;
    for _ in 0..2 {
        enqueue(&old, "s1", "step").await;
        old.batch_execute(TEN).await.unwrap();
    }
    bed.enqueue_bulk(2_000, 2).await;

    assert!(rows_read(&old, "SELECT lanekeeper.enqueue('runs', 's7', 'step', '1')").await < 20);
    assert!(
        rows_read(
            &old,
            "SELECT lanekeeper.enqueue('runs', 'new', 'step', '1')"
        )
        .await
            < 20
    );
    assert!(rows_read(&old, TEN).await < 200);
}

/// Ten events of ten sessions.
const TEN: &str = "SELECT lanekeeper.enqueue_many('runs', (
    SELECT jsonb_agg(jsonb_build_object('session', 's' || s, 'event_type', 'step', 'payload', 1))
    FROM generate_series(1, 10) AS s))";

/// By the statements of one transaction, however they found them.
async fn rows_read(client: &Client, append: &str) -> i64 {
    let read =
        "SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint
                FROM pg_stat_xact_user_tables WHERE schemaname = 'lanekeeper'";
    client.batch_execute("BEGIN").await.unwrap();
    let before: i64 = client.query_one(read, &[]).await.unwrap().get(0);
    client.batch_execute(append).await.unwrap();
    let after: i64 = client.query_one(read, &[]).await.unwrap().get(0);
    client.batch_execute("COMMIT").await.unwrap();
    println!("{} rows read by {append}", after - before);
    after - before
}

async fn without_autovacuum(client: &Client) {
    for table in client.query(TABLES, &[]).await.unwrap() {
        let table: &str = table.get(0);
        let off = format!("ALTER TABLE {table} SET (autovacuum_enabled = false)");
        client.batch_execute(&off).await.unwrap();
    }
}
