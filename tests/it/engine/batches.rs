//! C7: consecutive events of a session in one request.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::WorkerSettings;
use lanekeeper_postgres::sent;
use uuid::Uuid;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

/// A bed whose destination takes so many events in one request.
async fn bed(batch: usize, sub: &Sub) -> Bed {
    let mut bed = Bed::with(sub).await;
    bed.fake = Fake::new().with_batch(batch);
    bed
}

async fn acknowledged(batch: usize, ack: &str, window: i32) -> Bed {
    let mut bed = bed(batch, &Sub::default()).await;
    bed.fake = Fake::answering(|_| Verdict::Sent).with_batch(batch);
    bed.client
        .execute(
            "UPDATE lanekeeper.subscription SET ack = $1, ack_timeout_ms = 3600000, ack_window = $2",
            &[&ack, &window],
        )
        .await
        .unwrap();
    bed
}

fn refusal() -> Verdict {
    Verdict::Rejected {
        error: "not this one".to_owned(),
    }
}

fn attempts(bed: &Bed, seq: i64) -> Vec<u32> {
    let deliveries = bed.fake.seen().deliveries;
    deliveries
        .iter()
        .filter(|one| one.event.seq == seq)
        .map(|one| one.attempt)
        .collect()
}

async fn message(bed: &Bed, seq: i64) -> Uuid {
    let find = "SELECT message_id FROM lanekeeper.event WHERE seq = $1";
    bed.client.query_one(find, &[&seq]).await.unwrap().get(0)
}

