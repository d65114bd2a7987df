//! E6, A2: a closed session takes no more events, its remaining events expire with one outcome for each lane, and a
//! running delivery is cancelled on whichever worker it runs.

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::WorkerSettings;
use lanekeeper_postgres::closing;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, IsolationLevel};

use super::bed::{Bed, LIMIT, Sub, enqueue};
use crate::support::{TestDb, wait_until};

const CLOSE: &str = "SELECT lanekeeper.close_session('runs', 's1', 'it has ended')";
const APPEND: &str = "SELECT seq FROM lanekeeper.enqueue('runs', 's1', 'step', '1')";

async fn close(client: &Client, drain: bool) -> i64 {
    closing::close_session(client, "runs", "s1", Some("it has ended"), drain)
        .await
        .unwrap()
}

async fn refusal(client: &Client, statement: &str) -> String {
    let error = client.query(statement, &[]).await.unwrap_err();
    error
        .code()
        .expect("the server refused it")
        .code()
        .to_owned()
}

/// (seq, state) of the session's events for one subscription.
async fn states(bed: &Bed, subscription: &str) -> Vec<(i64, String)> {
    let rows = bed
        .client
        .query(
            "SELECT seq, state FROM lanekeeper.message
             WHERE session = 's1' AND stream = 'runs' AND subscription = $1 ORDER BY seq",
            &[&subscription],
        )
        .await
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

fn all(count: i64, state: &str) -> Vec<(i64, String)> {
    (1..=count).map(|seq| (seq, state.to_owned())).collect()
}

/// Waits until this many backends wait for an advisory lock.
pub(super) async fn waiting(bed: &Bed, count: i64) {
    let waiting = "SELECT count(*) FROM pg_locks
                   WHERE locktype = 'advisory' AND NOT granted
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    wait_until(LIMIT, "it waits for the lock", async || {
        bed.count(waiting).await == count
    })
    .await;
}

#[tokio::test]
async fn a_closed_session_takes_no_event_and_what_is_left_of_it_expires() {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "filtered",
        events: Some(vec!["other"]),
        ..Sub::default()
    })
    .await;
    bed.enqueue_bulk(2, 3).await;
    bed.client
        .query(
            "SELECT lanekeeper.enqueue('runs', 's1', 'step', '1', dedupe_key => 'k')",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(close(&bed.client, false).await, 4);
    assert_eq!(states(&bed, "out").await, all(4, "expired"));
    assert_eq!(states(&bed, "filtered").await, all(4, "filtered"));
    let outcomes = "SELECT count(*) FROM lanekeeper.outcome WHERE error = 'it has ended' AND seq = 1 AND to_seq = 4";
    assert_eq!(
        bed.count(outcomes).await,
        1,
        "one row for all of them, none for the other lane"
    );

    let bulk = "SELECT lanekeeper.enqueue_many('runs',
        '[{\"session\":\"s0\",\"event_type\":\"a\",\"payload\":1}, {\"session\":\"s1\",\"event_type\":\"a\",\"payload\":1}]')";
    let named = "SELECT lanekeeper.enqueue('runs', 's1', 'step', '1', dedupe_key => 'new')";
    for append in [APPEND, bulk, named] {
        assert_eq!(refusal(&bed.client, append).await, "LK002", "{append}");
    }
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.event").await, 7);
    let again = "SELECT seq FROM lanekeeper.enqueue('runs', 's1', 'step', '1', dedupe_key => 'k')";
    assert_eq!(
        bed.count(again).await,
        4,
        "a repeated call hears what came of the first"
    );

    let worker = bed.worker().await;
    bed.enqueue("s2", "step").await;
    wait_until(LIMIT, "nothing is left to do", async || {
        bed.count("SELECT count(*) FROM lanekeeper.ready").await == 0
    })
    .await;
    worker.stop().await;
    assert_eq!(bed.accepted().get("s1"), None);
    assert_eq!(bed.accepted()["s2"], [1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reopened_session_goes_on_behind_what_has_expired() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 2).await;
    close(&bed.client, false).await;
    // A subscription that is added while it is closed starts behind it.
    bed.subscribe(&Sub {
        name: "later",
        ..Sub::default()
    })
    .await;
    let reopen = async || {
        closing::reopen_session(&bed.client, "runs", "s1")
            .await
            .unwrap()
    };
    assert!(reopen().await);
    assert!(!reopen().await);
    let worker = bed.worker().await;
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [3, 3], "by both subscriptions");
    let expected = ["expired", "expired", "delivered"];
    let states = states(&bed, "out").await;
    assert_eq!(
        states.iter().map(|(_, state)| &**state).collect::<Vec<_>>(),
        expected
    );
    let operations = "SELECT count(*) FROM lanekeeper.operation WHERE action IN ('close', 'reopen') AND session_id > 0";
    assert_eq!(bed.count(operations).await, 2);
}

