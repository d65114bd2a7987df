//! I9: plans that were made on an empty schema, with no statistics to come.

use std::time::Instant;

use super::bed::Bed;

const TABLES: &str = "SELECT c.oid::regclass::text FROM pg_class AS c
    WHERE c.relnamespace = 'lanekeeper'::regnamespace AND c.relkind = 'r'";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_started_on_an_empty_schema_drains_it_when_it_has_filled() {
    let bed = Bed::new().await;
    for table in bed.client.query(TABLES, &[]).await.unwrap() {
        let table: &str = table.get(0);
        let off = format!("ALTER TABLE {table} SET (autovacuum_enabled = false)");
        bed.client.batch_execute(&off).await.unwrap();
    }
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
