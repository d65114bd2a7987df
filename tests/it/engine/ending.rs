//! A stream with terminal event types: one of them is the last event of its session, and the only one, whoever appends.

use std::collections::BTreeSet;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::closing;
use tokio_postgres::{Client, IsolationLevel};

use super::bed::{Bed, LIMIT, enqueue};
use super::closing::waiting;
use super::interrupting::refusal;
use crate::support::wait_until;

const END: &str = "SELECT seq FROM lanekeeper.enqueue('runs', 's1', 'run_completed', '1')";
const STEP: &str = "SELECT seq FROM lanekeeper.enqueue('runs', 's1', 'step', '1')";
const EVENTS: &str = "SELECT count(*) FROM lanekeeper.event";

async fn ends(client: &Client) {
    let terminal = "UPDATE lanekeeper.stream SET bounded = true, terminal = '{run_completed,run_failed}' WHERE name = 'runs'";
    client.batch_execute(terminal).await.unwrap();
}

/// A bed whose runs end.
async fn bed() -> Bed {
    let bed = Bed::new().await;
    ends(&bed.client).await;
    bed
}

async fn drained(bed: &Bed) {
    bed.drained().await;
    wait_until(LIMIT, "no session is draining", async || {
        bed.count("SELECT count(*) FROM lanekeeper.session WHERE draining")
            .await
            == 0
    })
    .await;
}

