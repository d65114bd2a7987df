//! E9: one message is cancelled, whether it waits, is under way, or was sent and is not acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::{Delivery, Verdict};
use lanekeeper_engine::{
    Destination, DestinationSource, Handler, HandlerError, Worker, WorkerSettings,
};
use lanekeeper_postgres::interrupt::{Cancel, Cancelled, cancel};
use lanekeeper_postgres::subscription::Subscription;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;

use super::bed::{Bed, LIMIT, Sub};
use super::interrupting::{begun, running, states};
use crate::support::wait_until;

async fn message(bed: &Bed, seq: i64) -> Uuid {
    let find = "SELECT message_id FROM lanekeeper.event WHERE seq = $1";
    bed.client.query_one(find, &[&seq]).await.unwrap().get(0)
}

async fn cancelled(client: &Client, message_id: Uuid) -> Cancelled {
    let which = Cancel {
        message_id,
        session: None,
        streams: None,
        producer: None,
    };
    cancel(client, which).await.unwrap()
}

async fn cancel_seq(bed: &Bed, seq: i64) -> Cancelled {
    cancelled(&bed.client, message(bed, seq).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_message_is_passed_with_its_outcome_when_its_turn_comes() {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "coalesces",
        coalesce: true,
        ..Sub::default()
    })
    .await;
    let not_critical = "UPDATE lanekeeper.stream SET critical = '{}' WHERE name = 'runs'";
    bed.client.batch_execute(not_critical).await.unwrap();
    bed.enqueue_bulk(1, 4).await;
    assert_eq!(cancel_seq(&bed, 4).await, Cancelled::Cancelled);
    assert_eq!(cancel_seq(&bed, 2).await, Cancelled::Cancelled);
    assert_eq!(cancel_seq(&bed, 2).await, Cancelled::Cancelled, "again");
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    let expected = ["delivered", "cancelled", "delivered", "cancelled"];
    assert_eq!(states(&bed, "out").await, expected);
    // What was cancelled does not replace an earlier one.
    let expected = ["coalesced", "cancelled", "delivered", "cancelled"];
    assert_eq!(states(&bed, "coalesces").await, expected);
    assert_eq!(cancel_seq(&bed, 1).await, Cancelled::AlreadySettled);
    assert_eq!(cancel_seq(&bed, 2).await, Cancelled::AlreadySettled);
    for unknown in [Uuid::now_v7(), Uuid::new_v4(), Uuid::nil(), Uuid::max()] {
        assert_eq!(cancelled(&bed.client, unknown).await, Cancelled::Unknown);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_behind_a_running_delivery_is_cancelled_and_a_running_one_where_it_runs() {
    for quiet in [false, true] {
        let bed = Bed::new().await;
        bed.fake.hold("s1");
        let workers = [bed.worker().await, bed.worker().await];
        bed.enqueue_bulk(1, 4).await;
        running(&bed, 1).await;
        if quiet {
            let off = "SET lanekeeper.notify = off";
            bed.client.batch_execute(off).await.unwrap();
        }
        // Its worker has fetched it by now.
        assert_eq!(cancel_seq(&bed, 3).await, Cancelled::Cancelled);
        assert_eq!(cancel_seq(&bed, 1).await, Cancelled::Running);
        running(&bed, 2).await;
        bed.fake.release("s1");
        bed.drained().await;
        for worker in workers {
            worker.stop().await;
        }
        assert_eq!(begun(&bed), [1, 2, 4], "quiet: {quiet}");
        let expected = ["cancelled", "delivered", "cancelled", "delivered"];
        assert_eq!(states(&bed, "out").await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_waits_for_its_retry_is_passed_at_once_and_a_cancel_that_is_rolled_back_changes_nothing()
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
    bed.enqueue_bulk(1, 2).await;
    let blocked = "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'blocked'";
    wait_until(LIMIT, "it waits for its retry", async || {
        bed.count(blocked).await == 1
    })
    .await;
    let first = message(&bed, 1).await;
    let mut client = bed.db.connect().await;
    let open = client.transaction().await.unwrap();
    let statement = "SELECT lanekeeper.cancel($1)";
    let row = open.query_one(statement, &[&first]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "cancelled");
    open.rollback().await.unwrap();
    assert_eq!(states(&bed, "out").await, ["retrying", "pending"]);
    assert_eq!(cancelled(&bed.client, first).await, Cancelled::Cancelled);
    bed.drained().await;
    worker.stop().await;
    assert_eq!(begun(&bed), [1, 2]);
    assert_eq!(states(&bed, "out").await, ["cancelled", "delivered"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sent_message_that_is_not_acknowledged_is_cancelled_and_its_acknowledgement_is_unknown() {
    let mut bed = Bed::new().await;
    bed.fake = Fake::answering(|_| Verdict::Sent);
    let required = "UPDATE lanekeeper.subscription SET ack = 'required', ack_timeout_ms = 3600000, ack_window = 2";
    bed.client.batch_execute(required).await.unwrap();
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 4).await;
    let sent = async |seqs: &[i64]| {
        wait_until(LIMIT, "they were sent", async || {
            begun(&bed) == seqs && bed.count("SELECT count(*) FROM lanekeeper.held_lane").await == 0
        })
        .await;
    };
    sent(&[1, 2]).await;
    // Not the head: its turn comes, and it is not sent again with the others.
    assert_eq!(cancel_seq(&bed, 2).await, Cancelled::Cancelled);
    assert_eq!(cancel_seq(&bed, 1).await, Cancelled::Cancelled);
    sent(&[1, 2, 3, 4]).await;
    let ack = "SELECT count(*) FROM lanekeeper.event AS e WHERE seq = $1 AND lanekeeper.ack(e.message_id) = $2";
    for (seq, result) in [
        (1_i64, "unknown"),
        (2, "unknown"),
        (3, "acked"),
        (4, "acked"),
    ] {
        let row = bed.client.query_one(ack, &[&seq, &result]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 1, "{seq} is {result}");
    }
    bed.drained().await;
    worker.stop().await;
    let expected = ["cancelled", "cancelled", "acked", "acked"];
    assert_eq!(states(&bed, "out").await, expected);
}

#[tokio::test]
async fn a_message_is_found_by_the_name_that_its_producer_gave_it_and_of_allowed_streams_only() {
    let bed = Bed::new().await;
    let chosen = Uuid::new_v4();
    bed.client
        .query(
            "SELECT lanekeeper.enqueue('runs', 's1', 'step', '1', $1)",
            &[&chosen],
        )
        .await
        .unwrap();
    let which = Cancel {
        message_id: chosen,
        session: Some(("runs", "s1")),
        streams: Some(&["inbound".to_owned()]),
        producer: None,
    };
    let of = async |which: Cancel<'_>| cancel(&bed.client, which).await.unwrap();
    assert_eq!(of(which).await, Cancelled::Unknown);
    for session in [("runs", "s2"), ("inbound", "s1"), ("none", "s1")] {
        let which = Cancel {
            session: Some(session),
            streams: None,
            ..which
        };
        assert_eq!(of(which).await, Cancelled::Unknown, "{session:?}");
    }
    let others = "SELECT lanekeeper.set_producers('runs', ARRAY['token ci'])";
    bed.client.batch_execute(others).await.unwrap();
    let streams = ["runs".to_owned()];
    let which = Cancel {
        streams: Some(&streams),
        producer: Some("token web"),
        ..which
    };
    let error = cancel(&bed.client, which).await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("LK009"));
    let which = Cancel {
        producer: Some("token ci"),
        ..which
    };
    assert_eq!(of(which).await, Cancelled::Cancelled);
    let generated = bed.enqueue("s2", "step").await;
    assert_eq!(generated, 1);
    let second = "SELECT e.message_id FROM lanekeeper.event AS e WHERE e.message_id <> $1";
    let message_id: Uuid = bed
        .client
        .query_one(second, &[&chosen])
        .await
        .unwrap()
        .get(0);
    let which = Cancel {
        message_id,
        session: Some(("runs", "s2")),
        ..which
    };
    assert_eq!(of(which).await, Cancelled::Cancelled);
}

/// Writes each event into a table, and waits until it is let go.
struct Slow {
    begun: AtomicUsize,
    gate: Semaphore,
}

#[async_trait]
impl Handler for Slow {
    async fn handle(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery<'_>,
    ) -> Result<(), HandlerError> {
        let insert = "INSERT INTO public.ledger (seq) VALUES ($1)";
        transaction.execute(insert, &[&delivery.event.seq]).await?;
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        Ok(())
    }
}

struct Only(Arc<Slow>);

impl DestinationSource for Only {
    fn build(
        &self,
        _subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Destination::Handler(self.0.clone()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_transaction_is_rolled_back_when_its_event_is_cancelled_or_its_session_interrupted()
 {
    let bed = Bed::new().await;
    let ledger = "CREATE TABLE public.ledger (id bigserial, seq bigint)";
    bed.client.batch_execute(ledger).await.unwrap();
    let slow = Arc::new(Slow {
        begun: AtomicUsize::new(0),
        gate: Semaphore::new(0),
    });
    let source = Arc::new(Only(Arc::clone(&slow)));
    let url = bed.db.url().parse().unwrap();
    let worker = Worker::start(url, WorkerSettings::default(), source)
        .await
        .unwrap();
    let begun = async |count| {
        wait_until(LIMIT, "it is under way", async || {
            slow.begun.load(Ordering::SeqCst) == count
        })
        .await;
    };
    bed.enqueue_bulk(1, 4).await;
    begun(1).await;
    assert_eq!(cancel_seq(&bed, 3).await, Cancelled::Cancelled);
    assert_eq!(cancel_seq(&bed, 1).await, Cancelled::Running);
    begun(2).await;
    slow.gate.add_permits(1);
    // Now 4, since 3 was cancelled.
    begun(3).await;
    let interrupt = "SELECT lanekeeper.interrupt('runs', 's1', 'stop', '1')";
    bed.client.query(interrupt, &[]).await.unwrap();
    begun(4).await;
    let barrier = "SELECT lanekeeper.interrupt('runs', 's1', 'wait', '1', cancel_running => false)";
    bed.enqueue("s1", "step").await;
    bed.client.query(barrier, &[]).await.unwrap();
    slow.gate.add_permits(10);
    bed.drained().await;
    worker.stop().await;
    let rows = bed
        .client
        .query("SELECT seq FROM public.ledger ORDER BY id", &[])
        .await
        .unwrap();
    let handled: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(handled, [2, 5, 7]);
    let expected = [
        "cancelled",
        "delivered",
        "cancelled",
        "superseded",
        "delivered",
        "superseded",
        "delivered",
    ];
    assert_eq!(states(&bed, "out").await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_producer_marks_an_event_as_cancelled() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 1).await;
    let appended = "SELECT count(*) FROM lanekeeper.event";
    let before: i64 = bed.client.query_one(appended, &[]).await.unwrap().get(0);
    for mark in [
        r#"{"lanekeeper-cancelled": true}"#,
        r#"{"a": 1, "lanekeeper-cancelled": null}"#,
    ] {
        for append in [
            format!("SELECT lanekeeper.enqueue('runs', 's1', 'a', '1', headers => '{mark}')"),
            format!("SELECT lanekeeper.enqueue('runs', 'new', 'a', '1', headers => '{mark}')"),
            format!(
                "SELECT lanekeeper.enqueue('runs', 's1', 'a', '1', NULL, 'key', 0::smallint, '{mark}')"
            ),
            format!(
                r#"SELECT lanekeeper.enqueue_many('runs', '[{{"session": "s1", "event_type": "a", "payload": 1}},
                   {{"session": "s1", "event_type": "a", "payload": 1, "headers": {mark}}}]')"#
            ),
            format!("SELECT lanekeeper.interrupt('runs', 's1', 'a', '1', headers => '{mark}')"),
        ] {
            let refused = bed.client.batch_execute(&append).await.unwrap_err();
            let code = refused.code().map(tokio_postgres::error::SqlState::code);
            assert_eq!(code, Some("LK006"), "{append}");
        }
    }
    let after: i64 = bed.client.query_one(appended, &[]).await.unwrap().get(0);
    assert_eq!(after, before);
    for fine in ["null", "{}", r#"{"lanekeeper": 1}"#] {
        let append = format!(
            r#"SELECT lanekeeper.enqueue_many('runs', '[{{"session": "s1", "event_type": "a", "payload": 1, "headers": {fine}}}]')"#
        );
        bed.client.batch_execute(&append).await.unwrap();
    }
}
