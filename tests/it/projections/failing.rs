//! A function that raises, is missing, changes or hangs: what its events wait for, and which of them become dead letters.

use super::bed::{Bed, COUNT};

const ERRORS: &str = "SELECT coalesce(string_agg(error, ' | '), '') FROM lanekeeper.dead";
const HEADS: &str =
    "SELECT count(*) FROM lanekeeper.lane_status WHERE last_error LIKE '%cannot be called%'";

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_the_function_refuses_is_a_dead_letter_and_is_handed_over_again_once_mended()
{
    let refusing = format!(
        "IF event ->> 'seq' = '3' THEN RAISE 'no order %', event ->> 'seq'; END IF; {COUNT}"
    );
    let bed = Bed::bare().await;
    bed.define(&refusing).await;
    bed.apply("retry = { schedule = [\"10ms\"], max_attempts = 2 }")
        .await;
    bed.enqueue(1, 5).await;
    let worker = bed.worker().await;
    bed.until(
        "it is a dead letter",
        "SELECT count(*) FROM lanekeeper.dead",
        1,
    )
    .await;
    bed.drained().await;
    assert!(
        bed.text(ERRORS)
            .await
            .contains("no order 3 (SQLSTATE P0001)")
    );
    assert_eq!(
        bed.count("SELECT attempts::bigint FROM lanekeeper.dead")
            .await,
        2
    );
    let seqs = "SELECT string_agg(seq::text, ',' ORDER BY id) FROM shop.seen";
    assert_eq!(bed.text(seqs).await, "1,2,4,5");

    bed.define(COUNT).await;
    bed.count("SELECT count(*) FROM lanekeeper.requeue_dead_letters(ARRAY[1])")
        .await;
    let resolved = "SELECT count(*) FROM lanekeeper.dead WHERE resolution = 'requeued'";
    bed.until("it is handed over", resolved, 1).await;
    assert_eq!(bed.text(seqs).await, "1,2,4,5,3");
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.outcome").await,
        0
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_function_is_missing_or_another_events_wait_and_no_attempt_is_counted() {
    let bed = Bed::bare().await;
    bed.define(COUNT).await;
    // With the first attempt that is counted there would be dead letters.
    bed.apply("retry = { max_attempts = 1 }").await;
    let worker = bed.worker().await;
    bed.enqueue(2, 2).await;
    bed.drained().await;
    let changes = [
        "DROP FUNCTION shop.count_order(jsonb)",
        "ALTER FUNCTION shop.count_order(jsonb) RENAME TO another;
         CREATE FUNCTION shop.count_order(event jsonb, more int) RETURNS void LANGUAGE sql AS 'SELECT'",
        "REVOKE EXECUTE ON FUNCTION shop.count_order(jsonb) FROM PUBLIC",
    ];
    for change in changes {
        bed.client.batch_execute(change).await.unwrap();
        bed.enqueue(2, 2).await;
        bed.until("their lanes say why", HEADS, 2).await;
        let attempts = "SELECT max(attempts)::bigint FROM lanekeeper.lane_status";
        assert_eq!(bed.count(attempts).await, 0);
        bed.define(COUNT).await;
        let grant = "GRANT EXECUTE ON FUNCTION shop.count_order(jsonb) TO PUBLIC";
        bed.client.batch_execute(grant).await.unwrap();
        bed.drained().await;
    }
    bed.assert_exact(2, 8).await;
    assert_eq!(bed.text(ERRORS).await, "");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_hangs_is_ended_after_its_time_and_others_are_fed() {
    let hanging =
        format!("IF event ->> 'session' = 's1' THEN PERFORM pg_sleep(3600); END IF; {COUNT}");
    let bed = Bed::bare().await;
    bed.define(&hanging).await;
    bed.apply("timeout = \"300ms\"\nretry = { schedule = [\"10ms\"], max_attempts = 1 }")
        .await;
    bed.enqueue(3, 1).await;
    let worker = bed.worker().await;
    bed.drained().await;
    assert!(
        bed.text(ERRORS).await.contains("did not end within 300ms"),
        "{}",
        bed.text(ERRORS).await
    );
    assert_eq!(bed.count("SELECT count(*) FROM shop.seen").await, 2);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_traps_its_cancellation_is_ended_at_the_server() {
    let clinging = "LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP;";
    let bed = Bed::bare().await;
    bed.define(clinging).await;
    bed.apply("timeout = \"100ms\"\nretry = { schedule = [\"10ms\"], max_attempts = 1 }")
        .await;
    bed.enqueue(1, 1).await;
    let worker = bed.worker().await;
    bed.until(
        "it is a dead letter",
        "SELECT count(*) FROM lanekeeper.dead",
        1,
    )
    .await;
    assert!(bed.text(ERRORS).await.contains("nor when it was cancelled"));
    let clinging = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'lanekeeper projection' AND wait_event = 'PgSleep'";
    bed.until("its backend is gone", clinging, 0).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_the_roles_connection_says_so_and_delivers_the_rest() {
    let bed = Bed::new(COUNT).await;
    bed.enqueue(1, 1).await;
    let worker = bed.worker_with(&[("SHOP_URL", bed.db.url())]).await;
    let told = "SELECT count(*) FROM lanekeeper.lane_status WHERE last_error LIKE '%logs in as%'";
    bed.until("the lane says who logs in", told, 1).await;
    worker.stop().await;
    let worker = bed.worker_with(&[("SHOP_URL", "nonsense")]).await;
    let refused = "SELECT count(*) FROM lanekeeper.subscription_report WHERE state = 'refused' AND reason LIKE '%SHOP_URL%'";
    bed.until("the worker refuses it", refused, 1).await;
    worker.stop().await;
    assert_eq!(bed.text(ERRORS).await, "");
}
