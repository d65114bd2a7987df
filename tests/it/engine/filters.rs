//! B5, I12: filters, coalescing, large payloads.

use lanekeeper_core::adapter::Verdict;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_filtered_lane_gets_what_it_asked_for_and_its_cursor_passes_the_rest() {
    let bed = Bed::with(&Sub {
        events: Some(vec!["wanted"]),
        ..Sub::default()
    })
    .await;
    let worker = bed.worker().await;
    for round in 0..5 {
        for _ in 0..round * 30 {
            bed.enqueue("s1", "other").await;
        }
        bed.enqueue("s1", "wanted").await;
    }
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"].len(), 5);
    assert!(
        bed.fake
            .seen()
            .deliveries
            .iter()
            .all(|d| *d.event.event_type == *"wanted")
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_filtered_event_inserts_no_ready_entry_but_a_long_run_of_them_wakes_the_lane_once() {
    let bed = Bed::with(&Sub {
        events: Some(vec!["wanted"]),
        ..Sub::default()
    })
    .await;
    let entries = "SELECT count(*) FROM lanekeeper.ready";
    for _ in 0..63 {
        bed.enqueue("s1", "other").await;
    }
    assert_eq!(bed.count(entries).await, 0);
    for _ in 0..40 {
        bed.enqueue("s1", "other").await;
    }
    assert_eq!(bed.count(entries).await, 1);
    bed.client
        .execute("SELECT lanekeeper.enqueue_many('runs', (SELECT jsonb_agg(jsonb_build_object(
                      'session', 's2', 'event_type', 'other', 'payload', 1)) FROM generate_series(1, 200)))", &[])
        .await
        .unwrap();
    assert_eq!(bed.count(entries).await, 2);
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.fake.seen().deliveries.len(), 0);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bursty_events_are_coalesced_between_critical_ones_and_say_so() {
    let bed = Bed::bare().await;
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.stream SET critical = '{prompt,stop}' WHERE name = 'runs'",
        )
        .await
        .unwrap();
    bed.subscribe(&Sub {
        coalesce: true,
        ..Sub::default()
    })
    .await;
    for event_type in [
        "prompt", "use", "done", "use", "done", "stop", "use", "prompt", "use",
    ] {
        bed.enqueue("s1", event_type).await;
    }
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 4, 5, 6, 7, 8, 9]);
    let rows = bed
        .client
        .query("SELECT seq, replaced_by FROM lanekeeper.message WHERE state = 'coalesced' ORDER BY seq", &[])
        .await
        .unwrap();
    let replaced: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(replaced, [(2, 4), (3, 5)]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_bursty_event_may_be_replaced_by_a_newer_one_and_a_critical_one_may_not() {
    let bed = Bed::bare().await;
    bed.client
        .batch_execute("UPDATE lanekeeper.stream SET critical = '{stop}' WHERE name = 'runs'")
        .await
        .unwrap();
    bed.subscribe(&Sub {
        coalesce: true,
        schedule_ms: vec![500],
        ..Sub::default()
    })
    .await;
    let error = "not now".to_owned();
    bed.fake.script(
        "s1",
        1,
        [Verdict::Retry {
            error: error.clone(),
            after: None,
        }],
    );
    bed.fake
        .script("s1", 3, [Verdict::Retry { error, after: None }]);
    let worker = bed.worker().await;
    bed.enqueue("s1", "use").await;
    wait_until(LIMIT, "the first failed", async || {
        bed.count("SELECT count(*) FROM lanekeeper.progress WHERE attempts = 1")
            .await
            == 1
    })
    .await;
    for event_type in ["use", "stop", "stop"] {
        bed.enqueue("s1", event_type).await;
    }
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [2, 3, 4]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_of_every_size_arrive_whole_and_in_order() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    for size in [0, 4000, 4100, 100_000, 900_000, 10, 900_000] {
        bed.client
            .execute(
                "SELECT lanekeeper.enqueue('runs', 's1', 'step', to_jsonb(repeat('x', $1)))",
                &[&size],
            )
            .await
            .unwrap();
    }
    bed.drained().await;
    let seen = bed.fake.seen();
    let sizes: Vec<usize> = seen
        .deliveries
        .iter()
        .map(|d| d.event.payload.len() - 2)
        .collect();
    assert_eq!(sizes, [0, 4000, 4100, 100_000, 900_000, 10, 900_000]);
    worker.stop().await;
}
