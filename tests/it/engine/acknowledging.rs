//! C1 to C4, C12: an event that was sent is settled when it is acknowledged, and sent again when it is not.

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::sent::{self, Acked};
use tokio_postgres::Client;
use uuid::Uuid;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

const READY: &str = "SELECT count(*) FROM lanekeeper.ready";
const HELD: &str = "SELECT count(*) FROM lanekeeper.held_lane";

/// A bed whose destination takes everything and acknowledges nothing by itself.
async fn bed(ack: &str, timeout_ms: i32, window: i32, max_attempts: i32) -> Bed {
    let mut bed = Bed::with(&Sub {
        max_attempts,
        ..Sub::default()
    })
    .await;
    bed.fake = Fake::answering(|_| Verdict::Sent);
    bed.client
        .execute(
            "UPDATE lanekeeper.subscription SET ack = $1, ack_timeout_ms = $2, ack_window = $3",
            &[&ack, &timeout_ms, &window],
        )
        .await
        .unwrap();
    bed
}

const HOUR_MS: i32 = 3_600_000;

async fn message(bed: &Bed, seq: i64) -> Uuid {
    let find = "SELECT message_id FROM lanekeeper.event WHERE seq = $1";
    bed.client.query_one(find, &[&seq]).await.unwrap().get(0)
}

async fn ack(client: &Client, message: Uuid) -> Acked {
    let acked = sent::ack_many(client, &[message], None, None)
        .await
        .unwrap();
    assert_eq!(acked.len(), 1);
    acked[0].1
}

async fn ack_seq(bed: &Bed, seq: i64) -> Acked {
    ack(&bed.client, message(bed, seq).await).await
}

/// The seqs that arrived, in the order of their arrival.
fn arrived(bed: &Bed) -> Vec<i64> {
    let deliveries = bed.fake.seen().deliveries;
    deliveries.iter().map(|one| one.event.seq).collect()
}

async fn waits(bed: &Bed, arrivals: usize) {
    wait_until(
        LIMIT,
        "it was sent, and nobody holds the lane",
        async || {
            arrived(bed).len() == arrivals
                && bed.count(HELD).await == 0
                && bed
                    .count("SELECT count(*) FROM lanekeeper.progress WHERE sent IS NOT NULL")
                    .await
                    == 1
        },
    )
    .await;
}

