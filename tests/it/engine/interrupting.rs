//! E9: an interrupt is the next event of its session. What waits before it is superseded, and the delivery that is under way
//! is cancelled on whichever worker it runs; a barrier lets that one end.

use std::time::{Duration, Instant};

use lanekeeper_engine::WorkerSettings;
use lanekeeper_postgres::append::NewEvent;
use lanekeeper_postgres::interrupt::{Interrupt, Interrupted, interrupt};
use tokio_postgres::{Client, IsolationLevel};

use super::bed::{Bed, LIMIT, Sub};
use super::failures::Doomed;
use crate::support::wait_until;

pub(super) const INTERRUPT: &str =
    "SELECT seq FROM lanekeeper.interrupt('runs', 's1', 'stop', '1')";
pub(super) const UNFINISHED: &str =
    "SELECT count(*) FROM lanekeeper.closing_lane WHERE finished_at IS NULL";
const QUIET: &str = "SET lanekeeper.notify = off";
pub(super) const BARRIER: Interrupt = Interrupt {
    keep_waiting: false,
    cancel_running: false,
};

pub(super) async fn interrupted(client: &Client, what: Interrupt) -> Interrupted {
    let event = NewEvent::new("s1", "stop", "1");
    interrupt(client, "runs", &event, what).await.unwrap()
}

pub(super) async fn refusal(client: &Client, statement: &str) -> String {
    let error = client.query(statement, &[]).await.unwrap_err();
    let code = error.code().expect("the server refused it");
    code.code().to_owned()
}

