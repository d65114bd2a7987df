//! E9: what becomes of what waits before an interrupt: retries, pauses, parked lanes, acknowledgements, dead letters; and
//! what that costs.

use std::time::Duration;

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::interrupt::Interrupt;

use super::bed::{Bed, LIMIT, Sub};
use super::interrupting::{BARRIER, INTERRUPT, UNFINISHED, begun, interrupted, refusal, states};
use crate::support::{TestDb, wait_until};

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
    // The second may have met the lock of the first's lane, which a server releases after the session's.
    bed.count("SELECT lanes FROM lanekeeper.finish_closing()")
        .await;
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
    let expected = ["superseded", "superseded", "superseded", "acked", "acked"];
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
