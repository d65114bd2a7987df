//! C5, A2: what is too old expires when its turn comes, and of too many events the oldest are dropped; each with its
//! outcome, and nothing that is being delivered.

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::WorkerSettings;
use lanekeeper_postgres::sent;
use uuid::Uuid;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

async fn set(bed: &Bed, columns: &str) {
    let update = format!("UPDATE lanekeeper.subscription SET {columns}");
    bed.client.batch_execute(&update).await.unwrap();
}

/// Makes events of `s1` up to this seq an hour older.
async fn age(bed: &Bed, seq: i64) {
    let age = "UPDATE lanekeeper.event SET created_at = created_at - interval '1 h'
               WHERE seq <= $1 AND session_id = (SELECT session_id FROM lanekeeper.session WHERE name = 's1')";
    bed.client.execute(age, &[&seq]).await.unwrap();
}

/// Outcomes of ranges: kind, first and last seq.
async fn ranges(bed: &Bed) -> Vec<(String, i64, i64)> {
    let ranges = "SELECT kind, seq, coalesce(to_seq, seq) FROM lanekeeper.outcome ORDER BY seq";
    let rows = bed.client.query(ranges, &[]).await.unwrap();
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

fn range(kind: &str, from: i64, to: i64) -> Vec<(String, i64, i64)> {
    vec![(kind.to_owned(), from, to)]
}

const HALF_HOUR_MS: i64 = 1_800_000;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_old_when_its_turn_comes_expires_with_one_outcome() {
    let bed = Bed::new().await;
    set(&bed, &format!("max_age_ms = {HALF_HOUR_MS}")).await;
    bed.enqueue_bulk(2, 5_000).await;
    age(&bed, 4_998).await;
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [4_999, 5_000]);
    assert_eq!(bed.accepted()["s2"].len(), 5_000);
    assert_eq!(ranges(&bed).await, range("expired", 1, 4_998));
    let states = "SELECT count(*) FROM lanekeeper.message WHERE state = 'expired' AND error LIKE '%max_age%'";
    assert_eq!(bed.count(states).await, 4_998);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_expires_at_the_attempt_for_which_it_is_too_old() {
    let bed = Bed::with(&Sub {
        schedule_ms: vec![100],
        ..Sub::default()
    })
    .await;
    set(&bed, &format!("max_age_ms = {HALF_HOUR_MS}")).await;
    let no = || Verdict::retry("no");
    bed.fake
        .script("s1", 1, std::iter::repeat_with(no).take(1_000));
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    bed.fake.wait_for(2).await;
    age(&bed, 1).await;
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [2]);
    assert_eq!(ranges(&bed).await, range("expired", 1, 1));
    let attempts = "SELECT count(*) FROM lanekeeper.progress WHERE attempts = 0";
    assert_eq!(bed.count(attempts).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_an_operator_requeued_is_delivered_however_old() {
    let bed = Bed::with(&Sub {
        max_attempts: 1,
        ..Sub::default()
    })
    .await;
    bed.fake.script(
        "s1",
        1,
        [Verdict::Rejected {
            error: "no".to_owned(),
        }],
    );
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 1).await;
    let dead = "SELECT count(*) FROM lanekeeper.dead_letter";
    wait_until(LIMIT, "it is dead", async || bed.count(dead).await == 1).await;
    worker.stop().await;
    set(
        &bed,
        &format!("max_age_ms = {HALF_HOUR_MS}, version = version + 1"),
    )
    .await;
    age(&bed, 1).await;
    bed.client
        .batch_execute(
            "SELECT lanekeeper.requeue_dead_letters(ARRAY(SELECT dead_id FROM lanekeeper.dead))",
        )
        .await
        .unwrap();
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_many_events_the_oldest_are_dropped_and_none_that_is_being_delivered() {
    let bed = Bed::new().await;
    set(&bed, "max_pending = 3, on_full = 'drop_oldest'").await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue("s1", "step").await;
    bed.fake.wait_until(|seen| seen.running == 1).await;
    // No append is refused, and the one in flight stays.
    for _ in 0..20 {
        bed.enqueue("s1", "step").await;
    }
    assert_eq!(ranges(&bed).await, []);
    bed.fake.release("s1");
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [1, 19, 20, 21]);
    assert_eq!(ranges(&bed).await, range("dropped", 2, 18));
    let dropped = "SELECT count(*) FROM lanekeeper.message WHERE state = 'dropped' AND error LIKE '%max_pending%'";
    assert_eq!(bed.count(dropped).await, 17);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_filtered_stream_only_events_that_are_received_count_as_too_many() {
    let bed = Bed::with(&Sub {
        events: Some(vec!["step"]),
        ..Sub::default()
    })
    .await;
    set(&bed, "max_pending = 2, on_full = 'drop_oldest'").await;
    for event_type in ["step", "other", "step", "other", "other", "step", "other"] {
        bed.enqueue("s1", event_type).await;
    }
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [3, 6]);
    assert_eq!(ranges(&bed).await, range("dropped", 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_and_waits_for_its_acknowledgement_is_not_dropped() {
    let mut bed = Bed::new().await;
    bed.fake = Fake::answering(|_| Verdict::Sent);
    set(
        &bed,
        "max_pending = 2, on_full = 'drop_oldest', ack = 'required', ack_timeout_ms = 1000",
    )
    .await;
    let worker = bed.worker().await;
    bed.enqueue("s1", "step").await;
    let arrived = || -> Vec<i64> {
        let deliveries = bed.fake.seen().deliveries;
        deliveries.iter().map(|one| one.event.seq).collect()
    };
    wait_until(LIMIT, "it was sent", async || arrived() == [1]).await;
    for _ in 0..9 {
        bed.enqueue("s1", "step").await;
    }
    // It is late, and sent again.
    wait_until(LIMIT, "it was sent again", async || arrived() == [1, 1]).await;
    assert_eq!(ranges(&bed).await, []);
    let message = async |seq: i64| -> Uuid {
        let find = "SELECT message_id FROM lanekeeper.event WHERE seq = $1";
        bed.client.query_one(find, &[&seq]).await.unwrap().get(0)
    };
    for seq in [1, 9, 10] {
        wait_until(LIMIT, "it was sent", async || {
            arrived().last() == Some(&seq)
        })
        .await;
        let waits = "SELECT count(*) FROM lanekeeper.progress WHERE sent IS NOT NULL";
        wait_until(LIMIT, "it waits", async || bed.count(waits).await == 1).await;
        let id = message(seq).await;
        sent::ack_many(&bed.client, &[id], None, None)
            .await
            .unwrap();
    }
    bed.drained().await;
    worker.stop().await;
    assert_eq!(ranges(&bed).await, range("dropped", 2, 8));
    let acked = "SELECT count(*) FROM lanekeeper.message WHERE state = 'acked'";
    assert_eq!(bed.count(acked).await, 3, "behind the cursor too");
}

/// Two workers, one of which is killed by losing its database: what was left out stays so, in order.
#[tokio::test(flavor = "multi_thread")]
async fn two_workers_leave_out_and_deliver_every_event_once() {
    let bed = Bed::new().await;
    set(&bed, "max_pending = 5, on_full = 'drop_oldest'").await;
    let workers = [
        bed.worker().await,
        bed.worker_with(WorkerSettings::default()).await,
    ];
    for _ in 0..40 {
        bed.enqueue_bulk(4, 25).await;
    }
    bed.drained().await;
    for worker in workers {
        worker.stop().await;
    }
    for session in 1..=4 {
        let name = format!("s{session}");
        let delivered = &bed.accepted()[&name];
        assert!(
            delivered.is_sorted_by(|one, next| one < next),
            "{delivered:?}"
        );
        let dropped = format!(
            "SELECT coalesce(sum(coalesce(o.to_seq, o.seq) - o.seq + 1), 0)::bigint FROM lanekeeper.outcome AS o
             JOIN lanekeeper.lane AS l ON l.lane_id = o.lane_id
             JOIN lanekeeper.session AS s ON s.session_id = l.session_id WHERE s.name = '{name}'"
        );
        assert_eq!(delivered.len() as i64 + bed.count(&dropped).await, 1_000);
        assert_eq!(delivered.last(), Some(&1_000));
    }
}