/// The states of the session's events for one subscription, in the order of their seqs.
pub(super) async fn states(bed: &Bed, subscription: &str) -> Vec<String> {
    let rows = bed
        .client
        .query(
            "SELECT state FROM lanekeeper.message
             WHERE session = 's1' AND stream = 'runs' AND subscription = $1 ORDER BY seq",
            &[&subscription],
        )
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The seqs whose deliveries began, in their order.
pub(super) fn begun(bed: &Bed) -> Vec<i64> {
    let deliveries = bed.fake.seen().deliveries;
    deliveries.iter().map(|one| one.event.seq).collect()
}

pub(super) async fn running(bed: &Bed, seq: i64) {
    let is_running = |seen: &lanekeeper_adapters::fake::Seen| {
        let mut of_s1 = seen.deliveries.iter().rev();
        let last = of_s1.find(|one| &*one.event.session == "s1");
        seen.running == 1 && last.is_some_and(|one| one.event.seq == seq)
    };
    tokio::time::timeout(LIMIT, bed.fake.wait_until(is_running))
        .await
        .unwrap_or_else(|_| panic!("{seq} is under way: {:?}", begun(bed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_before_an_interrupt_is_superseded_in_every_lane_and_the_interrupt_is_delivered()
{
    let bed = Bed::new().await;
    for (name, events) in [("steps", "step"), ("other", "nothing")] {
        let events = Some(vec![events]);
        bed.subscribe(&Sub {
            name,
            events,
            ..Sub::default()
        })
        .await;
    }
    bed.enqueue_bulk(1, 3).await;
    let done = interrupted(&bed.client, Interrupt::default()).await;
    assert_eq!((done.seq, done.duplicate), (4, false));
    assert_eq!((done.superseded, done.appended_again), (3, 0));
    let rows = "SELECT count(*) FROM lanekeeper.outcome
                WHERE kind = 'superseded' AND seq = 1 AND to_seq = 3";
    assert_eq!(
        bed.count(rows).await,
        2,
        "a row for each lane that had some"
    );
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [4], "by the one that wants it");
    let superseded = ["superseded", "superseded", "superseded"];
    assert_eq!(states(&bed, "out").await[..3], superseded);
    assert_eq!(states(&bed, "out").await[3], "delivered");
    assert_eq!(states(&bed, "steps").await[..3], superseded);
    assert_eq!(states(&bed, "steps").await[3], "filtered");
    assert_eq!(states(&bed, "other").await, ["filtered"; 4]);
    let missing = "SELECT count(*) FROM lanekeeper.enqueue('runs', 's1', 'step', '1')";
    assert_eq!(bed.count(missing).await, 1, "the session goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_cancels_the_delivery_that_is_under_way_on_whichever_worker_runs_it() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let workers = [bed.worker().await, bed.worker().await];
    bed.enqueue_bulk(2, 3).await;
    running(&bed, 1).await;
    let asked = Instant::now();
    let done = interrupted(&bed.client, Interrupt::default()).await;
    assert_eq!((done.seq, done.superseded), (4, 3));
    // The same session's: the interrupt.
    running(&bed, 4).await;
    println!("the interrupt is under way after {:?}", asked.elapsed());
    bed.fake.release("s1");
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [4]);
    assert_eq!(bed.accepted()["s2"], [1, 2, 3]);
    let of_s1 = bed.fake.seen().deliveries;
    let of_s1 = of_s1.iter().filter(|one| &*one.event.session == "s1");
    assert_eq!(of_s1.count(), 2, "the first and the interrupt, once each");
    assert_eq!(states(&bed, "out").await[0], "superseded");
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_notification_a_delivery_is_cancelled_at_the_poll_floor() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let workers = [bed.worker().await, bed.worker().await];
    bed.enqueue_bulk(1, 3).await;
    running(&bed, 1).await;
    bed.client.batch_execute(QUIET).await.unwrap();
    interrupted(&bed.client, Interrupt::default()).await;
    running(&bed, 4).await;
    bed.fake.release("s1");
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [4]);
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_barrier_lets_the_delivery_end_that_is_under_way_and_is_the_next_event() {
    for quiet in [false, true] {
        let bed = Bed::new().await;
        bed.fake.hold("s1");
        let workers = [bed.worker().await, bed.worker().await];
        bed.enqueue_bulk(1, 3).await;
        running(&bed, 1).await;
        if quiet {
            bed.client.batch_execute(QUIET).await.unwrap();
        }
        let done = interrupted(&bed.client, BARRIER).await;
        assert_eq!(done.seq, 4);
        // Both workers know of it when the delivery ends.
        tokio::time::sleep(if quiet {
            WorkerSettings::default().poll_floor * 2
        } else {
            Duration::from_millis(200)
        })
        .await;
        assert_eq!(begun(&bed), [1], "it was not cut short");
        assert_eq!(bed.fake.seen().running, 1);
        bed.fake.release("s1");
        bed.drained().await;
        assert_eq!(bed.accepted()["s1"], [1, 4], "quiet: {quiet}");
        let expected = ["delivered", "superseded", "superseded", "delivered"];
        assert_eq!(states(&bed, "out").await, expected);
        assert_eq!(bed.count(UNFINISHED).await, 0);
        for worker in workers {
            worker.stop().await;
        }
    }
}

/// As after a restart: the holder is gone with its process, and nobody lets go of anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_before_the_interrupt_is_carried_out_leaves_it_to_the_next() {
    for what in [Interrupt::default(), BARRIER] {
        let bed = Bed::new().await;
        let doomed = Doomed::start(&bed).await;
        bed.fake.hold("s1");
        bed.enqueue_bulk(1, 3).await;
        bed.fake.wait_until(|seen| seen.running == 1).await;
        bed.client.batch_execute(QUIET).await.unwrap();
        interrupted(&bed.client, what).await;
        doomed.kill(&bed).await;
        bed.fake.release("s1");
        let worker = bed.worker().await;
        wait_until(LIMIT, "the interrupt arrives", async || {
            bed.accepted()
                .get("s1")
                .is_some_and(|seqs| seqs.contains(&4))
        })
        .await;
        bed.drained().await;
        worker.stop().await;
        let accepted = bed.accepted().remove("s1").unwrap();
        assert!(accepted.is_sorted(), "{accepted:?}");
        assert_eq!(bed.count(UNFINISHED).await, 0);
        for (seq, state) in (1..).zip(states(&bed, "out").await) {
            let expected = if state == "delivered" { 1 } else { 0 };
            let times = accepted.iter().filter(|one| **one == seq).count();
            assert!(times >= expected, "{seq} is {state}: {accepted:?}");
            assert!(
                ["delivered", "superseded"].contains(&&*state),
                "{seq} is {state}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waited_is_appended_again_behind_the_interrupt_in_its_order_and_says_what_it_was() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    running(&bed, 1).await;
    let what = Interrupt {
        keep_waiting: true,
        ..Interrupt::default()
    };
    let done = interrupted(&bed.client, what).await;
    assert_eq!((done.seq, done.superseded, done.appended_again), (4, 3, 2));
    running(&bed, 4).await;
    // A second one: what was appended again still says what it was at first.
    let done = interrupted(&bed.client, what).await;
    assert_eq!((done.seq, done.superseded, done.appended_again), (7, 3, 2));
    running(&bed, 7).await;
    bed.fake.release("s1");
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [7, 8, 9]);
    let again = "SELECT count(*) FROM lanekeeper.event AS e JOIN lanekeeper.event AS f
                     ON e.headers ->> 'lanekeeper-superseded' = f.message_id::text AND e.payload = f.payload
                 WHERE (f.seq, e.seq) IN ((2, 8), (3, 9)) AND e.event_type = 'step'";
    assert_eq!(bed.count(again).await, 2);
}

#[tokio::test]
async fn no_more_than_a_thousand_events_are_appended_again() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 1_001).await;
    let keep = "SELECT appended_again FROM lanekeeper.interrupt('runs', 's1', 'stop', '1', keep_waiting => true)";
    assert_eq!(refusal(&bed.client, keep).await, "LK006");
    let events = "SELECT count(*) FROM lanekeeper.event";
    assert_eq!(bed.count(events).await, 1_001, "nothing was changed");
    assert_eq!(bed.undelivered().await, 1_001);
    interrupted(&bed.client, Interrupt::default()).await;
    bed.enqueue_bulk(1, 999).await;
    assert_eq!(bed.count(keep).await, 1_000);
    assert_eq!(bed.undelivered().await, 1_001);
    let null = "SELECT lanekeeper.interrupt('runs', 's1', 'stop', '1', cancel_running => NULL)";
    assert_eq!(refusal(&bed.client, null).await, "LK006");
}

#[tokio::test]
async fn a_repeated_interrupt_does_nothing_twice() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 2).await;
    let event = NewEvent {
        dedupe_key: Some("stop 1"),
        ..NewEvent::new("s1", "stop", "1")
    };
    let once = interrupt(&bed.client, "runs", &event, Interrupt::default()).await;
    assert_eq!(once.unwrap().superseded, 2);
    bed.enqueue("s1", "step").await;
    let again = interrupt(&bed.client, "runs", &event, Interrupt::default()).await;
    let again = again.unwrap();
    assert_eq!((again.seq, again.duplicate, again.superseded), (3, true, 0));
    assert_eq!(
        bed.undelivered().await,
        2,
        "the interrupt and what came after it"
    );
}

#[tokio::test]
async fn an_interrupt_waits_for_an_append_that_is_under_way_and_supersedes_it() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    let mut producer = bed.db.connect().await;
    let open = producer.transaction().await.unwrap();
    let append = "SELECT seq FROM lanekeeper.enqueue('runs', 's1', 'step', '1')";
    open.query(append, &[]).await.unwrap();
    assert_eq!(refusal(&bed.client, INTERRUPT).await, "LK007", "after 5 s");
    let client = bed.db.connect().await;
    let interrupting = tokio::spawn(async move { interrupted(&client, BARRIER).await });
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    wait_until(LIMIT, "it waits", async || bed.count(waiting).await == 1).await;
    open.commit().await.unwrap();
    let done = interrupting.await.unwrap();
    assert_eq!((done.seq, done.superseded), (3, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_that_is_rolled_back_changes_nothing() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue_bulk(2, 2).await;
    running(&bed, 1).await;
    for statement in [
        INTERRUPT,
        "SELECT seq FROM lanekeeper.interrupt('runs', 's2', 'stop', '1', keep_waiting => true)",
    ] {
        let mut client = bed.db.connect().await;
        let open = client.transaction().await.unwrap();
        open.query(statement, &[]).await.unwrap();
        open.rollback().await.unwrap();
    }
    bed.fake.release("s1");
    bed.drained().await;
    worker.stop().await;
    bed.assert_exact(2, 2);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.outcome").await,
        0
    );
}

#[tokio::test]
async fn in_the_stricter_isolation_levels_an_interrupt_with_an_old_snapshot_is_refused() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let mut client = bed.db.connect().await;
        let open = client.build_transaction().isolation_level(level);
        let open = open.start().await.unwrap();
        open.query("SELECT count(*) FROM lanekeeper.event", &[])
            .await
            .unwrap();
        bed.enqueue("s1", "step").await;
        let error = open.query(INTERRUPT, &[]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "40001", "{level:?}");
        drop(open);
        let fresh = client.build_transaction().isolation_level(level);
        let fresh = fresh.start().await.unwrap();
        fresh.query(INTERRUPT, &[]).await.unwrap();
        fresh.commit().await.unwrap();
        assert_eq!(bed.undelivered().await, 1, "{level:?}");
    }
}