/// The producer read the session's row before it waited for the lock.
#[tokio::test]
async fn an_append_that_waited_for_a_close_is_refused_in_every_isolation_level() {
    for level in [
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ] {
        for append in [
            APPEND,
            "SELECT lanekeeper.enqueue_many('runs', '[{\"session\":\"s1\",\"event_type\":\"a\",\"payload\":1}]')",
        ] {
            let bed = Bed::new().await;
            bed.enqueue("s1", "step").await;
            let mut closer = bed.db.connect().await;
            let closing = closer.transaction().await.unwrap();
            closing.query(CLOSE, &[]).await.unwrap();
            let mut producer = bed.db.connect().await;
            let appending = tokio::spawn(async move {
                let transaction = producer.build_transaction().isolation_level(level);
                let transaction = transaction.start().await.unwrap();
                let appended = transaction.query(append, &[]).await;
                appended.map(drop).map_err(|error| error.code().cloned())
            });
            waiting(&bed, 1).await;
            closing.commit().await.unwrap();
            let refused = appending.await.unwrap().unwrap_err().unwrap();
            let expected = match level {
                IsolationLevel::ReadCommitted => SqlState::from_code("LK002"),
                _ => SqlState::T_R_SERIALIZATION_FAILURE,
            };
            assert_eq!(refused, expected, "{level:?} {append}");
            assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.event").await, 1);
        }
    }
}

#[tokio::test]
async fn a_close_waits_for_an_append_that_is_under_way_and_its_event_expires() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    let mut producer = bed.db.connect().await;
    let open = producer.transaction().await.unwrap();
    open.query(APPEND, &[]).await.unwrap();
    let closer = bed.db.connect().await;
    let closing = tokio::spawn(async move { close(&closer, false).await });
    waiting(&bed, 1).await;
    open.commit().await.unwrap();
    assert_eq!(closing.await.unwrap(), 2);
    assert_eq!(states(&bed, "out").await, all(2, "expired"));
}

#[tokio::test]
async fn a_close_gives_up_on_an_append_that_does_not_end() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    let mut producer = bed.db.connect().await;
    let open = producer.transaction().await.unwrap();
    open.query(APPEND, &[]).await.unwrap();
    assert_eq!(refusal(&bed.client, CLOSE).await, "LK007");
    open.commit().await.unwrap();
    assert_eq!(bed.enqueue("s1", "step").await, 3, "nothing was changed");
}

#[tokio::test]
async fn a_close_that_is_rolled_back_changes_nothing() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 2).await;
    let mut closer = bed.db.connect().await;
    let open = closer.transaction().await.unwrap();
    open.query(CLOSE, &[]).await.unwrap();
    open.rollback().await.unwrap();
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    assert_eq!(bed.undelivered().await, 3);
}

#[tokio::test]
async fn two_processes_that_close_one_session_expire_it_once() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 5).await;
    let (one, other) = (bed.db.connect().await, bed.db.connect().await);
    let (one, other) = tokio::join!(close(&one, false), close(&other, false));
    assert_eq!((one.min(other), one.max(other)), (0, 5));
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.outcome").await,
        1
    );
    assert_eq!(close(&bed.client, true).await, 0, "it has drained already");
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.session WHERE draining")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_cancels_the_delivery_that_is_under_way_and_delivers_nothing_after_it() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    // Two: whichever has the lane hears of it.
    let workers = [bed.worker().await, bed.worker().await];
    bed.enqueue_bulk(2, 3).await;
    bed.fake
        .wait_until(|seen| seen.running == 1 && seen.accepted().len() == 3)
        .await;
    assert_eq!(close(&bed.client, false).await, 3);
    bed.fake.wait_until(|seen| seen.running == 0).await;
    bed.fake.release("s1");
    bed.drained().await;
    assert_eq!(bed.accepted().get("s1"), None);
    let attempts = bed.fake.seen().deliveries;
    let of_s1 = attempts.iter().filter(|one| &*one.event.session == "s1");
    assert_eq!(of_s1.count(), 1, "the head was tried once");
    assert_eq!(states(&bed, "out").await, all(3, "expired"));
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.closing_lane WHERE finished_at IS NULL")
            .await,
        0
    );
    for worker in workers {
        worker.stop().await;
    }
}

