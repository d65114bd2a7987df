//! E9: an interrupt is the next event of its session. What waits before it is superseded, and the delivery that is under way
//! is cancelled on whichever worker it runs; a barrier lets that one end.

use std::time::{Duration, Instant};

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::WorkerSettings;
use lanekeeper_postgres::append::NewEvent;
use lanekeeper_postgres::interrupt::{Interrupt, Interrupted, interrupt};
use tokio_postgres::{Client, IsolationLevel};

use super::bed::{Bed, LIMIT, Sub};
use super::failures::Doomed;
use crate::support::{TestDb, wait_until};

const INTERRUPT: &str = "SELECT seq FROM lanekeeper.interrupt('runs', 's1', 'stop', '1')";
const UNFINISHED: &str = "SELECT count(*) FROM lanekeeper.closing_lane WHERE finished_at IS NULL";
const QUIET: &str = "SET lanekeeper.notify = off";
const BARRIER: Interrupt = Interrupt {
    keep_waiting: false,
    cancel_running: false,
};

async fn interrupted(client: &Client, what: Interrupt) -> Interrupted {
    let event = NewEvent::new("s1", "stop", "1");
    interrupt(client, "runs", &event, what).await.unwrap()
}

async fn refusal(client: &Client, statement: &str) -> String {
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

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_a_retry_and_a_pause_leaves_it_the_first_and_a_parked_lane_stays_parked()
{
    let bed = Bed::with(&Sub {
        schedule_ms: vec![3_600_000],
        ..Sub::default()
    })
    .await;
    let later = Verdict::Retry {
        error: "later".to_owned(),
        after: None,
    };
    bed.fake.script("s1", 1, [later]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    let blocked = "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'blocked'";
    wait_until(LIMIT, "it waits for its retry", async || {
        bed.count(blocked).await == 1
    })
    .await;
    assert_eq!(interrupted(&bed.client, BARRIER).await.superseded, 3);
    wait_until(LIMIT, "the interrupt is delivered", async || {
        bed.accepted().get("s1").is_some_and(|seqs| seqs == &[4])
    })
    .await;

    let pause = "SELECT lanekeeper.pause_subscription('out', 'a test')";
    bed.client.query(pause, &[]).await.unwrap();
    wait_until(LIMIT, "the worker knows", async || worker.routes() == 0).await;
    bed.enqueue_bulk(1, 2).await;
    let seq = interrupted(&bed.client, Interrupt::default()).await.seq;
    assert_eq!(seq, 7);
    bed.client
        .query("SELECT lanekeeper.pause_subscription('out', NULL)", &[])
        .await
        .unwrap();
    wait_until(
        LIMIT,
        "after the pause the interrupt is the first",
        async || bed.accepted()["s1"] == [4, 7],
    )
    .await;

    let lane = bed.count("SELECT lane_id FROM lanekeeper.lane").await;
    let change = "SELECT lanekeeper.change_lane($1, $2, 'a test')";
    bed.client.query(change, &[&lane, &"park"]).await.unwrap();
    bed.enqueue_bulk(1, 2).await;
    let done = interrupted(&bed.client, Interrupt::default()).await;
    assert_eq!((done.seq, done.superseded), (10, 2));
    let parked = "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'parked'";
    assert_eq!(bed.count(parked).await, 1, "an operator parked it");
    assert_eq!(states(&bed, "out").await[9], "parked");
    bed.client.query(change, &[&lane, &"unpark"]).await.unwrap();
    wait_until(LIMIT, "the interrupt is delivered", async || {
        bed.accepted()["s1"] == [4, 7, 10]
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn a_closed_session_takes_no_interrupt_and_the_second_of_two_supersedes_the_first() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 2).await;
    let (one, other) = (bed.db.connect().await, bed.db.connect().await);
    let (one, other) = tokio::join!(
        interrupted(&one, Interrupt::default()),
        interrupted(&other, BARRIER)
    );
    let mut done = [one, other];
    done.sort_by_key(|one| one.seq);
    assert_eq!(done.map(|one| (one.seq, one.superseded)), [(3, 2), (4, 1)]);
    assert_eq!(bed.undelivered().await, 1);
    let close = "SELECT lanekeeper.close_session('runs', 's1', NULL)";
    bed.client.query(close, &[]).await.unwrap();
    assert_eq!(refusal(&bed.client, INTERRUPT).await, "LK002");
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.event").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn sent_messages_that_are_not_acknowledged_are_superseded_and_their_window_is_free() {
    let mut bed = Bed::new().await;
    bed.fake = Fake::answering(|_| Verdict::Sent);
    let required = "UPDATE lanekeeper.subscription SET ack = 'required', ack_timeout_ms = 3600000, ack_window = 2";
    bed.client.batch_execute(required).await.unwrap();
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    let waits = "SELECT count(*) FROM lanekeeper.progress WHERE sent = 2";
    wait_until(LIMIT, "two were sent", async || {
        bed.count(waits).await == 1
            && bed.count("SELECT count(*) FROM lanekeeper.held_lane").await == 0
    })
    .await;
    // Both are there when the lane is claimed.
    let mut client = bed.db.connect().await;
    let both = client.transaction().await.unwrap();
    both.query(INTERRUPT, &[]).await.unwrap();
    both.query("SELECT lanekeeper.enqueue('runs', 's1', 'step', '1')", &[])
        .await
        .unwrap();
    both.commit().await.unwrap();
    wait_until(LIMIT, "the interrupt and the next are sent", async || {
        begun(&bed) == [1, 2, 4, 5]
    })
    .await;
    let ack = "SELECT count(*) FROM lanekeeper.event AS e
               WHERE seq = $1 AND lanekeeper.ack(e.message_id) = $2";
    for (seq, result) in [
        (1_i64, "unknown"),
        (2, "unknown"),
        (4, "acked"),
        (5, "acked"),
    ] {
        let row = bed.client.query_one(ack, &[&seq, &result]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 1, "{seq} is {result}");
    }
    bed.drained().await;
    worker.stop().await;
    let expected = [
        "superseded",
        "superseded",
        "superseded",
        "delivered",
        "delivered",
    ];
    assert_eq!(states(&bed, "out").await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn requeued_dead_letters_that_come_before_an_interrupt_wait_for_an_operator_again() {
    let bed = Bed::new().await;
    let no = Verdict::Rejected {
        error: "no".to_owned(),
    };
    bed.fake.script("s1", 1, [no]);
    let worker = bed.worker().await;
    bed.enqueue("s1", "step").await;
    bed.drained().await;
    worker.stop().await;
    let dead = "SELECT dead_id FROM lanekeeper.dead_letter WHERE resolution IS NULL";
    let dead = bed.count(dead).await;
    let requeue = "SELECT result FROM lanekeeper.requeue_dead_letters(ARRAY[$1::bigint])";
    bed.client.query(requeue, &[&dead]).await.unwrap();
    interrupted(&bed.client, Interrupt::default()).await;
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [2]);
    let waits =
        "SELECT count(*) FROM lanekeeper.dead WHERE resolution IS NULL AND after_seq IS NULL";
    assert_eq!(bed.count(waits).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_hears_of_an_interrupt() {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "feed",
        stream: "lifecycle",
        ..Sub::default()
    })
    .await;
    bed.enqueue_bulk(1, 2).await;
    interrupted(&bed.client, Interrupt::default()).await;
    let told = "SELECT (payload::jsonb ->> 'superseded')::bigint FROM lanekeeper.event
                WHERE event_type = 'session_interrupted'";
    assert_eq!(bed.count(told).await, 2);
}

/// What an interrupt reads and writes, as the server counts it.
async fn work(db: &TestDb, session: &str) -> (i64, i64) {
    let client = db.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    let interrupt = "SELECT lanekeeper.interrupt('runs', $1, 'stop', '1')";
    client.query(interrupt, &[&session]).await.unwrap();
    let counted = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint,
                          coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint
                   FROM pg_stat_xact_user_tables WHERE schemaname = 'lanekeeper'";
    let row = client.query_one(counted, &[]).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn an_interrupt_reads_and_writes_the_same_rows_whatever_waits() {
    let bed = Bed::new().await;
    for name in ["step", "other"] {
        bed.subscribe(&Sub {
            name,
            events: Some(vec![name]),
            ..Sub::default()
        })
        .await;
    }
    for (session, count) in [("few", 100_i64), ("many", 20_000)] {
        bed.client
            .execute(
                "SELECT count(*) FROM lanekeeper.enqueue_many('runs', (
                     SELECT jsonb_agg(jsonb_build_object('session', $1::text, 'event_type', 'step', 'payload', n))
                     FROM generate_series(1, $2::bigint) AS n))",
                &[&session, &count],
            )
            .await
            .unwrap();
    }
    let few = work(&bed.db, "few").await;
    let many = work(&bed.db, "many").await;
    println!("rows read and written: {few:?}, then {many:?}");
    assert!(many.1 <= few.1 + 2, "{many:?} after {few:?}");
    assert!(many.0 <= few.0 + 10, "{many:?} after {few:?}");
    let outcomes = "SELECT count(*) FROM lanekeeper.outcome WHERE to_seq = 20000";
    assert_eq!(bed.count(outcomes).await, 3);
}

/// Producers, interrupts, barriers and workers at once.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_interrupts_meanwhile_each_event_is_delivered_or_superseded_and_in_order() {
    let bed = Bed::new().await;
    let workers = [bed.worker().await, bed.worker().await];
    let producing = {
        let client = bed.db.connect().await;
        tokio::spawn(async move {
            for _ in 0..400 {
                super::bed::enqueue(&client, "s1", "step").await;
            }
        })
    };
    let interrupting = {
        let client = bed.db.connect().await;
        tokio::spawn(async move {
            for nth in 0..60 {
                let what = [Interrupt::default(), BARRIER][nth % 2];
                interrupted(&client, what).await;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        })
    };
    producing.await.unwrap();
    interrupting.await.unwrap();
    bed.drained().await;
    wait_until(LIMIT, "interrupts are carried out", async || {
        bed.count(UNFINISHED).await == 0
    })
    .await;
    for worker in workers {
        worker.stop().await;
    }
    let accepted = bed.accepted().remove("s1").unwrap_or_default();
    let mut first = Vec::new();
    for seq in &accepted {
        if !first.contains(seq) {
            first.push(*seq);
        }
    }
    assert!(first.is_sorted(), "in order: {accepted:?}");
    for (seq, state) in (1..).zip(states(&bed, "out").await) {
        match state.as_str() {
            "delivered" => assert!(accepted.contains(&seq), "{seq} was not delivered"),
            // It may have arrived: its delivery was under way.
            "superseded" => {}
            other => panic!("{seq} is {other}"),
        }
    }
}