/// An open transaction that interrupts must not hold up the settlements of the lanes that are held.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_settles_while_the_interrupt_of_its_session_is_not_committed() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    running(&bed, 1).await;
    let mut client = bed.db.connect().await;
    let open = client.transaction().await.unwrap();
    open.query(INTERRUPT, &[]).await.unwrap();
    bed.fake.release("s1");
    let settled = "SELECT max(cursor) FROM lanekeeper.progress";
    wait_until(LIMIT, "it is settled", async || {
        bed.count(settled).await == 3
    })
    .await;
    open.commit().await.unwrap();
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3, 4], "the interrupt once");
    assert_eq!(states(&bed, "out").await, ["delivered"; 4]);
}

/// Maintenance of other workers must not hide from a lane's holder that a barrier is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_barrier_is_seen_by_a_lane_while_another_process_finishes_others() {
    let bed = Bed::new().await;
    let other = bed.db.connect().await;
    let worker = bed.worker().await;
    bed.fake.hold("s1");
    bed.enqueue_bulk(1, 3).await;
    running(&bed, 1).await;
    other
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(lanekeeper.maintenance_lock(6))")
        .await
        .unwrap();
    interrupted(&bed.client, BARRIER).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    bed.fake.release("s1");
    wait_until(LIMIT, "the barrier is delivered", async || {
        bed.accepted()
            .get("s1")
            .is_some_and(|seqs| seqs.contains(&4))
    })
    .await;
    other.batch_execute("COMMIT").await.unwrap();
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [1, 4]);
}