/// Nobody tells the holder, whose delivery ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_notification_the_holders_settlement_is_refused_and_the_rest_is_not_delivered() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    // Its rounds would cancel the delivery: another process does what is left of the close.
    let never = WorkerSettings {
        poll_floor: Duration::from_secs(3600),
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(never).await;
    bed.enqueue_bulk(1, 3).await;
    bed.fake.wait_until(|seen| seen.running == 1).await;
    let closer = bed.db.connect().await;
    let quiet = "SET lanekeeper.notify = off";
    closer.batch_execute(quiet).await.unwrap();
    assert_eq!(close(&closer, false).await, 3);
    let finished = closing::finish(&bed.client, None, None).await.unwrap();
    assert_eq!((finished.lanes, finished.unfinished), (1, 0));
    let expired =
        "SELECT count(*) FROM lanekeeper.outcome WHERE kind = 'expired' AND seq = 1 AND to_seq = 3";
    assert_eq!(bed.count(expired).await, 1);
    // A lane settles between two deliveries where the last settlement is 100 ms ago.
    tokio::time::sleep(Duration::from_millis(150)).await;
    bed.fake.release("s1");
    bed.drained().await;
    // What was under way was accepted, and is not settled: its outcome stands.
    assert_eq!(bed.accepted()["s1"], [1]);
    assert_eq!(states(&bed, "out").await, all(3, "expired"));
    worker.stop().await;
}

/// Its holder has an entry that is due in half a minute, and puts one in its place that is due at once when it hears of the
/// close.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_reopened_before_its_close_is_finished_goes_on_at_once() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    let in_flight = "SELECT count(*) FROM lanekeeper.ready WHERE due_at > now() + interval '20 s'";
    wait_until(LIMIT, "it is long under way", async || {
        bed.count(in_flight).await == 1
    })
    .await;
    let quiet = "SET lanekeeper.notify = off";
    bed.client.batch_execute(quiet).await.unwrap();
    close(&bed.client, false).await;
    closing::reopen_session(&bed.client, "runs", "s1")
        .await
        .unwrap();
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    let closing = "SELECT count(*) FROM lanekeeper.closing_lane WHERE finished_at IS NULL";
    wait_until(LIMIT, "the close is finished", async || {
        bed.count(closing).await == 0
    })
    .await;
    bed.fake.release("s1");
    wait_until(
        Duration::from_secs(10),
        "the next event is delivered",
        async || {
            bed.accepted()
                .get("s1")
                .is_some_and(|seqs| seqs.contains(&3))
        },
    )
    .await;
    // The delivery that was under way was cancelled, or ended before that.
    let accepted = bed.accepted().remove("s1").unwrap();
    assert!(accepted == [3] || accepted == [1, 3], "{accepted:?}");
    worker.stop().await;
}

