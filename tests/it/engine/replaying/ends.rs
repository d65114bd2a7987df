//! What ends a replay, and what holds the log for it.

use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::replay::{self, Change, Pace};

use super::{FAST, all, at, delivered, ended, find, of, replayed, start};
use crate::engine::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn the_removal_of_its_subscription_ends_it() {
    let bed = delivered(2, 50).await;
    let worker = bed.worker().await;
    let id = start(&bed, &all(), &at(10)).await;
    wait_until(LIMIT, "it is under way", async || {
        find(&bed, id).await.progress.delivered > 0
    })
    .await;
    let remove = "UPDATE lanekeeper.subscription SET removed_at = now(), version = version + 1";
    bed.client.execute(remove, &[]).await.unwrap();
    let done = ended(&bed, id).await;
    assert_eq!(done.state, "removed");
    assert!(
        done.end_reason
            .unwrap()
            .contains("subscription was removed")
    );
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.replay_lane")
            .await,
        0
    );
    let marked = "SELECT count(*) FROM lanekeeper.progress WHERE requeued_after IS NOT NULL";
    assert_eq!(bed.count(marked).await, 0);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_cancelled_while_a_transaction_holds_the_row_of_a_lane_that_waits() {
    let bed = delivered(3, 20).await;
    let worker = bed.worker().await;
    let one_at_a_time = Pace {
        concurrency: 1,
        ..at(10)
    };
    let id = start(&bed, &all(), &one_at_a_time).await;
    let open = bed.db.connect().await;
    open.batch_execute(
        "BEGIN; SELECT FROM lanekeeper.replay_lane WHERE state = 'waiting' FOR UPDATE",
    )
    .await
    .unwrap();
    let cancelled = replay::change(&bed.client, id, Change::Cancel, None).await;
    assert_eq!(cancelled.unwrap(), "cancelled");
    open.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(ended(&bed, id).await.state, "cancelled");
    let left = "SELECT count(*) FROM lanekeeper.replay_lane";
    assert_eq!(bed.count(left).await, 0);
    worker.stop().await;
}

/// The lane would stay parked after its replay has ended, for a head that is not in it any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_event_becomes_a_dead_letter_where_the_subscription_parks() {
    let sub = Sub {
        schedule_ms: vec![1],
        max_attempts: 1,
        on_exhausted: "park",
        ..Sub::default()
    };
    let bed = Bed::with(&sub).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    bed.drained().await;
    let failed = Verdict::Retry {
        error: "down".to_owned(),
        after: None,
    };
    bed.fake.script("s1", 2, [failed]);
    let id = start(&bed, &of("s1"), &FAST).await;
    let done = ended(&bed, id).await;
    assert_eq!((done.progress.delivered, done.progress.exhausted), (2, 1));
    let parked = "SELECT count(*) FROM lanekeeper.progress WHERE parked_at IS NOT NULL";
    assert_eq!(bed.count(parked).await, 0);
    let dead = "SELECT count(*) FROM lanekeeper.dead WHERE seq = 2";
    assert_eq!(bed.count(dead).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_ends_a_sessions_part_and_a_closed_session_can_be_replayed() {
    let bed = delivered(2, 40).await;
    let worker = bed.worker().await;
    let id = start(&bed, &all(), &at(10)).await;
    wait_until(LIMIT, "it is under way", async || {
        replayed(&bed, "s1").len() > 1
    })
    .await;
    let close = "SELECT lanekeeper.close_session('runs', 's1', 'over')";
    bed.client.query_one(close, &[]).await.unwrap();
    let done = ended(&bed, id).await;
    assert_eq!(done.state, "done");
    assert_eq!(done.progress.sessions_done, 1);
    let before = replayed(&bed, "s1").len();
    assert!(before < 40, "it was closed too late");
    assert_eq!(replayed(&bed, "s2").len(), 40);
    // Its lane is at rest, and all of it was settled before.
    bed.drained().await;
    let id = start(&bed, &of("s1"), &FAST).await;
    assert_eq!(ended(&bed, id).await.progress.delivered, 40);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_the_part_of_its_session() {
    let bed = delivered(1, 40).await;
    let worker = bed.worker().await;
    let id = start(&bed, &all(), &at(2)).await;
    wait_until(LIMIT, "it is under way", async || {
        replayed(&bed, "s1").len() > 1
    })
    .await;
    let interrupt = "SELECT seq FROM lanekeeper.interrupt('runs', 's1', 'stop', '{}')";
    bed.client.query_one(interrupt, &[]).await.unwrap();
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"].last(), Some(&41));
    let done = ended(&bed, id).await;
    assert_eq!(
        (done.state.as_str(), done.progress.sessions_done),
        ("done", 0)
    );
    assert!(replayed(&bed, "s1").len() < 40);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_stays_while_a_replay_needs_it() {
    let bed = delivered(1, 3).await;
    let needed = "SELECT lanekeeper.day_is_needed((clock_timestamp() AT TIME ZONE 'UTC')::date)::int::bigint";
    assert_eq!(bed.count(needed).await, 0);
    let id = start(&bed, &of("s1"), &FAST).await;
    assert_eq!(bed.count(needed).await, 1);
    let worker = bed.worker().await;
    ended(&bed, id).await;
    assert_eq!(bed.count(needed).await, 0);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_held_when_it_starts_has_its_turn_behind_the_delivery_under_way() {
    let bed = delivered(1, 20).await;
    let worker = bed.worker().await;
    bed.fake.hold("s1");
    bed.enqueue("s1", "step").await;
    let held = "SELECT count(*) FROM lanekeeper.held_lane";
    wait_until(LIMIT, "it is held", async || bed.count(held).await == 1).await;
    let id = start(&bed, &of("s1"), &FAST).await;
    let now = find(&bed, id).await.progress;
    assert_eq!((now.sessions_active, now.sessions_waiting), (0, 1));
    bed.fake.release("s1");
    ended(&bed, id).await;
    let expected: Vec<i64> = (1..=21).chain(1..=20).collect();
    assert_eq!(bed.accepted()["s1"], expected);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_lost_its_lane_moves_no_replay() {
    let bed = delivered(1, 3).await;
    let worker = bed.worker().await;
    bed.fake.hold("s1");
    let id = start(&bed, &of("s1"), &FAST).await;
    wait_until(LIMIT, "the first is being delivered", async || {
        replayed(&bed, "s1").len() == 1
    })
    .await;
    let settled_elsewhere = "UPDATE lanekeeper.progress SET version = version + 16";
    bed.client.execute(settled_elsewhere, &[]).await.unwrap();
    let woken = "INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
                 SELECT route, 0, now(), lane_id FROM lanekeeper.lane";
    bed.client.execute(woken, &[]).await.unwrap();
    bed.fake.release("s1");
    let done = ended(&bed, id).await;
    assert_eq!(
        (done.progress.sessions_done, done.progress.delivered),
        (1, 3)
    );
    let again = replayed(&bed, "s1");
    assert!(again.len() > 3 && again.ends_with(&[1, 2, 3]), "{again:?}");
    worker.stop().await;
}