/// A bulk call with a session and a type for each event.
fn bulk(events: &[(&str, &str)], more: &str) -> String {
    let events: Vec<String> = events
        .iter()
        .enumerate()
        .map(|(number, (session, event_type))| {
            let more = more.replace('#', &number.to_string());
            format!(r#"{{"session":"{session}","event_type":"{event_type}","payload":1{more}}}"#)
        })
        .collect();
    format!(
        "SELECT max(seq) FROM lanekeeper.enqueue_many('runs', '[{}]')",
        events.join(",")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_event_is_the_last_of_its_session_whichever_way_it_is_appended() {
    let bed = bed().await;
    let worker = bed.worker().await;
    let ways = [
        "SELECT seq FROM lanekeeper.enqueue('runs', '@', 'run_completed', '1')".to_owned(),
        "SELECT seq FROM lanekeeper.enqueue('runs', '@', 'run_completed', '1', dedupe_key => 'k-@')".to_owned(),
        "SELECT seq FROM lanekeeper.enqueue('runs', '@', 'run_failed', '1', priority => 5::smallint)".to_owned(),
        "SELECT seq FROM lanekeeper.enqueue_at('runs', '@', 3, 'run_completed', '1')".to_owned(),
        "SELECT seq FROM lanekeeper.interrupt('runs', '@', 'run_failed', '1')".to_owned(),
        bulk(&[("@", "run_completed")], ""),
        bulk(&[("@", "run_completed")], r#","dedupe_key":"b-@-#""#),
    ];
    for (number, way) in ways.iter().enumerate() {
        let session = format!("s{number}");
        for _ in 0..2 {
            bed.enqueue(&session, "step").await;
        }
        bed.drained().await;
        assert_eq!(bed.count(&way.replace('@', &session)).await, 3, "{way}");
        let others = [
            ways[0].clone(),
            "SELECT seq FROM lanekeeper.enqueue('runs', '@', 'step', '1')".to_owned(),
            "SELECT seq FROM lanekeeper.enqueue('runs', '@', 'step', '1', dedupe_key => 'late')"
                .to_owned(),
            "SELECT seq FROM lanekeeper.enqueue_at('runs', '@', 4, 'run_failed', '1')".to_owned(),
            "SELECT seq FROM lanekeeper.interrupt('runs', '@', 'step', '1')".to_owned(),
            bulk(&[("other", "step"), ("@", "step")], ""),
            bulk(&[("@", "run_failed")], r#","dedupe_key":"late-#""#),
        ];
        for other in others {
            let other = other.replace('@', &session);
            assert_eq!(
                refusal(&bed.client, &other).await,
                "LK002",
                "{other} behind {way}"
            );
        }
    }
    // Its producer did not hear the answer.
    for (way, session) in [(&ways[1], "s1"), (&ways[6], "s6")] {
        assert_eq!(
            bed.count(&way.replace('@', session)).await,
            3,
            "{way} again"
        );
    }
    // The first event of a session that nobody knew.
    assert_eq!(bed.count(&ways[0].replace('@', "new")).await, 1);
    assert_eq!(
        bed.count(&bulk(&[("bulk", "step"), ("bulk", "run_failed")], ""))
            .await,
        2
    );
    drained(&bed).await;
    worker.stop().await;
    let accepted = bed.accepted();
    for number in 0..ways.len() {
        assert_eq!(accepted[&format!("s{number}")], [1, 2, 3]);
    }
    assert_eq!(
        (&accepted["new"], &accepted["bulk"]),
        (&vec![1], &vec![1, 2])
    );
    let reasons = "SELECT count(*) FROM lanekeeper.session WHERE closed_at IS NOT NULL AND close_reason ~ '^ended by run_'";
    assert_eq!(bed.count(reasons).await, 9);
}

#[tokio::test]
async fn an_array_with_anything_behind_a_terminal_event_appends_nothing() {
    let bed = bed().await;
    for more in ["", r#","dedupe_key":"k-#""#] {
        for events in [
            [
                ("a", "step"),
                ("s1", "run_completed"),
                ("b", "step"),
                ("s1", "step"),
            ],
            [
                ("a", "step"),
                ("s1", "run_completed"),
                ("b", "step"),
                ("s1", "run_failed"),
            ],
        ] {
            let refused = bed
                .client
                .query(&bulk(&events, more), &[])
                .await
                .unwrap_err();
            let said = refused.as_db_error().unwrap();
            assert_eq!(said.code().code(), "LK002", "{said}");
            let names = said
                .message()
                .contains("event 4 of the array is behind 'run_completed'");
            assert_eq!(names, more.is_empty(), "{said}");
            assert_eq!(bed.count(EVENTS).await, 0);
        }
    }
    // Every session of it may end.
    let events = [
        ("a", "step"),
        ("b", "run_failed"),
        ("a", "run_completed"),
        ("c", "step"),
    ];
    assert_eq!(bed.count(&bulk(&events, "")).await, 2);
    let closed =
        "SELECT sum(closed_seq)::bigint FROM lanekeeper.session WHERE closed_at IS NOT NULL";
    assert_eq!(bed.count(closed).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_producers_that_end_a_session_the_second_is_refused_unless_the_first_is_rolled_back()
{
    let bed = bed().await;
    bed.enqueue("s1", "step").await;
    for commits in [false, true] {
        let mut first = bed.db.connect().await;
        let open = first.transaction().await.unwrap();
        open.query(END, &[]).await.unwrap();
        let second = bed.db.connect().await;
        let refused = tokio::spawn(async move {
            let appended = second.query_one(END, &[]).await;
            appended
                .map(|row| row.get::<_, i64>(0))
                .map_err(|error| error.code().unwrap().code().to_owned())
        });
        waiting(&bed, 1).await;
        if commits {
            open.commit().await.unwrap();
            assert_eq!(refused.await.unwrap(), Err("LK002".to_owned()));
        } else {
            open.rollback().await.unwrap();
            assert_eq!(refused.await.unwrap(), Ok(2));
            assert!(
                closing::reopen_session(&bed.client, "runs", "s1")
                    .await
                    .unwrap()
            );
        }
    }
    assert_eq!(bed.count(EVENTS).await, 3, "a reopened session ends again");
}

#[tokio::test]
async fn an_end_that_is_rolled_back_to_a_savepoint_leaves_the_session_open() {
    let bed = bed().await;
    let mut producer = bed.db.connect().await;
    let mut transaction = producer.transaction().await.unwrap();
    let inner = transaction.savepoint("s").await.unwrap();
    inner.query(END, &[]).await.unwrap();
    inner.rollback().await.unwrap();
    transaction.query(STEP, &[]).await.unwrap();
    transaction.query(END, &[]).await.unwrap();
    // In the same transaction too.
    let inner = transaction.savepoint("s").await.unwrap();
    let refused = inner.query(STEP, &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "LK002");
    inner.rollback().await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(bed.count(EVENTS).await, 2);
}

#[tokio::test]
async fn a_snapshot_from_before_the_end_appends_nothing_behind_it() {
    let bed = bed().await;
    bed.enqueue("s1", "step").await;
    for isolation in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let mut producer = bed.db.connect().await;
        let open = producer
            .build_transaction()
            .isolation_level(isolation)
            .start()
            .await
            .unwrap();
        open.query("SELECT count(*) FROM lanekeeper.stream", &[])
            .await
            .unwrap();
        let end = bed.client.query(END, &[]).await;
        assert!(end.is_ok(), "{end:?}");
        let refused = open.query(STEP, &[]).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "40001");
        drop(open);
        assert!(
            closing::reopen_session(&bed.client, "runs", "s1")
                .await
                .unwrap()
        );
    }
}

#[tokio::test]
async fn a_stream_that_names_no_terminal_types_knows_none() {
    let bed = Bed::new().await;
    for _ in 0..2 {
        enqueue(&bed.client, "s1", "run_completed").await;
    }
    ends(&bed.client).await;
    assert_eq!(
        bed.count(STEP).await,
        3,
        "what was there before ends nothing"
    );
    assert_eq!(bed.count(END).await, 4);
    assert_eq!(refusal(&bed.client, END).await, "LK002");
}

/// Runs end while their destination is away: their sessions drain for as long.
#[tokio::test]
async fn however_many_sessions_drain_a_round_looks_at_some_and_rounds_come_to_all() {
    let bed = bed().await;
    let runs = "SELECT count(*) FROM lanekeeper.enqueue_many('runs', (
        SELECT jsonb_agg(jsonb_build_object('session', 's' || n, 'event_type', 'run_completed', 'payload', n))
        FROM generate_series(1, 600) AS n))";
    assert_eq!(bed.count(runs).await, 600);
    let finish = async || closing::finish(&bed.client, None, None).await.unwrap();
    assert_eq!(finish().await.unfinished, 200);
    let delivered = "UPDATE lanekeeper.progress SET cursor = 1";
    bed.client.batch_execute(delivered).await.unwrap();
    let mut drained = BTreeSet::new();
    wait_until(LIMIT, "rounds come to all", async || {
        let finished = finish().await;
        assert!(finished.drained + finished.unfinished <= 200);
        drained.insert(finished.drained);
        bed.count("SELECT count(*) FROM lanekeeper.session WHERE draining")
            .await
            == 0
    })
    .await;
    assert_eq!(drained.last(), Some(&200));
}

/// What waits before it goes first, however long it is retried, and a worker's death changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_when_a_run_ends_is_delivered_first() {
    let bed = bed().await;
    bed.fake
        .script("s1", 2, [Verdict::retry("down"), Verdict::retry("down")]);
    bed.enqueue_bulk(1, 3).await;
    assert_eq!(bed.count(END).await, 4);
    let worker = bed.worker().await;
    drained(&bed).await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3, 4]);
}