/// Its settlement is refused, and leaves the entry that it has: due in an hour. The append made none, since it found that the
/// lane had work.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_goes_on_at_once_when_its_holder_has_not_heard_of_the_close_before_its_delivery_ends()
 {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let settings = WorkerSettings {
        frozen_after: Duration::from_secs(3600),
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    bed.enqueue_bulk(1, 2).await;
    let in_flight =
        "SELECT count(*) FROM lanekeeper.ready WHERE due_at > now() + interval '30 min'";
    wait_until(LIMIT, "it is long under way", async || {
        bed.count(in_flight).await == 1
    })
    .await;
    let quiet = "BEGIN; SET LOCAL lanekeeper.notify = off";
    bed.client.batch_execute(quiet).await.unwrap();
    assert_eq!(close(&bed.client, false).await, 2);
    closing::reopen_session(&bed.client, "runs", "s1")
        .await
        .unwrap();
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    let finished = closing::finish(&bed.client, None, None).await.unwrap();
    assert_eq!((finished.lanes, finished.unfinished), (1, 0));
    // Nor does it read of it.
    let forgotten = "DELETE FROM lanekeeper.closing_lane; COMMIT";
    bed.client.batch_execute(forgotten).await.unwrap();
    bed.fake.release("s1");
    wait_until(LIMIT, "the next event is settled", async || {
        bed.undelivered().await == 0
    })
    .await;
    assert_eq!(bed.accepted()["s1"], [1, 3]);
    let expected = ["expired", "expired", "delivered"];
    let states = states(&bed, "out").await;
    assert_eq!(
        states.iter().map(|(_, state)| &**state).collect::<Vec<_>>(),
        expected
    );
    worker.stop().await;
}

/// An open transaction that closes must not hold up the settlements of the lanes that it closes.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_settles_while_the_close_of_its_session_is_not_committed() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    bed.fake.wait_until(|seen| seen.running == 1).await;
    let mut closer = bed.db.connect().await;
    let open = closer.transaction().await.unwrap();
    open.query(CLOSE, &[]).await.unwrap();
    bed.fake.release("s1");
    let settled = "SELECT max(cursor) FROM lanekeeper.progress";
    wait_until(LIMIT, "it is settled", async || {
        bed.count(settled).await == 3
    })
    .await;
    open.commit().await.unwrap();
    bed.drained().await;
    wait_until(LIMIT, "the close is finished", async || {
        bed.count("SELECT count(*) FROM lanekeeper.closing_lane WHERE finished_at IS NULL")
            .await
            == 0
    })
    .await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3]);
    assert_eq!(
        states(&bed, "out").await,
        all(3, "delivered"),
        "delivered and not expired"
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_drains_delivers_what_is_there_and_is_closed_then() {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "feed",
        stream: "lifecycle",
        ..Sub::default()
    })
    .await;
    bed.fake.script(
        "s1",
        1,
        [Verdict::Retry {
            error: "not now".to_owned(),
            after: Some(Duration::from_millis(100)),
        }],
    );
    bed.enqueue_bulk(1, 3).await;
    assert_eq!(close(&bed.client, true).await, 0);
    assert_eq!(refusal(&bed.client, APPEND).await, "LK002");
    let worker = bed.worker().await;
    let drained =
        "SELECT count(*) FROM lanekeeper.session WHERE closed_at IS NOT NULL AND NOT draining";
    wait_until(LIMIT, "it has drained", async || {
        bed.count(drained).await == 1
    })
    .await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3]);
    assert_eq!(states(&bed, "out").await, all(3, "delivered"));
    bed.fake
        .wait_until(|seen| {
            let feed = |one: &&lanekeeper_adapters::fake::Recorded| one.subscription == "feed";
            seen.deliveries.iter().filter(feed).count() == 2
        })
        .await;
    let told: Vec<_> = bed.fake.seen().deliveries;
    let told = told.iter().filter(|one| one.subscription == "feed");
    let told: Vec<_> = told
        .map(|one| (&*one.event.session, one.event.event_type.as_ref()))
        .collect();
    let session = "session runs/s1";
    assert_eq!(
        told,
        [(session, "session_draining"), (session, "session_closed")]
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_second_close_expires_what_has_not_drained() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 4).await;
    close(&bed.client, true).await;
    assert_eq!(bed.undelivered().await, 4);
    assert_eq!(close(&bed.client, false).await, 4);
    assert_eq!(states(&bed, "out").await, all(4, "expired"));
}

