//! A day of the log is dropped when no lane needs it, and no seq and no undelivered event is lost with it (I1, I13).

use tokio_postgres::Client;

use crate::engine::bed::{Bed, LIMIT, enqueue};
use crate::support::wait_until;

/// Past the retention of seven days.
pub(super) const OLD: &str = "current_date - 9";

/// Sessions' events so far, as of a day past retention.
pub(super) async fn age(bed: &Bed) {
    bed.client
        .batch_execute(&format!(
            "SELECT lanekeeper.create_event_partition({OLD});
             UPDATE lanekeeper.event SET day = {OLD};
             UPDATE lanekeeper.progress SET cursor_day = {OLD}"
        ))
        .await
        .unwrap();
    bed.days_moved().await;
}

/// Everything is delivered, every lane idle.
pub(super) async fn settle(bed: &Bed) {
    bed.client
        .batch_execute(
            "DELETE FROM lanekeeper.ready;
             UPDATE lanekeeper.progress AS p SET cursor = (
                 SELECT max(e.seq) FROM lanekeeper.event AS e JOIN lanekeeper.lane AS l USING (session_id)
                 WHERE l.lane_id = p.lane_id)",
        )
        .await
        .unwrap();
}

async fn drop_day(client: &Client) -> String {
    client
        .query_one(
            &format!("SELECT lanekeeper.drop_event_partition({OLD})"),
            &[],
        )
        .await
        .unwrap()
        .get(0)
}

async fn is_dropped(bed: &Bed) -> bool {
    drop_day(&bed.client).await == "dropped"
}

#[tokio::test]
async fn a_day_goes_in_two_calls_and_numbers_go_on() {
    let bed = Bed::new().await;
    for _ in 0..2 {
        bed.enqueue("s1", "step").await;
    }
    age(&bed).await;
    settle(&bed).await;
    assert_eq!(drop_day(&bed.client).await, "busy", "the tails are written");
    let tails = "SELECT count(*) FROM lanekeeper.session_tail";
    assert_eq!(bed.count(tails).await, 1);
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    assert!(is_dropped(&bed).await);
    assert_eq!(bed.enqueue("s1", "step").await, 4);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.expiring_day")
            .await,
        0
    );

    // The next time its newest day goes there is one tail still.
    age(&bed).await;
    settle(&bed).await;
    wait_until(LIMIT, "it is dropped", async || is_dropped(&bed).await).await;
    assert_eq!(bed.count(tails).await, 1);
    assert_eq!(bed.enqueue("s1", "step").await, 5);
}

/// It appended before the day had passed, and commits while the drop waits for its lock.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_committed_while_its_day_is_about_to_go_is_kept() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    age(&bed).await;
    settle(&bed).await;
    bed.client
        .batch_execute("ALTER FUNCTION lanekeeper.drop_event_partition SET lock_timeout = '30s'")
        .await
        .unwrap();
    let late = bed.db.connect().await;
    late.batch_execute("BEGIN").await.unwrap();
    enqueue(&late, "s1", "step").await;
    late.batch_execute(&format!(
        "UPDATE lanekeeper.event SET day = {OLD} WHERE seq = 2"
    ))
    .await
    .unwrap();
    let dropping = bed.db.connect().await;
    let dropped = tokio::spawn(async move { drop_day(&dropping).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    wait_until(LIMIT, "the drop waits for its lock", async || {
        bed.count(waits).await == 1
    })
    .await;
    late.batch_execute("COMMIT").await.unwrap();
    assert_eq!(dropped.await.unwrap(), "needed");
    bed.days_moved().await;
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [2]);
    worker.stop().await;
}

/// Without events and without the tail it would begin at 1 again.
#[tokio::test]
async fn a_day_stays_under_a_snapshot_that_misses_what_replaces_it() {
    let bed = Bed::new().await;
    for session in ["silent", "busy"] {
        for _ in 0..2 {
            bed.enqueue(session, "step").await;
        }
    }
    age(&bed).await;
    settle(&bed).await;
    let stale = bed.db.connect().await;
    stale
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    assert_eq!(bed.enqueue("busy", "step").await, 3);
    settle(&bed).await;
    for _ in 0..4 {
        assert_eq!(drop_day(&bed.client).await, "busy");
    }
    assert_eq!(enqueue(&stale, "silent", "step").await, 3);
    stale.batch_execute("SAVEPOINT a").await.unwrap();
    let refused = stale
        .query_one(
            "SELECT seq FROM lanekeeper.enqueue('runs', 'busy', 'step', '{}')",
            &[],
        )
        .await
        .unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "40001");
    stale.batch_execute("ROLLBACK TO a; COMMIT").await.unwrap();
    wait_until(LIMIT, "it is dropped", async || is_dropped(&bed).await).await;
    assert_eq!(bed.enqueue("silent", "step").await, 4);
    assert_eq!(bed.enqueue("busy", "step").await, 4);
}

/// Whether a lane needs the day is decided by what the apply is about to commit.
#[tokio::test]
async fn no_day_goes_while_an_apply_is_under_way() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    age(&bed).await;
    settle(&bed).await;
    let apply = bed.db.connect().await;
    apply
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(lanekeeper.apply_lock())")
        .await
        .unwrap();
    for _ in 0..3 {
        assert_eq!(drop_day(&bed.client).await, "busy");
    }
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.expiring_day")
            .await,
        0
    );
    apply.batch_execute("COMMIT").await.unwrap();
    wait_until(LIMIT, "it is dropped", async || is_dropped(&bed).await).await;
}

#[tokio::test]
async fn a_day_stays_until_subscriptions_from_the_earliest_event_have_their_lanes() {
    let bed = Bed::bare().await;
    bed.enqueue("s1", "step").await;
    age(&bed).await;
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.stream SET lanes_version = lanes_version + 1 WHERE name = 'runs';
             INSERT INTO lanekeeper.subscription
                 (stream_id, name, adapter, start_from, retry_schedule_ms, max_attempts, on_exhausted, coalesce)
             SELECT stream_id, 'out', 'fake', 'earliest', '{50}', 0, 'park', false
             FROM lanekeeper.stream WHERE name = 'runs'",
        )
        .await
        .unwrap();
    assert_eq!(drop_day(&bed.client).await, "needed");
    bed.client
        .batch_execute(
            "SELECT lanekeeper.add_lanes(subscription_id, 0, 10) FROM lanekeeper.subscription",
        )
        .await
        .unwrap();
    assert_eq!(drop_day(&bed.client).await, "needed");
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1]);
    worker.stop().await;
    wait_until(LIMIT, "it is dropped", async || is_dropped(&bed).await).await;
}