async fn cursor(bed: &Bed) -> i64 {
    bed.count("SELECT max(cursor) FROM lanekeeper.progress")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_event_is_sent_when_the_one_before_it_is_acknowledged() {
    let bed = bed("required", HOUR_MS, 1, 0).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    for seq in 1..=3 {
        waits(&bed, seq).await;
        // Slots are reserved for the moment of a claim.
        wait_until(LIMIT, "a lane that waits takes no slot", async || {
            worker.held() == 0
        })
        .await;
        assert_eq!(bed.count(READY).await, 1, "only the entry of its time-out");
        let seq = i64::try_from(seq).unwrap();
        assert_eq!(cursor(&bed).await, seq - 1);
        assert_eq!(ack_seq(&bed, seq).await, Acked::Acked);
        assert_eq!(ack_seq(&bed, seq).await, Acked::AlreadyAcked);
    }
    bed.drained().await;
    assert_eq!(arrived(&bed), [1, 2, 3]);
    assert_eq!(ack_seq(&bed, 3).await, Acked::AlreadyAcked);
    assert_eq!(ack(&bed.client, Uuid::now_v7()).await, Acked::Unknown);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_not_acknowledged_is_sent_again_and_is_dead_lettered_in_the_end() {
    let bed = bed("required", 200, 1, 3).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    wait_until(LIMIT, "the first is given up", async || {
        arrived(&bed).contains(&2)
    })
    .await;
    let attempts: Vec<_> = bed.fake.seen().deliveries;
    let attempts: Vec<_> = attempts
        .iter()
        .filter(|one| one.event.seq == 1)
        .map(|one| one.attempt)
        .collect();
    assert_eq!(attempts, [1, 2, 3]);
    let letter = "SELECT attempts, error FROM lanekeeper.dead_letter WHERE seq = 1";
    let letter = bed.client.query_one(letter, &[]).await.unwrap();
    assert_eq!(letter.get::<_, i32>(0), 3);
    assert!(letter.get::<_, &str>(1).contains("not acknowledged"));
    assert_eq!(
        ack_seq(&bed, 1).await,
        Acked::Unknown,
        "too late, and harmless"
    );
    assert_eq!(ack_seq(&bed, 2).await, Acked::Acked);
    bed.drained().await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_filled_and_acknowledgements_out_of_order_are_remembered() {
    let bed = bed("required", 1_500, 3, 0).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 5).await;
    waits(&bed, 3).await;
    assert_eq!(ack_seq(&bed, 3).await, Acked::Acked);
    assert_eq!(ack_seq(&bed, 2).await, Acked::Acked);
    wait_until(
        LIMIT,
        "the first is sent again, with what else is not acknowledged",
        async || arrived(&bed).len() == 8,
    )
    .await;
    assert_eq!(arrived(&bed), [1, 2, 3, 4, 5, 1, 4, 5]);
    assert_eq!(cursor(&bed).await, 0);
    for seq in [5, 4, 1] {
        assert_eq!(ack_seq(&bed, seq).await, Acked::Acked);
    }
    bed.drained().await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_that_comes_before_the_answer_counts() {
    let bed = bed("required", HOUR_MS, 1, 0).await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    bed.fake.wait_for(1).await;
    assert_eq!(ack_seq(&bed, 1).await, Acked::Acked);
    bed.fake.release("s1");
    waits(&bed, 2).await;
    assert_eq!(ack_seq(&bed, 2).await, Acked::Acked);
    bed.drained().await;
    assert_eq!(arrived(&bed), [1, 2]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_acknowledges_settles_at_once() {
    let bed = bed("required", HOUR_MS, 1, 0).await;
    bed.fake.script("s1", 1, [Verdict::Accepted]);
    bed.fake.script("s1", 2, [Verdict::Accepted]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    bed.drained().await;
    assert_eq!(arrived(&bed), [1, 2]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_acknowledgement_is_retried_where_the_answer_must_have_one() {
    let bed = bed("response", HOUR_MS, 1, 0).await;
    bed.fake
        .script("s1", 1, [Verdict::Sent, Verdict::Sent, Verdict::Accepted]);
    bed.fake.script("s1", 2, [Verdict::Accepted]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    bed.drained().await;
    assert_eq!(arrived(&bed), [1, 1, 1, 2]);
    assert_eq!(ack_seq(&bed, 1).await, Acked::Unknown);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_goes_on_waiting_after_a_restart_and_is_not_sent_again() {
    let bed = bed("required", HOUR_MS, 1, 0).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    waits(&bed, 1).await;
    worker.stop().await;
    assert_eq!(ack_seq(&bed, 1).await, Acked::Acked);
    let worker = bed.worker().await;
    waits(&bed, 2).await;
    assert_eq!(arrived(&bed), [1, 2]);
    assert_eq!(ack_seq(&bed, 2).await, Acked::Acked);
    bed.drained().await;
    worker.stop().await;
}

/// The consumer's transaction may stay open: nothing of the engine waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_counts_from_its_commit_on_and_holds_nothing_up() {
    let bed = bed("required", 300, 1, 0).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    bed.fake.wait_for(1).await;
    let first = message(&bed, 1).await;
    let mut consumer = bed.db.connect().await;
    let open = consumer.transaction().await.unwrap();
    let acked = sent::ack_many(&open, &[first], None, None).await.unwrap();
    assert_eq!(acked, [(first, Acked::Acked)]);
    bed.enqueue("s2", "step").await;
    wait_until(
        LIMIT,
        "another session goes on, and the time-out counts",
        async || {
            bed.fake
                .seen()
                .deliveries
                .iter()
                .any(|one| &*one.event.session == "s2")
        },
    )
    .await;
    // Sent again at its time-out, as if nobody were about to acknowledge it.
    wait_until(LIMIT, "the first is sent again", async || {
        let deliveries = bed.fake.seen().deliveries;
        let sent = deliveries
            .iter()
            .filter(|one| &*one.event.session == "s1" && one.event.seq == 1);
        sent.count() > 2
    })
    .await;
    open.commit().await.unwrap();
    wait_until(LIMIT, "the next is sent", async || {
        arrived(&bed).contains(&2)
    })
    .await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_fails_while_a_transaction_that_acknowledges_it_stays_open() {
    let bed = bed("required", 200, 1, 2).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    bed.fake.wait_for(1).await;
    let first = message(&bed, 1).await;
    let mut consumer = bed.db.connect().await;
    let open = consumer.transaction().await.unwrap();
    sent::ack_many(&open, &[first], None, None).await.unwrap();
    wait_until(LIMIT, "the lane goes on", async || {
        arrived(&bed).contains(&2)
    })
    .await;
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.dead_letter WHERE seq = 1")
            .await,
        1
    );
    open.rollback().await.unwrap();
    assert_eq!(ack_seq(&bed, 2).await, Acked::Acked);
    bed.drained().await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unacknowledged_events_expire_with_their_session() {
    let bed = bed("required", HOUR_MS, 1, 0).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 2).await;
    waits(&bed, 1).await;
    let close = "SELECT lanekeeper.close_session('runs', 's1')";
    assert_eq!(bed.count(close).await, 2);
    assert_eq!(ack_seq(&bed, 1).await, Acked::Unknown);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.message WHERE state = 'expired'")
            .await,
        2
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_acknowledged_in_one_call_and_more_than_it_takes_in_none() {
    let bed = bed("required", HOUR_MS, 50, 0).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 40).await;
    waits(&bed, 40).await;
    let mut messages = Vec::new();
    for seq in (1..=40).rev() {
        messages.push(message(&bed, seq).await);
    }
    messages.push(Uuid::nil());
    let acked = sent::ack_many(&bed.client, &messages, None, None)
        .await
        .unwrap();
    let ids: Vec<Uuid> = acked.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, messages, "in the order given");
    let (last, others) = acked.split_last().unwrap();
    assert!(others.iter().all(|(_, acked)| *acked == Acked::Acked));
    assert_eq!(last.1, Acked::Unknown);
    bed.drained().await;
    let many = vec![Uuid::nil(); 100_001];
    let error = sent::ack_many(&bed.client, &many, None, None)
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), Some("LK006"));
    worker.stop().await;
}

/// The consumer acknowledges in a transaction that may stay open, and the destination's answer acknowledges too.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_in_the_answer_waits_for_no_open_transaction_of_the_consumer() {
    let bed = bed("required", HOUR_MS, 1, 0).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 1).await;
    waits(&bed, 1).await;
    worker.stop().await;
    let lane_id = bed.count("SELECT lane_id FROM lanekeeper.sent").await;
    let message_id = message(&bed, 1).await;
    let acked = "SELECT count(*) FROM lanekeeper.sent WHERE acked_at IS NOT NULL";

    let mut consumer = bed.db.connect().await;
    let open = consumer.transaction().await.unwrap();
    let call = "SELECT lanekeeper.ack($1)";
    open.execute(call, &[&message_id]).await.unwrap();
    let waiting = "SET lock_timeout = '200ms'";
    bed.client.batch_execute(waiting).await.unwrap();
    sent::remember(&bed.client, lane_id, message_id)
        .await
        .unwrap();
    open.rollback().await.unwrap();
    assert_eq!(bed.count(acked).await, 0, "it waits like the others");
    sent::remember(&bed.client, lane_id, message_id)
        .await
        .unwrap();
    assert_eq!(bed.count(acked).await, 1);
}