#[tokio::test(flavor = "multi_thread")]
async fn retrying_parked_and_requeued_events_expire_and_dead_letters_stay() {
    let bed = Bed::with(&Sub {
        schedule_ms: vec![3_600_000],
        ..Sub::default()
    })
    .await;
    bed.subscribe(&Sub {
        name: "parks",
        on_exhausted: "park",
        ..Sub::default()
    })
    .await;
    let rejected = Verdict::Rejected {
        error: "no".to_owned(),
    };
    let later = Verdict::Retry {
        error: "later".to_owned(),
        after: None,
    };
    // Each of the two subscriptions meets one of these first, in whichever order.
    bed.fake
        .script("s1", 1, [rejected.clone(), rejected.clone()]);
    bed.fake.script("s1", 2, [later]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    let stuck = "SELECT count(*) FROM lanekeeper.lane_status WHERE state IN ('blocked', 'parked')";
    wait_until(LIMIT, "both lanes are stuck", async || {
        bed.count(stuck).await == 2
    })
    .await;
    worker.stop().await;
    let dead = "SELECT dead_id FROM lanekeeper.dead_letter WHERE resolution IS NULL";
    let dead = bed.count(dead).await;
    let requeue = "SELECT result FROM lanekeeper.requeue_dead_letters(ARRAY[$1::bigint])";
    bed.client.query(requeue, &[&dead]).await.unwrap();
    assert_eq!(
        close(&bed.client, false).await,
        3,
        "the parked lane has all three left"
    );
    assert_eq!(bed.count(stuck).await, 0);
    let expected = ["failed", "expired", "expired"];
    let of_out = states(&bed, "out").await;
    assert_eq!(
        of_out.iter().map(|(_, state)| &**state).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(states(&bed, "parks").await, all(3, "expired"));
    let error = bed.client.query(requeue, &[&dead]).await.unwrap_err();
    assert_eq!(
        error.code().unwrap().code(),
        "LK002",
        "nothing is requeued to a closed session"
    );
    let worker = bed.worker().await;
    wait_until(LIMIT, "spare entries are gone", async || {
        bed.count("SELECT count(*) FROM lanekeeper.ready WHERE due_at <= now()")
            .await
            == 0
    })
    .await;
    assert_eq!(bed.accepted().get("s1"), None);
    worker.stop().await;
}

/// What a close reads and writes, as the server counts it.
async fn work(db: &TestDb, session: &str) -> (i64, i64) {
    let client = db.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    let close = "SELECT lanekeeper.close_session('runs', $1, NULL)";
    client.query(close, &[&session]).await.unwrap();
    let counted = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint,
                          coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint
                   FROM pg_stat_xact_user_tables WHERE schemaname = 'lanekeeper'";
    let row = client.query_one(counted, &[]).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn closing_a_session_reads_and_writes_the_same_rows_whatever_is_left_of_it() {
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
    assert_eq!(many.1, few.1);
    assert!(many.0 <= few.0 + 10, "{many:?} after {few:?}");
    let outcomes = "SELECT count(*) FROM lanekeeper.outcome WHERE to_seq = 20000";
    assert_eq!(bed.count(outcomes).await, 3);
}

#[tokio::test]
async fn an_unknown_session_and_a_reason_of_any_length_are_refused() {
    let bed = Bed::new().await;
    assert_eq!(refusal(&bed.client, CLOSE).await, "LK010");
    bed.enqueue("s1", "step").await;
    let long = "SELECT lanekeeper.close_session('runs', 's1', repeat('x', 2001))";
    assert_eq!(refusal(&bed.client, long).await, "LK006");
    assert_eq!(bed.enqueue("s1", "step").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_session_becomes_dormant_like_any_other_and_stays_closed() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    close(&bed.client, false).await;
    bed.client
        .batch_execute(
            "DELETE FROM lanekeeper.outcome; DELETE FROM lanekeeper.ready;
             UPDATE lanekeeper.progress SET changed_at = now() - interval '40 days';
             UPDATE lanekeeper.session SET created_at = now() - interval '40 days';
             INSERT INTO lanekeeper.session_tail SELECT session_id, seq FROM lanekeeper.event;
             DELETE FROM lanekeeper.event",
        )
        .await
        .unwrap();
    wait_until(LIMIT, "it is dormant", async || {
        let turn = "SELECT lanekeeper.expire_sessions(30, 100)";
        bed.client.query(turn, &[]).await.unwrap();
        bed.count("SELECT count(*) FROM lanekeeper.lane").await == 0
    })
    .await;
    assert_eq!(refusal(&bed.client, APPEND).await, "LK002");
    closing::reopen_session(&bed.client, "runs", "s1")
        .await
        .unwrap();
    assert_eq!(enqueue(&bed.client, "s1", "step").await, 2);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 1);
}

/// Producers, closers and workers at once.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_closes_and_reopens_meanwhile_each_event_is_delivered_or_expired_and_not_both() {
    let bed = Bed::new().await;
    let workers = [
        bed.worker_with(WorkerSettings::default()).await,
        bed.worker_with(WorkerSettings::default()).await,
    ];
    let producing = {
        let client = bed.db.connect().await;
        tokio::spawn(async move {
            let mut appended = 0;
            while appended < 400 {
                match client.query(APPEND, &[]).await {
                    Ok(_) => appended += 1,
                    Err(error) => assert_eq!(error.code().unwrap().code(), "LK002"),
                }
            }
        })
    };
    let closing = {
        let client = bed.db.connect().await;
        tokio::spawn(async move {
            let mut closed = 0;
            while closed < 40 {
                let done =
                    closing::close_session(&client, "runs", "s1", None, closed % 4 == 3).await;
                if done.is_ok() {
                    closed += 1;
                    closing::reopen_session(&client, "runs", "s1")
                        .await
                        .unwrap();
                }
                tokio::task::yield_now().await;
            }
        })
    };
    producing.await.unwrap();
    closing.await.unwrap();
    bed.drained().await;
    wait_until(LIMIT, "closes are finished", async || {
        bed.count("SELECT count(*) FROM lanekeeper.closing_lane WHERE finished_at IS NULL")
            .await
            == 0
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
    // A lane that goes on after a reopening repeats what its cancelled holder had not settled.
    assert!(first.is_sorted(), "in order: {accepted:?}");
    let counted = states(&bed, "out").await;
    assert_eq!(counted.len(), 400);
    for (seq, state) in counted {
        match state.as_str() {
            "delivered" => assert!(accepted.contains(&seq), "{seq} was not delivered"),
            // It may have arrived: its delivery was under way.
            "expired" => {}
            other => panic!("{seq} is {other}"),
        }
    }
}
