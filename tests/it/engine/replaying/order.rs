//! What is replayed, in which order, and how fast.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lanekeeper_adapters::fake::{Fake, Recorded};
use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::replay::Pace;
use tokio::time::Instant;

use super::{FAST, all, arrived, at, delivered, ended, find, of, replayed, start};
use crate::engine::bed::{Bed, LIMIT, Sub, enqueue};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_comes_again_in_its_order_and_before_what_is_appended_meanwhile() {
    let bed = delivered(4, 300).await;
    let worker = bed.worker().await;
    let appends = Arc::new(AtomicBool::new(true));
    let id = start(&bed, &all(), &at(2_000)).await;
    let appending = {
        let (client, appends) = (bed.db.connect().await, Arc::clone(&appends));
        tokio::spawn(async move {
            while appends.load(Ordering::SeqCst) {
                for session in ["s1", "s2", "s3", "s4"] {
                    enqueue(&client, session, "step").await;
                }
            }
        })
    };
    let done = ended(&bed, id).await;
    appends.store(false, Ordering::SeqCst);
    appending.await.unwrap();
    bed.drained().await;
    assert_eq!(
        (done.state.as_str(), done.progress.delivered),
        ("done", 1_200)
    );
    assert_eq!(done.progress.sessions_done, 4);
    for session in ["s1", "s2", "s3", "s4"] {
        let arrived = arrived(&bed, session);
        let expected = (1..=300)
            .map(|seq| (seq, false))
            .chain((1..=300).map(|seq| (seq, true)));
        let (before, behind) = arrived.split_at(600);
        assert_eq!(before, expected.collect::<Vec<_>>(), "{session}");
        assert!(!behind.is_empty(), "nothing was appended meanwhile");
        let live: Vec<_> = (301..).take(behind.len()).map(|seq| (seq, false)).collect();
        assert_eq!(behind, live, "{session}");
    }
    // Cursors did not move back, and nothing is on record of events that were only delivered again.
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.outcome").await,
        0
    );
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.replay_lane")
            .await,
        0
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_sessions_and_the_subscription_that_were_named_get_anything() {
    let bed = Bed::new().await;
    let other = Sub {
        name: "other",
        ..Sub::default()
    };
    bed.subscribe(&other).await;
    let worker = bed.worker().await;
    for session in ["run-1", "run-2", "run_1", "other"] {
        for _ in 0..3 {
            bed.enqueue(session, "step").await;
        }
    }
    bed.drained().await;
    let id = start(&bed, &of("run-*"), &FAST).await;
    let done = ended(&bed, id).await;
    assert_eq!((done.planned.sessions, done.planned.events), (2, 6));
    let seen = bed.fake.seen();
    let again: Vec<_> = seen.deliveries.iter().filter(|one| one.replayed).collect();
    assert_eq!(again.len(), 6);
    assert!(again.iter().all(|one| one.subscription == "out"));
    assert!(
        again
            .iter()
            .all(|one| one.event.session.starts_with("run-"))
    );
    assert!(again.iter().all(|one| one.attempt == 1 && !one.requeued));
    for one in again {
        let place = |other: &&Recorded| {
            !other.replayed
                && other.event.seq == one.event.seq
                && other.event.session == one.event.session
        };
        let before = seen.deliveries.iter().find(place).unwrap();
        assert_eq!(before.event.message_id, one.event.message_id);
        assert_eq!(before.event.payload, one.event.payload);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requeued_dead_letters_come_behind_the_replay_and_before_live_events() {
    let bed = Bed::with(&Sub {
        max_attempts: 1,
        ..Sub::default()
    })
    .await;
    bed.fake.script("s1", 2, [Verdict::retry("refused")]);
    bed.enqueue_bulk(2, 4).await;
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    // Both lanes have their turn before the dead letter of one is requeued.
    let id = start(&bed, &all(), &FAST).await;
    let requeue = "SELECT count(*) FROM lanekeeper.requeue_dead_letters(ARRAY(SELECT dead_id FROM lanekeeper.dead))
                   WHERE result = 'requeued'";
    assert_eq!(bed.count(requeue).await, 1);
    for session in ["s1", "s2"] {
        bed.enqueue(session, "step").await;
    }
    let worker = bed.worker().await;
    ended(&bed, id).await;
    bed.drained().await;
    worker.stop().await;
    let again = [(1, true), (2, true), (3, true), (4, true)];
    assert_eq!(
        arrived(&bed, "s1")[4..],
        [&again[..], &[(2, false), (5, false)]].concat()
    );
    assert_eq!(
        arrived(&bed, "s2")[4..],
        [&again[..], &[(5, false)]].concat()
    );
    let waits = "SELECT count(*) FROM lanekeeper.dead WHERE resolution IS NULL";
    assert_eq!(bed.count(waits).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_of_seqs_and_one_of_instants_hold_and_what_the_filter_leaves_out_stays_out() {
    let sub = Sub {
        events: Some(vec!["step", "late"]),
        ..Sub::default()
    };
    let bed = Bed::with(&sub).await;
    let worker = bed.worker().await;
    for event_type in ["step", "noise", "step", "step", "late", "late"] {
        bed.enqueue("s1", event_type).await;
    }
    bed.drained().await;
    let mut range = of("s1");
    (range.from_seq, range.to_seq) = (Some(2), Some(4));
    let id = start(&bed, &range, &FAST).await;
    assert_eq!(ended(&bed, id).await.planned.events, 2);
    assert_eq!(replayed(&bed, "s1"), [3, 4]);

    let instant = "SELECT created_at FROM lanekeeper.event WHERE seq = $1";
    let instant = async |seq: i64| {
        let row = bed.client.query_one(instant, &[&seq]).await.unwrap();
        Some(row.get(0))
    };
    let mut range = all();
    (range.from_at, range.to_at) = (instant(4).await, instant(6).await);
    let id = start(&bed, &range, &FAST).await;
    ended(&bed, id).await;
    assert_eq!(replayed(&bed, "s1"), [3, 4, 4, 5]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_holds_over_all_sessions_and_workers() {
    let bed = delivered(6, 10).await;
    let workers = [bed.worker().await, bed.worker().await];
    let since = Instant::now();
    // Ten at once, and then a tenth of a second for each ten.
    let id = start(&bed, &all(), &at(100)).await;
    let done = ended(&bed, id).await;
    let took = since.elapsed();
    assert_eq!(done.progress.delivered, 60);
    assert!(took >= Duration::from_millis(500), "{took:?}");
    for session in 1..=6 {
        let seqs: Vec<i64> = (1..=10).collect();
        assert_eq!(replayed(&bed, &format!("s{session}")), seqs);
    }
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_sessions_than_asked_for_are_replayed_at_once_and_all_have_their_turn() {
    let bed = delivered(40, 3).await;
    let pace = Pace {
        concurrency: 2,
        ..FAST
    };
    let id = start(&bed, &all(), &pace).await;
    let now = find(&bed, id).await.progress;
    assert_eq!((now.sessions_active, now.sessions_waiting), (2, 38));
    let worker = bed.worker().await;
    let done = ended(&bed, id).await;
    assert_eq!(
        (done.progress.sessions_done, done.progress.delivered),
        (40, 120)
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_fails_is_tried_again_in_its_place_and_an_exhausted_one_is_a_dead_letter() {
    let sub = Sub {
        max_attempts: 2,
        schedule_ms: vec![10],
        ..Sub::default()
    };
    let bed = Bed::with(&sub).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 5).await;
    bed.drained().await;
    let failed = |error: &str| Verdict::Retry {
        error: error.to_owned(),
        after: None,
    };
    bed.fake.script("s1", 2, [failed("once")]);
    bed.fake.script("s1", 4, [failed("first"), failed("again")]);
    let id = start(&bed, &of("s1"), &FAST).await;
    let done = ended(&bed, id).await;
    assert_eq!((done.progress.delivered, done.progress.exhausted), (4, 1));
    assert_eq!(replayed(&bed, "s1"), [1, 2, 2, 3, 4, 4, 5]);
    let dead = "SELECT error FROM lanekeeper.dead_letter WHERE seq = 4 AND resolution IS NULL";
    let error: String = bed.client.query_one(dead, &[]).await.unwrap().get(0);
    assert_eq!(error, "again");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_batches_what_is_behind_a_failed_event_comes_again_with_it_and_nothing_is_left_out() {
    let sub = Sub {
        schedule_ms: vec![10],
        ..Sub::default()
    };
    let mut bed = Bed::with(&sub).await;
    bed.fake = Fake::new().with_batch(20);
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 150).await;
    bed.drained().await;
    let refused = Verdict::Retry {
        error: "not now".to_owned(),
        after: None,
    };
    for seq in [7, 100, 150] {
        bed.fake.script("s1", seq, [refused.clone()]);
    }
    bed.fake.script_batches([Verdict::Rejected {
        error: "not in a batch".to_owned(),
    }]);
    let id = start(&bed, &of("s1"), &FAST).await;
    let done = ended(&bed, id).await;
    assert_eq!((done.progress.delivered, done.progress.exhausted), (150, 0));
    let twice: Vec<i64> = (1..=150).chain(1..=150).collect();
    assert_eq!(bed.accepted()["s1"], twice);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_was_acknowledged_is_sent_again_and_waits_for_nothing() {
    let bed = Bed::new().await;
    let required = "UPDATE lanekeeper.subscription SET ack = 'required', ack_timeout_ms = 3600000";
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    bed.drained().await;
    bed.client.execute(required, &[]).await.unwrap();
    bed.client
        .execute(
            "UPDATE lanekeeper.subscription SET version = version + 1",
            &[],
        )
        .await
        .unwrap();
    worker.stop().await;
    let quiet = Fake::answering(|_| Verdict::Sent);
    let worker = Bed::start(bed.db.url(), quiet.clone(), Default::default()).await;
    let id = start(&bed, &of("s1"), &FAST).await;
    let done = ended(&bed, id).await;
    assert_eq!(done.progress.delivered, 3);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.sent").await, 0);
    let seqs: Vec<i64> = quiet
        .seen()
        .deliveries
        .iter()
        .map(|one| one.event.seq)
        .collect();
    assert_eq!(seqs, [1, 2, 3]);
    // What is new waits for its acknowledgement as ever.
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "it waits", async || {
        bed.count("SELECT count(*) FROM lanekeeper.sent").await == 1
    })
    .await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cancelled_and_what_an_interrupt_superseded_is_not_delivered_again() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 3).await;
    let second = "SELECT message_id FROM lanekeeper.event WHERE seq = 2";
    let second: uuid::Uuid = bed.client.query_one(second, &[]).await.unwrap().get(0);
    bed.client
        .query_one("SELECT lanekeeper.cancel($1)", &[&second])
        .await
        .unwrap();
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    bed.enqueue_bulk(1, 2).await;
    let interrupt = "SELECT seq FROM lanekeeper.interrupt('runs', 's1', 'stop', '{}')";
    bed.client.query_one(interrupt, &[]).await.unwrap();
    let worker = bed.worker().await;
    bed.drained().await;
    let id = start(&bed, &of("s1"), &FAST).await;
    ended(&bed, id).await;
    assert_eq!(bed.accepted()["s1"], [1, 3, 6, 1, 3, 6]);
    worker.stop().await;
}
