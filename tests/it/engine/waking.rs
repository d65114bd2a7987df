//! I8 and test 4 of the field's list: workers wake themselves, and notifications are hints.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_engine::{Destination, DestinationSource, Worker, WorkerSettings};
use lanekeeper_postgres::subscription::Subscription;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_postgres::{AsyncMessage, NoTls};

use super::bed::{Bed, LIMIT, Sub};
use crate::support::{stand_in_line, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_wakes_itself_when_a_retry_is_due() {
    // A poll floor far beyond the test's patience: only the timer can do it.
    let bed = Bed::with(&Sub {
        schedule_ms: vec![300],
        ..Sub::default()
    })
    .await;
    let settings = WorkerSettings {
        poll_floor: Duration::from_secs(120),
        ..WorkerSettings::default()
    };
    let error = "not now".to_owned();
    bed.fake
        .script("s1", 1, vec![Verdict::Retry { error, after: None }; 3]);
    let worker = bed.worker_with(settings).await;
    bed.enqueue("s1", "step").await;
    bed.drained().await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_a_long_delivery_does_not_wait_for_the_next_look() {
    let mut bed = Bed::with(&Sub {
        schedule_ms: vec![100],
        ..Sub::default()
    })
    .await;
    // An idle connection looks after 2, 4, 8 … ms: when this delivery fails, the last look was some
    // three seconds ago and the next is five seconds away.
    bed.fake = Fake::new().with_timeout(Duration::from_secs(11));
    bed.fake.hold("s1");
    let settings = WorkerSettings {
        poll_floor: Duration::from_secs(120),
        // Two that look at once leave each other without room, and are woken by the next lane let go.
        lane_connections: 1,
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "the first attempt failed", async || {
        let seen = bed.fake.seen();
        seen.deliveries
            .first()
            .is_some_and(|it| it.verdict.is_some())
    })
    .await;
    let failed_at = Instant::now();
    bed.fake.release("s1");
    bed.drained().await;
    let waited = failed_at.elapsed();
    assert!(waited < Duration::from_secs(3), "{waited:?}");
    worker.stop().await;
}

/// Takes this long over the first event of a session.
#[derive(Clone)]
struct FirstIsSlow(Fake, Duration);

#[async_trait]
impl Adapter for FirstIsSlow {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        if delivery.event.seq == 1 {
            tokio::time::sleep(self.1).await;
        }
        self.0.deliver(delivery).await
    }
}

impl DestinationSource for FirstIsSlow {
    fn build(
        &self,
        _subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Destination::Adapter(Arc::new(self.clone())))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_yields_does_not_wait_for_the_next_look() {
    const QUANTUM: usize = 1000;
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, QUANTUM as i64 + 1).await;
    // An idle connection looks after 2, 4, 8 … ms: when the quantum is through, the last look was a
    // second ago and the next is five seconds away.
    let slow = FirstIsSlow(bed.fake.clone(), Duration::from_millis(9_500));
    let settings = WorkerSettings {
        poll_floor: Duration::from_secs(120),
        lane_connections: 1,
        ..WorkerSettings::default()
    };
    let worker = Worker::start(bed.db.url().parse().unwrap(), settings, Arc::new(slow))
        .await
        .unwrap();
    let delivered = async |n| {
        tokio::time::timeout(2 * LIMIT, bed.fake.wait_for(n))
            .await
            .unwrap();
        Instant::now()
    };
    let quantum_at = delivered(QUANTUM).await;
    let waited = delivered(QUANTUM + 1).await - quantum_at;
    assert!(waited < Duration::from_secs(3), "{waited:?}");
    bed.drained().await;
    bed.assert_exact(1, QUANTUM as i64 + 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_everything_works_at_the_poll_floor() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    wait_until(LIMIT, "the worker waits for the doorbell", async || {
        bed.count(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                   AND ((classid::bigint << 32) | objid::bigint) = lanekeeper.doorbell_lock()",
        )
        .await
            == 1
    })
    .await;
    bed.client
        .batch_execute("SET lanekeeper.notify = off")
        .await
        .unwrap();
    for _ in 0..20 {
        bed.enqueue("s1", "step").await;
    }
    bed.drained().await;
    bed.assert_exact(1, 20);
    worker.stop().await;
}

/// The worker's own poll floor is far beyond the test's patience, and the subscription does not change: its stream does.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_scans_as_often_as_a_stream_asks_that_it_delivers() {
    let bed = Bed::new().await;
    let settings = WorkerSettings {
        poll_floor: Duration::from_secs(120),
        lane_connections: 1,
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    bed.enqueue("s1", "step").await;
    bed.drained().await;
    let lanes = "FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'lanekeeper lanes'";
    let idle = format!(
        "SELECT count(*) {lanes} AND state_change < clock_timestamp() - interval '1500 ms'"
    );
    wait_until(LIMIT, "its intervals have grown", async || {
        bed.count(&idle).await == 1
    })
    .await;
    let floor = "UPDATE lanekeeper.stream SET poll_floor_ms = 100 WHERE name = 'runs'";
    bed.client.batch_execute(floor).await.unwrap();
    let asked = format!("SELECT (extract(epoch FROM max(query_start)) * 1e6)::bigint {lanes}");
    let mut scans = BTreeSet::new();
    let until = Instant::now() + Duration::from_secs(5);
    while scans.len() < 20 {
        scans.insert(bed.count(&asked).await);
        let count = scans.len();
        assert!(Instant::now() < until, "{count} scans in five seconds");
        tokio::task::yield_now().await;
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_notifies_only_while_a_worker_waits_for_the_doorbell() {
    let bed = Bed::new().await;
    let mut notified = listen(&bed).await;
    bed.enqueue("s1", "step").await;
    let waiting = bed.db.connect().await;
    waiting
        .execute("SELECT pg_advisory_lock(lanekeeper.doorbell_lock())", &[])
        .await
        .unwrap();
    bed.enqueue("s2", "step").await;
    bed.client
        .batch_execute("NOTIFY lanekeeper, 'end'")
        .await
        .unwrap();
    assert_eq!(
        notified.recv().await.unwrap(),
        "",
        "one, for the event enqueued while somebody waited"
    );
    assert_eq!(notified.recv().await.unwrap(), "end");
}

/// The doorbell connection of the one worker of a bed: since when it is at what it does, and whether it waits.
async fn doorbell(bed: &Bed) -> Option<(f64, bool)> {
    let query = "SELECT extract(epoch FROM a.query_start)::float8, coalesce(a.wait_event_type = 'Lock', false)
                 FROM pg_stat_activity AS a
                 WHERE a.application_name LIKE 'lanekeeper doorbell %' AND a.datname = current_database()
                   AND a.query LIKE 'SELECT pg_advisory_lock(%'";
    let row = bed.client.query_opt(query, &[]).await.unwrap()?;
    Some((row.get(0), row.get(1)))
}

/// When it asked for the doorbell that it now has, or waits for.
async fn asked(bed: &Bed, waits: bool) -> f64 {
    wait_until(LIMIT, "the worker wants the doorbell", async || {
        doorbell(bed).await.is_some_and(|(_, found)| found == waits)
    })
    .await;
    doorbell(bed).await.map_or(0.0, |(at, _)| at)
}

/// Producers that notify commit one after the other, and were they told to for as long as a worker has nothing to do,
/// they would keep it so.
#[tokio::test(flavor = "multi_thread")]
async fn a_notified_worker_releases_the_doorbell_until_its_quiet_period_has_passed() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    for round in 1..=3 {
        let before = asked(&bed, false).await;
        bed.enqueue("s", "step").await;
        bed.fake.wait_for(round).await;
        wait_until(LIMIT, "it asks for it anew", async || {
            doorbell(&bed).await.is_some_and(|(at, _)| at > before)
        })
        .await;
    }
    worker.stop().await;
}

/// A producer that was not to notify keeps the doorbell until its transaction ends, so a worker cannot get it, and
/// whoever waits for it has all others notify.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_the_doorbell_leaves_the_queue_when_producers_stand_in_line() {
    let bed = Bed::new().await;
    let open = bed.db.connect().await;
    open.batch_execute("BEGIN").await.unwrap();
    super::bed::enqueue(&open, "open", "step").await;
    let worker = bed.worker().await;
    for _ in 0..3 {
        let before = asked(&bed, true).await;
        stand_in_line(&bed.client).await;
        wait_until(LIMIT, "it stands at its end", async || {
            doorbell(&bed).await.is_some_and(|(at, _)| at > before)
        })
        .await;
    }
    open.batch_execute("COMMIT").await.unwrap();
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["open"], [1]);
}

/// The payloads of the channel's notifications.
async fn listen(bed: &Bed) -> mpsc::UnboundedReceiver<String> {
    let (client, mut connection) = tokio_postgres::connect(bed.db.url(), NoTls).await.unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.send(notification.payload().to_owned());
            }
        }
    });
    client.batch_execute("LISTEN lanekeeper").await.unwrap();
    // The connection lives as long as its client.
    tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(client);
    });
    receiver
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_entry_whose_producer_committed_late_is_found_before_the_scan_start() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    let slow = bed.db.connect().await;
    slow.batch_execute("BEGIN; SET LOCAL lanekeeper.notify = off")
        .await
        .unwrap();
    super::bed::enqueue(&slow, "late", "step").await;
    // The bound moves on over many deliveries meanwhile; and so would the floor of the looks behind it, if it
    // forgot that the transaction is open.
    let began = Instant::now();
    let mut others = 0;
    while began.elapsed() < Duration::from_secs(8) {
        bed.enqueue("s1", "step").await;
        others += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    wait_until(LIMIT, "the others are delivered", async || {
        bed.accepted()["s1"].len() == others
    })
    .await;
    slow.batch_execute("COMMIT").await.unwrap();
    let committed = Instant::now();
    bed.drained().await;
    assert_eq!(bed.accepted()["late"], [1]);
    assert!(
        committed.elapsed() < Duration::from_secs(10),
        "took {:?}",
        committed.elapsed()
    );
    worker.stop().await;
}

