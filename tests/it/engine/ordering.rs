//! A1, A3, A5: several workers deliver all events, in order, once; a head that fails blocks only its own lane.

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::Stopped;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

fn failure() -> Verdict {
    Verdict::Retry {
        error: "not now".to_owned(),
        after: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_deliver_every_session_in_order_and_once() {
    let bed = Bed::new().await;
    let workers = [bed.worker().await, bed.worker().await];
    for _ in 0..5 {
        bed.enqueue_bulk(40, 20).await;
    }
    bed.drained().await;
    bed.assert_exact(40, 100);
    for worker in workers {
        assert_eq!(worker.stop().await, Stopped::Clean);
    }
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.claim").await, 0);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.lane_connection")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_fails_five_times_holds_its_session_and_no_other() {
    let bed = Bed::with(&Sub {
        schedule_ms: vec![200],
        ..Sub::default()
    })
    .await;
    bed.fake.script("s1", 3, vec![failure(); 5]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(20, 10).await;
    wait_until(LIMIT, "the other sessions are complete", async || {
        bed.accepted()
            .iter()
            .filter(|(session, _)| *session != "s1")
            .map(|(_, seqs)| seqs.len())
            .sum::<usize>()
            == 190
    })
    .await;
    let blocked = bed.accepted().remove("s1").unwrap();
    assert_eq!(
        blocked,
        [1, 2],
        "the head is in backoff for a second in all, and nothing overtook it"
    );
    bed.drained().await;
    bed.assert_exact(20, 10);
    let attempts: Vec<u32> = bed
        .fake
        .seen()
        .deliveries
        .iter()
        .filter(|d| &*d.event.session == "s1" && d.event.seq == 3)
        .map(|d| d.attempt)
        .collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5, 6]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_several_turns_is_handed_over_again_in_its_place_and_burns_no_attempt() {
    let bed = Bed::with(&Sub {
        max_attempts: 1,
        ..Sub::default()
    })
    .await;
    for seq in [1, 2] {
        bed.fake
            .script("s1", seq, [Verdict::Partial, Verdict::Partial]);
    }
    for _ in 0..3 {
        bed.enqueue("s1", "step").await;
    }
    let worker = bed.worker().await;
    bed.drained().await;
    let seen = bed.fake.seen().deliveries;
    let order: Vec<i64> = seen.iter().map(|one| one.event.seq).collect();
    assert_eq!(order, [1, 1, 1, 2, 2, 2, 3]);
    assert!(seen.iter().all(|one| one.attempt == 1));
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.outcome").await,
        0
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_head_waits_and_burns_no_attempt() {
    let bed = Bed::with(&Sub {
        max_attempts: 2,
        ..Sub::default()
    })
    .await;
    let pause = Verdict::Throttled {
        reason: "429".to_owned(),
        after: Duration::from_millis(100),
        of: None,
    };
    bed.fake.script("s1", 1, vec![pause; 4]);
    let worker = bed.worker().await;
    bed.enqueue("s1", "step").await;
    bed.enqueue("s1", "step").await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2]);
    assert!(
        bed.fake
            .seen()
            .deliveries
            .iter()
            .all(|delivery| delivery.attempt == 1)
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_worker_could_not_send_counts_no_attempt_and_opens_no_circuit() {
    let bed = Bed::with(&Sub {
        max_attempts: 2,
        ..Sub::default()
    })
    .await;
    let not_sent = Verdict::NotSent {
        reason: "no descriptor".to_owned(),
    };
    // More lanes than open a circuit, and more often than an event may be tried.
    for session in 1..=8 {
        bed.fake
            .script(&format!("s{session}"), 1, vec![not_sent.clone(); 3]);
    }
    let worker = bed.worker().await;
    bed.enqueue_bulk(8, 1).await;
    let says_so = "SELECT count(*) FROM lanekeeper.progress WHERE last_error = 'no descriptor'";
    wait_until(LIMIT, "the reason is on record", async || {
        bed.count(says_so).await > 0
    })
    .await;
    bed.drained().await;
    bed.assert_exact(8, 1);
    let seen = bed.fake.seen();
    assert_eq!(
        seen.deliveries.len(),
        8 * 4,
        "none was held back by a circuit"
    );
    assert!(seen.deliveries.iter().all(|delivery| delivery.attempt == 1));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_delivery_at_a_time_in_a_lane_and_many_across_lanes() {
    let bed = Bed::new().await;
    bed.fake.hold_all();
    let worker = bed.worker().await;
    bed.enqueue_bulk(30, 5).await;
    wait_until(LIMIT, "a delivery of every session runs", async || {
        bed.fake.seen().running == 30
    })
    .await;
    assert_eq!(bed.fake.seen().deliveries.len(), 30, "and only one of each");
    bed.fake.release_all();
    bed.drained().await;
    bed.assert_exact(30, 5);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_subscriptions_of_a_stream_progress_independently() {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "other",
        ..Sub::default()
    })
    .await;
    bed.fake.script("s1", 1, vec![failure()]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(3, 4).await;
    bed.drained().await;
    let seen = bed.fake.seen();
    for name in ["out", "other"] {
        let count = seen
            .deliveries
            .iter()
            .filter(|d| d.subscription == name && d.verdict == Some(Verdict::Accepted))
            .count();
        assert_eq!(count, 12, "{name}");
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_backlog_of_one_session_yields_to_the_others() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 5000).await;
    let settings = lanekeeper_engine::WorkerSettings {
        lane_connections: 1,
        max_lanes: Some(1),
        ..lanekeeper_engine::WorkerSettings::default()
    };
    bed.enqueue("quiet", "step").await;
    let worker = bed.worker_with(settings).await;
    bed.drained().await;
    let accepted = bed.fake.seen().accepted();
    let place = accepted
        .iter()
        .position(|(session, _)| &**session == "quiet")
        .unwrap();
    assert!(
        place < 5000,
        "it came before the end of the backlog, at {place}"
    );
    assert_eq!(bed.accepted()["s1"], (1..=5000).collect::<Vec<_>>());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_priority_pulls_its_whole_session_forward() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(50, 3).await;
    // s50 waits behind 49 others; an urgent event in it does not overtake inside the session.
    bed.client
        .execute(
            "SELECT lanekeeper.enqueue('runs', 's50', 'urgent', '{}', priority => 5::smallint)",
            &[],
        )
        .await
        .unwrap();
    let settings = lanekeeper_engine::WorkerSettings {
        lane_connections: 1,
        max_lanes: Some(1),
        ..lanekeeper_engine::WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    bed.drained().await;
    let accepted = bed.fake.seen().accepted();
    let first: Vec<(&str, i64)> = accepted[..4].iter().map(|(s, q)| (&**s, *q)).collect();
    assert_eq!(first, [("s50", 1), ("s50", 2), ("s50", 3), ("s50", 4)]);
    worker.stop().await;
}
