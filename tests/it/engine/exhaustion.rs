//! B6, C11, I4: events that are not delivered, and what operators can do about them.

use lanekeeper_core::adapter::Verdict;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

fn failure(error: &str) -> Verdict {
    Verdict::Retry {
        error: error.to_owned(),
        after: None,
    }
}

fn rejected() -> Verdict {
    Verdict::Rejected {
        error: "400 no\0pe".to_owned(),
    }
}

async fn state(bed: &Bed, seq: i64) -> (String, Option<String>) {
    let row = bed
        .client
        .query_one(
            "SELECT state, error FROM lanekeeper.message WHERE seq = $1",
            &[&seq],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_head_is_dead_lettered_with_its_error_and_the_lane_goes_on() {
    let bed = Bed::with(&Sub {
        max_attempts: 3,
        ..Sub::default()
    })
    .await;
    bed.fake.script("s1", 2, ["a", "b", "c"].map(failure));
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 3]);
    let row = bed
        .client
        .query_one(
            "SELECT seq, attempts, error, payload::text FROM lanekeeper.dead_letter",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1)), (2, 3));
    assert_eq!((row.get::<_, &str>(2), row.get::<_, &str>(3)), ("c", "2"));
    assert_eq!(state(&bed, 1).await.0, "delivered");
    assert_eq!(
        state(&bed, 2).await,
        ("failed".to_owned(), Some("c".to_owned()))
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_event_is_exhausted_at_once() {
    let bed = Bed::new().await;
    bed.fake.script("s1", 1, [rejected()]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [2]);
    assert_eq!(state(&bed, 1).await.1.unwrap(), "400 no\u{fffd}pe");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_event_leaves_an_outcome_and_no_dead_letter() {
    let bed = Bed::with(&Sub {
        on_exhausted: "drop",
        ..Sub::default()
    })
    .await;
    bed.fake.script("s1", 1, [rejected()]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    bed.drained().await;
    assert_eq!(state(&bed, 1).await.0, "dropped");
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.dead_letter")
            .await,
        0
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_lane_waits_for_an_operator_and_no_append_wakes_it() {
    let bed = Bed::with(&Sub {
        on_exhausted: "park",
        ..Sub::default()
    })
    .await;
    bed.fake.script("s1", 1, [rejected(), rejected()]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(2, 2).await;
    let parked = "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'parked'";
    wait_until(LIMIT, "s1 is parked", async || bed.count(parked).await == 1).await;
    bed.enqueue("s1", "later").await;
    wait_until(LIMIT, "s2 is done, and no entry is left", async || {
        bed.accepted().get("s2").map_or(0, Vec::len) == 2
            && bed.count("SELECT count(*) FROM lanekeeper.ready").await == 0
    })
    .await;
    let lane = bed
        .count("SELECT lane_id FROM lanekeeper.lane_status WHERE session = 's1'")
        .await;
    // Unparked, it is tried again, and parked again; then the operator skips the head.
    for action in ["unpark", "skip"] {
        bed.client
            .query_one(
                "SELECT lanekeeper.change_lane($1, $2, 'by the test')",
                &[&lane, &action],
            )
            .await
            .unwrap();
        if action == "unpark" {
            wait_until(LIMIT, "it is tried and parked again", async || {
                bed.count(parked).await == 1
                    && bed
                        .fake
                        .seen()
                        .deliveries
                        .iter()
                        .filter(|d| &*d.event.session == "s1")
                        .count()
                        == 2
            })
            .await;
        }
    }
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [2, 3]);
    let skipped =
        "SELECT count(*) FROM lanekeeper.outcome WHERE kind = 'skipped' AND error = 'by the test'";
    assert_eq!(bed.count(skipped).await, 1);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.operation").await,
        2
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_can_retry_a_head_in_backoff_at_once() {
    let bed = Bed::with(&Sub {
        schedule_ms: vec![3_600_000],
        ..Sub::default()
    })
    .await;
    bed.fake.script("s1", 1, [failure("not now")]);
    let worker = bed.worker().await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "the lane is blocked", async || {
        bed.count(
            "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'blocked' AND attempts = 1",
        )
        .await
            == 1
    })
    .await;
    bed.client
        .query_one(
            "SELECT lanekeeper.change_lane(lane_id, 'retry') FROM lanekeeper.lane",
            &[],
        )
        .await
        .unwrap();
    wait_until(LIMIT, "it is delivered", async || {
        bed.accepted().contains_key("s1")
    })
    .await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_gone_pauses_its_subscription_and_keeps_the_event() {
    let bed = Bed::new().await;
    bed.fake.script(
        "s1",
        1,
        [Verdict::Gone {
            error: "410".to_owned(),
        }],
    );
    let worker = bed.worker().await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "the subscription is paused", async || {
        bed.count("SELECT count(*) FROM lanekeeper.subscription WHERE pause_reason = '410'")
            .await
            == 1
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(bed.fake.seen().deliveries.len(), 1);
    bed.client
        .query_one("SELECT lanekeeper.pause_subscription('out', NULL)", &[])
        .await
        .unwrap();
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_says_when_and_by_whom_ranges_were_settled() {
    let bed = Bed::with(&Sub {
        history: true,
        ..Sub::default()
    })
    .await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(2, 30).await;
    bed.drained().await;
    let covered =
        "SELECT sum(to_seq - from_seq + 1)::bigint FROM lanekeeper.history WHERE worker_id > 0";
    assert_eq!(bed.count(covered).await, 60);
    worker.stop().await;
}
