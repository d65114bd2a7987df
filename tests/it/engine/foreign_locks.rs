//! Any user who may connect can take advisory locks: what a stranger can and cannot do with them.

use std::time::Duration;

use lanekeeper_engine::{NotReady, WorkerSettings};
use tokio_postgres::Client;

use super::bed::{Bed, LIMIT};
use crate::command::run;
use crate::statements::role::Role;
use crate::support::wait_until;

/// Every key that a constant and a small number make: 16 bits 'LK', 8 bits of kind, 40 bits of id.
const GUESSED: &str =
    "SELECT count(pg_advisory_lock((19531::bigint << 48) + (kind::bigint << 40) + id))
    FROM generate_series(1, 8) AS kind, generate_series(0, 100) AS id";

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_can_be_guessed_stop_no_append_no_delivery_and_no_new_worker() {
    let bed = Bed::new().await;
    let role = Role::stranger(&bed.db, "stranger").await;
    let stranger = role.connect().await;
    stranger.batch_execute(GUESSED).await.unwrap();
    bed.client
        .batch_execute("SET statement_timeout = '10s'")
        .await
        .unwrap();
    bed.enqueue_bulk(10, 1).await;
    for session in 11..=20 {
        bed.enqueue(&format!("s{session}"), "step").await;
    }
    let worker = bed.worker().await;
    bed.drained().await;
    bed.assert_exact(20, 1);
    let database = [("DATABASE_URL", bed.db.url())];
    let ran = run(&["apply", "-f", "-"], &database, "[stream.sensors]\n").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(worker.probe().is_ready(), Ok(()));
    worker.stop().await;
    drop(stranger);
}

#[tokio::test]
async fn only_the_owner_reads_the_secret_of_the_locks() {
    let bed = Bed::bare().await;
    let role = Role::producer(&bed.db, "producer").await;
    let producer = role.connect().await;
    for attempt in [
        "SELECT secret FROM lanekeeper.lock_secret",
        "SELECT lanekeeper.read_lock_secret()",
        "SELECT lanekeeper.lane_lock(1)",
        "SELECT lanekeeper.append_lock(1, '00000000-0000-0000-0000-000000000000')",
    ] {
        let refused = producer.batch_execute(attempt).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{attempt}");
    }
    // What everybody may read of the catalogue does not have it.
    let secret: String = bed
        .client
        .query_one("SELECT secret::text FROM lanekeeper.lock_secret", &[])
        .await
        .unwrap()
        .get(0);
    let anywhere = format!(
        "SELECT (SELECT count(*) FROM pg_proc WHERE pg_get_functiondef(oid) LIKE '%{secret}%' AND prokind <> 'a')
              + (SELECT count(*) FROM pg_views WHERE definition LIKE '%{secret}%')
              + (SELECT count(*) FROM pg_attrdef WHERE pg_get_expr(adbin, adrelid) LIKE '%{secret}%')
              + (SELECT count(*) FROM pg_stats WHERE tablename = 'lock_secret')"
    );
    let found: i64 = producer.query_one(&anywhere, &[]).await.unwrap().get(0);
    assert_eq!(found, 0);
    assert_eq!(
        bed.count("SELECT count(DISTINCT key) FROM (
                       SELECT lanekeeper.append_lock(i) AS key FROM generate_series(1, 1000) AS i
                       UNION ALL SELECT lanekeeper.lane_lock(i) FROM generate_series(1, 1000) AS i) AS k
                   WHERE key >> 48 = 19531")
            .await,
        2000,
        "each has a key of its own, and all are in our space"
    );
}

/// An append looks for the secret where `migrate` wrote it. A restore, or somebody's UPDATE, may put it elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_takes_its_lock_and_is_delivered_wherever_the_row_of_the_secret_is() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    bed.enqueue("a", "step").await;
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
        AND (classid::bigint << 32 | objid::bigint) = (
            SELECT lanekeeper.append_lock(session_id) FROM lanekeeper.session WHERE name = 'a')";
    for moved in [false, true] {
        if moved {
            bed.client
                .batch_execute("UPDATE lanekeeper.lock_secret SET single = single")
                .await
                .unwrap();
        }
        assert_eq!(
            bed.count("SELECT count(*) FROM lanekeeper.lock_secret WHERE ctid <> '(0,1)'")
                .await,
            i64::from(moved)
        );
        bed.client.batch_execute("BEGIN").await.unwrap();
        bed.enqueue("a", "step").await;
        assert_eq!(bed.count(held).await, 1);
        bed.client.batch_execute("COMMIT").await.unwrap();
        bed.drained().await;
    }
    assert_eq!(bed.accepted()["a"], [1, 2, 3]);
    worker.stop().await;
}

async fn foreign(bed: &Bed) -> Vec<(String, i64, i64, bool)> {
    let rows = bed
        .client
        .query(
            "SELECT role, held, awaited, blocks FROM lanekeeper.foreign_lock",
            &[],
        )
        .await
        .unwrap();
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
        .collect()
}