#[tokio::test]
async fn what_an_interrupt_keeps_waiting_ends_no_session_that_was_reopened() {
    let bed = bed().await;
    for append in [STEP, END] {
        bed.count(append).await;
    }
    closing::reopen_session(&bed.client, "runs", "s1")
        .await
        .unwrap();
    bed.count(STEP).await;
    let keep = "SELECT appended_again FROM lanekeeper.interrupt('runs', 's1', 'stop', '1', keep_waiting => true)";
    assert_eq!(
        bed.count(keep).await,
        2,
        "the steps, without the end of the run before"
    );
    assert_eq!(bed.count(STEP).await, 7, "it is open");
    let ends = "SELECT lanekeeper.interrupt('runs', 's1', 'run_failed', '1', keep_waiting => true)";
    let refused = bed.client.batch_execute(ends).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "LK006", "{refused}");
    assert_eq!(bed.count(STEP).await, 8, "nothing was done");
}

/// The ids of sessions have gaps, and most of those that drain may wait for an operator.
#[tokio::test]
async fn each_session_that_drains_is_looked_at_in_its_turn() {
    let bed = bed().await;
    bed.count(END).await;
    let later =
        "SELECT setval(pg_get_serial_sequence('lanekeeper.session', 'session_id'), 10000000)";
    bed.count(later).await;
    let many = "SELECT count(*) FROM generate_series(1, 320) AS n,
                LATERAL lanekeeper.enqueue('runs', 'later-' || n, 'run_completed', '1')";
    bed.count(many).await;
    let delivered = "UPDATE lanekeeper.progress AS p SET cursor = 1
                     FROM lanekeeper.lane AS l JOIN lanekeeper.session AS s ON s.session_id = l.session_id
                     WHERE l.lane_id = p.lane_id AND s.name ~ '^later-3(0[1-9]|1.|20)$'";
    assert_eq!(bed.client.execute(delivered, &[]).await.unwrap(), 20);
    let mut drained = 0;
    for _ in 0..2 {
        let finished = closing::finish(&bed.client, None, None).await.unwrap();
        drained += finished.drained;
    }
    assert_eq!(drained, 20);
}