/// No other transaction gets a number meanwhile but the looks' own.
#[tokio::test(flavor = "multi_thread")]
async fn a_ready_entry_whose_producer_committed_late_is_found_where_nobody_else_writes() {
    let bed = Bed::new().await;
    let worker = bed
        .worker_with(WorkerSettings {
            heartbeat: Duration::from_secs(20),
            frozen_after: Duration::from_secs(100),
            ..WorkerSettings::default()
        })
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let slow = bed.db.connect().await;
    slow.batch_execute("BEGIN; SET LOCAL lanekeeper.notify = off")
        .await
        .unwrap();
    super::bed::enqueue(&slow, "late", "step").await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    slow.batch_execute("COMMIT").await.unwrap();
    let committed = Instant::now();
    bed.drained().await;
    assert!(
        committed.elapsed() < Duration::from_secs(10),
        "took {:?}",
        committed.elapsed()
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_added_and_paused_while_workers_run_takes_effect() {
    let bed = Bed::bare().await;
    let worker = bed.worker().await;
    bed.enqueue("s1", "before").await;
    bed.subscribe(&Sub::default()).await;
    bed.enqueue("s1", "after").await;
    bed.drained().await;
    assert_eq!(
        bed.accepted()["s1"],
        [2],
        "a new subscription starts at the latest event"
    );
    let paused: bool = bed
        .client
        .query_one(
            "SELECT lanekeeper.pause_subscription('out', 'maintenance')",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert!(paused);
    tokio::time::sleep(Duration::from_secs(1)).await;
    bed.enqueue("s1", "while paused").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(bed.accepted()["s1"], [2]);
    bed.client
        .query_one("SELECT lanekeeper.pause_subscription('out', NULL)", &[])
        .await
        .unwrap();
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [2, 3]);
    worker.stop().await;
}