async fn lock_lane_of(bed: &Bed, stranger: &Client) {
    let lock: String = bed
        .client
        .query_one("SELECT format('SELECT pg_advisory_lock(%s)', lanekeeper.lane_lock(max(lane_id))) FROM lanekeeper.lane", &[])
        .await
        .unwrap()
        .get(0);
    stranger.batch_execute(&lock).await.unwrap();
}

/// `pg_locks` shows the keys that are held to everybody.
#[tokio::test(flavor = "multi_thread")]
async fn who_keeps_a_lanes_lock_is_named_by_doctor_and_status_until_he_lets_it_go() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    let role = Role::stranger(&bed.db, "stranger").await;
    let stranger = role.connect().await;
    lock_lane_of(&bed, &stranger).await;
    assert_eq!(foreign(&bed).await, [(role.name.clone(), 1, 0, false)]);
    let worker = bed.worker().await;
    let url = [("DATABASE_URL", bed.db.url())];
    let doctor = run(&["doctor"], &url, "").await;
    let told = |said: &str| {
        let mut lines = said.lines();
        lines.any(|line| {
            line.contains("locks") && line.contains(&role.name) && line.contains("holds 1")
        })
    };
    assert!(told(&doctor.stdout), "{}", doctor.stdout);
    assert_eq!(doctor.code, Some(1));
    let status = run(&["status"], &url, "").await;
    assert!(told(&status.stderr), "{}", status.stderr);
    assert_eq!(bed.fake.seen().accepted().len(), 0);
    drop(stranger);
    bed.drained().await;
    bed.assert_exact(1, 1);
    assert!(foreign(&bed).await.is_empty());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_in_an_append_and_workers_are_not_called_strangers() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    bed.enqueue("s0", "step").await;
    bed.drained().await;
    let role = Role::producer(&bed.db, "producer").await;
    let producer = role.connect().await;
    producer
        .batch_execute("BEGIN; SELECT lanekeeper.enqueue('runs', 's1', 'step', '{}')")
        .await
        .unwrap();
    let waiting = role.connect().await;
    let waits = tokio::spawn(async move {
        waiting
            .batch_execute("SELECT lanekeeper.enqueue('runs', 's1', 'step', '{}')")
            .await
    });
    let holders = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted
                   OR locktype = 'advisory' AND NOT granted
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    wait_until(LIMIT, "the second producer waits", async || {
        bed.count(holders).await > 0
    })
    .await;
    assert_eq!(foreign(&bed).await, []);
    // With the same role, but not in an append.
    let stranger = role.connect().await;
    lock_lane_of(&bed, &stranger).await;
    assert_eq!(foreign(&bed).await.len(), 1);
    producer.batch_execute("COMMIT").await.unwrap();
    waits.await.unwrap().unwrap();
    drop(stranger);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_liveness_lock_somebody_took_is_not_ready_and_says_who() {
    let bed = Bed::new().await;
    let worker = bed
        .worker_with(WorkerSettings {
            trust: Duration::from_secs(1),
            ..WorkerSettings::default()
        })
        .await;
    wait_until(LIMIT, "it is ready", async || {
        worker.probe().is_ready().is_ok()
    })
    .await;
    let role = Role::stranger(&bed.db, "stranger").await;
    let stranger = role.connect().await;
    // What pg_locks shows.
    let key: i64 = bed
        .client
        .query_one("SELECT lanekeeper.worker_lock($1)", &[&worker.id()])
        .await
        .unwrap()
        .get(0);
    let taken = tokio::spawn(async move {
        stranger
            .batch_execute(&format!("SELECT pg_advisory_lock({key})"))
            .await
            .unwrap();
        stranger
    });
    let awaited = "SELECT count(*) FROM lanekeeper.foreign_lock WHERE awaited = 1 AND NOT blocks";
    wait_until(LIMIT, "the stranger waits for it", async || {
        bed.count(awaited).await == 1
    })
    .await;
    assert_eq!(worker.probe().is_ready(), Ok(()));
    bed.client
        .batch_execute(
            "SELECT pg_terminate_backend(k.pid) FROM pg_locks AS k JOIN lanekeeper.worker AS w
                 ON (k.classid::bigint << 32 | k.objid::bigint) = lanekeeper.worker_lock(w.worker_id)
             WHERE k.locktype = 'advisory' AND k.granted
               AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .await
        .unwrap();
    let stranger = taken.await.unwrap();
    wait_until(LIMIT, "the worker says who has its lock", async || {
        matches!(worker.probe().is_ready(), Err(NotReady::Unlocked(holder)) if holder.contains(&role.name))
    })
    .await;
    drop(stranger);
    wait_until(LIMIT, "it is ready again", async || {
        worker.probe().is_ready().is_ok()
    })
    .await;
    worker.stop().await;
}