async fn waits_for(bed: &Bed, sent: i64) {
    wait_until(LIMIT, "so many were sent, and the lane waits", async || {
        bed.count("SELECT coalesce(max(sent), 0) FROM lanekeeper.progress")
            .await
            == sent
            && bed.count("SELECT count(*) FROM lanekeeper.held_lane").await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_wait_together_go_in_one_request_up_to_the_batch() {
    let bed = bed(4, &Sub::default()).await;
    bed.enqueue_bulk(2, 10).await;
    let worker = bed.worker().await;
    bed.drained().await;
    bed.assert_exact(2, 10);
    let mut batches = bed.fake.seen().batches;
    batches.sort();
    let expected: [Vec<i64>; 6] = [
        vec![1, 2, 3, 4],
        vec![1, 2, 3, 4],
        vec![5, 6, 7, 8],
        vec![5, 6, 7, 8],
        vec![9, 10],
        vec![9, 10],
    ];
    assert_eq!(batches, expected);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_without_batches_gets_one_event_at_a_time() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 5).await;
    let worker = bed.worker().await;
    bed.drained().await;
    bed.assert_exact(1, 5);
    assert!(bed.fake.seen().batches.is_empty());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_that_fails_in_its_middle_the_accepted_prefix_is_settled_and_one_attempt_counted()
 {
    let bed = bed(10, &Sub::default()).await;
    bed.fake.script("s1", 3, [Verdict::retry("not yet")]);
    bed.enqueue_bulk(1, 5).await;
    let worker = bed.worker().await;
    bed.drained().await;
    bed.assert_exact(1, 5);
    assert_eq!(
        bed.fake.seen().batches,
        [vec![1, 2, 3, 4, 5], vec![3, 4, 5]]
    );
    assert_eq!(attempts(&bed, 1), [1], "settled");
    assert_eq!(attempts(&bed, 3), [1, 2], "charged");
    assert_eq!(attempts(&bed, 4), [1, 1], "fetched again, and not charged");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_refused_in_the_middle_of_a_batch_is_the_one_that_is_exhausted() {
    let bed = bed(10, &Sub::default()).await;
    bed.fake.script("s1", 3, [refusal()]);
    bed.enqueue_bulk(1, 5).await;
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 4, 5]);
    let dead =
        "SELECT count(*) FROM lanekeeper.dead_letter WHERE seq = 3 AND error = 'not this one'";
    assert_eq!(bed.count(dead).await, 1);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.dead_letter")
            .await,
        1
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_refused_as_a_whole_is_taken_apart_and_only_the_refused_event_is_exhausted()
{
    let bed = bed(10, &Sub::default()).await;
    bed.fake.script_batches([refusal()]);
    bed.fake.script("s1", 4, [refusal()]);
    bed.enqueue_bulk(1, 5).await;
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3, 5]);
    assert_eq!(
        attempts(&bed, 1),
        [1, 1],
        "no attempt is counted for what the destination does not name"
    );
    let dead = "SELECT count(*) FROM lanekeeper.dead_letter WHERE seq = 4";
    assert_eq!(bed.count(dead).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_batch_failed_twice_as_a_whole_its_events_go_one_at_a_time() {
    let bed = bed(3, &Sub::default()).await;
    let broken = || Verdict::retry("broken");
    bed.fake.script_batches([broken(), broken()]);
    bed.enqueue_bulk(1, 7).await;
    let worker = bed.worker().await;
    bed.drained().await;
    bed.assert_exact(1, 7);
    assert_eq!(attempts(&bed, 1), [1, 2, 3]);
    assert_eq!(attempts(&bed, 2), [1, 1, 1]);
    let batches = bed.fake.seen().batches;
    let expected = [vec![1, 2, 3], vec![1, 2, 3], vec![4, 5, 6]];
    assert_eq!(batches, expected, "the last goes by itself");
    worker.stop().await;
}

/// The destination does not say which event it could not take.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_head_has_no_attempt_left_is_taken_apart_and_exhausts_no_neighbour() {
    let bed = bed(
        10,
        &Sub {
            max_attempts: 1,
            ..Sub::default()
        },
    )
    .await;
    bed.fake.script_batches([Verdict::retry("broken")]);
    bed.fake
        .script("s1", 3, [Verdict::retry("broken by this one")]);
    bed.enqueue_bulk(1, 4).await;
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 4]);
    let dead = "SELECT count(*) FROM lanekeeper.dead_letter WHERE seq = 3";
    assert_eq!(bed.count(dead).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_filter_leaves_out_and_what_is_coalesced_does_not_end_a_batch() {
    let bed = bed(
        10,
        &Sub {
            stream: "hooks",
            events: Some(vec!["agent_stop", "tool_use"]),
            coalesce: true,
            ..Sub::default()
        },
    )
    .await;
    let types = [
        "agent_stop",
        "tool_use",
        "user_prompt_submit",
        "tool_use",
        "tool_use",
        "agent_stop",
        "notification",
    ];
    for event_type in types {
        let append = "SELECT lanekeeper.enqueue('hooks', 's', $1, '{}')";
        bed.client.execute(append, &[&event_type]).await.unwrap();
    }
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.fake.seen().batches, [vec![1, 2, 5, 6]]);
    let coalesced = "SELECT count(*) FROM lanekeeper.outcome WHERE kind = 'coalesced' AND seq = 4";
    assert_eq!(bed.count(coalesced).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_in_a_batch_are_bounded_by_the_memory_for_them() {
    let bed = bed(10, &Sub::default()).await;
    for _ in 0..6 {
        let append =
            "SELECT lanekeeper.enqueue('runs', 's1', 'step', to_jsonb(repeat('x', 30000)))";
        bed.client.execute(append, &[]).await.unwrap();
    }
    let settings = WorkerSettings {
        prefetch_bytes: 64 * 1024,
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    bed.drained().await;
    bed.assert_exact(1, 6);
    let batches = bed.fake.seen().batches;
    assert_eq!(batches, [vec![1, 2], vec![3, 4], vec![5, 6]]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeued_dead_letter_goes_by_itself_at_its_place() {
    let bed = bed(10, &Sub::default()).await;
    bed.fake.script("s1", 1, [refusal()]);
    bed.enqueue_bulk(1, 2).await;
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    bed.enqueue_bulk(1, 2).await;
    let requeue = "SELECT result FROM lanekeeper.requeue_dead_letters(ARRAY(SELECT dead_id FROM lanekeeper.dead))";
    bed.client.query(requeue, &[]).await.unwrap();
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [2, 1, 3, 4]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_takes_what_the_window_has_room_for_and_acknowledgements_make_room() {
    let bed = acknowledged(10, "required", 3).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 5).await;
    waits_for(&bed, 3).await;
    assert_eq!(bed.fake.seen().batches, [vec![1, 2, 3]]);
    let first = [message(&bed, 1).await, message(&bed, 2).await];
    sent::ack_many(&bed.client, &first, None, None)
        .await
        .unwrap();
    waits_for(&bed, 5).await;
    assert_eq!(bed.fake.seen().batches, [vec![1, 2, 3], vec![4, 5]]);
    let rest = [
        message(&bed, 3).await,
        message(&bed, 4).await,
        message(&bed, 5).await,
    ];
    sent::ack_many(&bed.client, &rest, None, None)
        .await
        .unwrap();
    bed.drained().await;
    assert_eq!(attempts(&bed, 3), [1]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_in_the_answer_of_a_batch_acknowledge_what_they_name_and_the_rest_waits() {
    let bed = acknowledged(10, "required", 5).await;
    for seq in [1, 3] {
        bed.fake.script("s1", seq, [Verdict::Accepted]);
    }
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 4).await;
    waits_for(&bed, 4).await;
    let cursor = "SELECT max(cursor) FROM lanekeeper.progress";
    assert_eq!(bed.count(cursor).await, 1);
    let second = [message(&bed, 2).await];
    sent::ack_many(&bed.client, &second, None, None)
        .await
        .unwrap();
    wait_until(LIMIT, "the third was remembered", async || {
        bed.count(cursor).await == 3
    })
    .await;
    let fourth = [message(&bed, 4).await];
    sent::ack_many(&bed.client, &fourth, None, None)
        .await
        .unwrap();
    bed.drained().await;
    assert_eq!(bed.fake.seen().deliveries.len(), 4);
    worker.stop().await;
}

/// Behind an event that failed nothing is sent before it, though the window has room.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_fails_ahead_of_the_head_holds_back_what_is_behind_it() {
    for batch in [1, 10] {
        let bed = acknowledged(batch, "required", 5).await;
        bed.fake.script("s1", 2, [Verdict::retry("not yet")]);
        let worker = bed.worker().await;
        bed.enqueue_bulk(1, 3).await;
        waits_for(&bed, 1).await;
        let first = [message(&bed, 1).await];
        sent::ack_many(&bed.client, &first, None, None)
            .await
            .unwrap();
        waits_for(&bed, 3).await;
        let taken: Vec<i64> = bed
            .fake
            .seen()
            .deliveries
            .iter()
            .filter(|one| one.verdict == Some(Verdict::Sent))
            .map(|one| one.event.seq)
            .collect();
        assert_eq!(taken, [1, 2, 3], "batches of {batch}");
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_batch_that_acknowledges_only_some_is_retried_from_the_first_that_it_does_not()
 {
    let bed = acknowledged(10, "response", 1).await;
    bed.fake.script("s1", 1, [Verdict::Accepted]);
    bed.fake.script("s1", 2, [Verdict::Sent, Verdict::Accepted]);
    bed.fake
        .script("s1", 3, [Verdict::Accepted, Verdict::Accepted]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    bed.drained().await;
    assert_eq!(attempts(&bed, 1), [1]);
    assert_eq!(attempts(&bed, 2), [1, 2]);
    worker.stop().await;
}

/// A batch is a request, and a limit counts requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_draws_on_a_limit_once() {
    let bed = bed(50, &Sub::default()).await;
    bed.client
        .batch_execute(
            r#"UPDATE lanekeeper.subscription SET settings = '{"limit": [{"rate": "1/s", "burst": 1}]}'"#,
        )
        .await
        .unwrap();
    // One at a time they would take longer than the test does.
    bed.enqueue_bulk(1, 150).await;
    let worker = bed.worker().await;
    bed.drained().await;
    bed.assert_exact(1, 150);
    assert_eq!(bed.fake.seen().batches.len(), 3);
    worker.stop().await;
}

/// Whatever a batch meets, every session arrives whole and in order.
#[tokio::test(flavor = "multi_thread")]
async fn batches_that_fail_at_random_lose_nothing_and_change_no_order() {
    let mut bed = Bed::with(&Sub {
        schedule_ms: vec![1],
        ..Sub::default()
    })
    .await;
    let turn = Arc::new(std::sync::atomic::AtomicU64::new(7));
    bed.fake = Fake::answering(move |_| {
        let turn = turn.fetch_add(0x9E37_79B9_7F4A_7C15, std::sync::atomic::Ordering::Relaxed);
        match (turn >> 33) % 11 {
            0 => Verdict::retry("at random"),
            1 => Verdict::Throttled {
                reason: "at random".to_owned(),
                after: Duration::from_millis(1),
                of: None,
            },
            _ => Verdict::Accepted,
        }
    })
    .with_batch(7);
    bed.enqueue_bulk(20, 30).await;
    let workers = [bed.worker().await, bed.worker().await];
    bed.drained().await;
    let mut seen = std::collections::BTreeMap::<String, Vec<i64>>::new();
    for (session, seqs) in bed.accepted() {
        for seq in seqs {
            let list = seen.entry(session.clone()).or_default();
            // Accepted behind a failure of the same request: the fake stops there.
            assert!(
                list.last().is_none_or(|last| *last < seq),
                "{session}: {seq} after {list:?}"
            );
            list.push(seq);
        }
    }
    assert!(seen.values().all(|seqs| seqs.len() == 30) && seen.len() == 20);
    for worker in workers {
        worker.stop().await;
    }
}
