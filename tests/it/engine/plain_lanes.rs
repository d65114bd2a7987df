//! I13: lanes without a filter, and lanes that one statement of a bulk call handles together.

use serde_json::json;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

const TOKENS: &str = "SELECT count(*) FROM lanekeeper.ready";
const NARROW: &str =
    "UPDATE lanekeeper.subscription SET events = '{wanted}', version = version + 1";

/// As the last release's `apply` does it, which knows nothing of `plain`: an append must not look at
/// the filter where the next one does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_was_made_before_its_subscription_had_a_filter_misses_nothing() {
    let bed = Bed::new().await;
    for session in ["one by one", "in bulk"] {
        bed.enqueue(session, "wanted").await;
    }
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;

    bed.client.batch_execute(NARROW).await.unwrap();
    bed.enqueue("one by one", "other").await;
    bulk(
        &bed,
        json!([{"session": "in bulk", "event_type": "other", "payload": 1}]),
    )
    .await;
    assert_eq!(bed.count(TOKENS).await, 2, "nobody is left behind a filter");
    let worker = bed.worker().await;
    bed.drained().await;
    bed.enqueue("one by one", "wanted").await;
    bulk(
        &bed,
        json!([{"session": "in bulk", "event_type": "wanted", "payload": 1}]),
    )
    .await;
    bed.drained().await;
    worker.stop().await;
    let accepted = bed.accepted();
    assert_eq!(accepted["one by one"], [1, 3]);
    assert_eq!(accepted["in bulk"], [1, 3]);
}

#[tokio::test]
async fn a_parked_or_removed_plain_lane_gets_no_ready_entry() {
    let bed = Bed::new().await;
    bed.enqueue("parked", "step").await;
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.progress SET parked_at = now(), cursor = 1;
             DELETE FROM lanekeeper.ready",
        )
        .await
        .unwrap();
    bed.enqueue("parked", "step").await;
    bulk(
        &bed,
        json!([{"session": "parked", "event_type": "step", "payload": 1}]),
    )
    .await;
    assert_eq!(bed.count(TOKENS).await, 0);
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.progress SET parked_at = NULL, cursor = 3;
             UPDATE lanekeeper.subscription SET removed_at = now()",
        )
        .await
        .unwrap();
    bed.enqueue("parked", "step").await;
    bulk(
        &bed,
        json!([{"session": "parked", "event_type": "step", "payload": 1}]),
    )
    .await;
    assert_eq!(bed.count(TOKENS).await, 0);
}

#[tokio::test]
async fn a_bulk_call_of_a_higher_priority_than_the_last_event_inserts_a_second_ready_entry() {
    let bed = Bed::new().await;
    let low = "SELECT lanekeeper.enqueue('runs', 's1', 'step', '1', priority => -5::smallint)";
    bed.client.batch_execute(low).await.unwrap();
    bulk(
        &bed,
        json!([{"session": "s1", "event_type": "step", "payload": 1}]),
    )
    .await;
    assert_eq!(bed.count(TOKENS).await, 2);
    // The same again: there is an entry of this priority.
    bulk(
        &bed,
        json!([{"session": "s1", "event_type": "step", "payload": 1}]),
    )
    .await;
    assert_eq!(bed.count(TOKENS).await, 2);
}

/// Sessions of every kind in one call: new, new in another subscription's eyes, of today, of an
/// earlier day, and one whose log is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_call_numbers_sessions_of_every_age_on() {
    let bed = Bed::new().await;
    for session in ["earlier", "gone"] {
        bed.enqueue(session, "step").await;
    }
    bed.client
        .batch_execute(
            "SELECT lanekeeper.create_event_partition(current_date - 3);
             SELECT lanekeeper.create_event_partition(current_date - 1);
             UPDATE lanekeeper.event AS e SET day = current_date - CASE s.name WHEN 'gone' THEN 3 ELSE 1 END
             FROM lanekeeper.session AS s WHERE s.session_id = e.session_id;
             UPDATE lanekeeper.progress SET cursor_day = current_date - 3",
        )
        .await
        .unwrap();
    bed.days_moved().await;
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    let gone =
        "SELECT (lanekeeper.drop_event_partition(current_date - 3) = 'dropped')::int::bigint";
    wait_until(LIMIT, "the day is dropped", async || {
        bed.count(gone).await == 1
    })
    .await;
    bed.enqueue("today", "step").await;
    bed.subscribe(&Sub {
        name: "second",
        ..Sub::default()
    })
    .await;
    let events: Vec<_> = (0..3)
        .flat_map(|_| ["new", "today", "earlier", "gone"])
        .map(|session| json!({"session": session, "event_type": "step", "payload": 1}))
        .collect();
    let rows = bulk(&bed, json!(events)).await;
    let seqs: Vec<i64> = rows.iter().map(|row| row.get("seq")).collect();
    assert_eq!(seqs, [1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4]);
    let ids: std::collections::BTreeSet<uuid::Uuid> =
        rows.iter().map(|row| row.get("message_id")).collect();
    assert_eq!(ids.len(), rows.len());
    assert!(ids.iter().all(|id| id.get_version_num() == 7));
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.lane").await, 8);
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    assert_eq!(
        bed.accepted()["new"].len(),
        6,
        "three for each subscription"
    );
}

async fn bulk(bed: &Bed, events: serde_json::Value) -> Vec<tokio_postgres::Row> {
    bed.client
        .query(
            "SELECT * FROM lanekeeper.enqueue_many('runs', $1)",
            &[&events],
        )
        .await
        .unwrap()
}
