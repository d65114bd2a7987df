//! The rows of workers that have ended.

use crate::engine::bed::Bed;

/// A plan may evaluate a lock function before the other conditions: the liveness lock of a worker that
/// stays was taken, and its survivors counted it as dead.
#[tokio::test]
async fn removing_workers_rows_locks_no_worker_that_stays() {
    let bed = Bed::bare().await;
    let holder = bed.db.connect().await;
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.worker (worker_id, version, beat_at, started_at, host, pid, release, state)
             SELECT w, 1, clock_timestamp() - a, clock_timestamp(), 'h', 1, '0', 'running'
             FROM (VALUES (101, interval '1 minute'), (102, interval '1 minute'), (103, interval '1 s'),
                          (104, interval '1 minute')) AS v (w, a);
             INSERT INTO lanekeeper.lane_connection (worker_id, backend_pid, backend_start, epoch)
             VALUES (102, 1, clock_timestamp(), gen_random_uuid())",
        )
        .await
        .unwrap();
    // Its control connection is gone and its lane connection is not; another worker lives.
    holder
        .batch_execute(
            "SELECT pg_advisory_lock(lanekeeper.connection_lock(connection_id)) FROM lanekeeper.lane_connection;
             SELECT pg_advisory_lock(lanekeeper.worker_lock(104))",
        )
        .await
        .unwrap();
    bed.client
        .batch_execute("BEGIN; SELECT * FROM lanekeeper.take_over(100, 30000)")
        .await
        .unwrap();
    let locked = "SELECT coalesce(sum(w), 0)::bigint FROM generate_series(101, 104) AS w
                  WHERE EXISTS (
                      SELECT FROM pg_locks AS k WHERE k.locktype = 'advisory' AND k.pid = pg_backend_pid()
                        AND (k.classid::bigint << 32 | k.objid::bigint) = lanekeeper.worker_lock(w))";
    assert_eq!(bed.count(locked).await, 101);
    bed.client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        bed.count("SELECT sum(worker_id)::bigint FROM lanekeeper.worker")
            .await,
        102 + 103 + 104
    );
}
