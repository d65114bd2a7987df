//! I11: large payloads are read only when there is memory for them, and no lane waits for ever.

use std::sync::Arc;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_engine::{
    Destination, DestinationSource, Handler, HandlerError, Worker, WorkerSettings,
};
use lanekeeper_postgres::subscription::Subscription;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_postgres::Transaction;

use super::bed::{Bed, LIMIT};
use crate::support::wait_until;

/// Bytes from which on a delivery counts as a large one.
const LARGE: usize = 500_000;

#[derive(Clone, Default)]
struct Seen {
    running: usize,
    /// The most that ran at once.
    peak: usize,
    entered: usize,
    accepted: Vec<(String, i64)>,
}

/// Keeps large deliveries until it is told to let so many go, and lets small ones pass. Unlike the fake it
/// keeps no payloads.
#[derive(Clone)]
struct Gate {
    seen: watch::Sender<Seen>,
    places: Arc<Semaphore>,
    verdict: Verdict,
    handles: bool,
}

impl Gate {
    fn new() -> Self {
        Self {
            seen: watch::Sender::default(),
            places: Arc::new(Semaphore::new(0)),
            verdict: Verdict::Accepted,
            handles: false,
        }
    }

    async fn pass(&self, delivery: &Delivery<'_>) {
        if delivery.event.payload.len() >= LARGE {
            self.seen.send_modify(|seen| {
                seen.entered += 1;
                seen.running += 1;
                seen.peak = seen.peak.max(seen.running);
            });
            self.places.acquire().await.unwrap().forget();
            self.seen.send_modify(|seen| seen.running -= 1);
        }
        let place = (delivery.event.session.to_string(), delivery.event.seq);
        self.seen.send_modify(|seen| seen.accepted.push(place));
    }

    /// Until so many large deliveries have begun.
    async fn entered(&self, count: usize) {
        let mut seen = self.seen.subscribe();
        let entered = timeout(LIMIT, seen.wait_for(|seen| seen.entered >= count)).await;
        assert!(entered.is_ok(), "{} entered", self.seen.borrow().entered);
    }

    /// Lets large deliveries go one at a time. No more than `most` of `count` ever run at once, and as many do.
    async fn let_go_one_by_one(&self, bed: &Bed, count: usize, most: usize) {
        for gone in 0..count {
            self.entered((gone + most).min(count)).await;
            if !self.handles {
                // The lane of the one before is done, and all others had time to be read.
                held(bed, count - gone).await;
            }
            self.places.add_permits(1);
        }
        assert_eq!(self.seen.borrow().peak, most);
    }

    fn assert_exact(&self, sessions: usize, seqs: &[i64]) {
        let accepted = self.seen.borrow().accepted.clone();
        assert_eq!(accepted.len(), sessions * seqs.len());
        for number in 1..=sessions {
            let session = format!("s{number}");
            let of_session = accepted.iter().filter(|(name, _)| *name == session);
            let came: Vec<i64> = of_session.map(|(_, seq)| *seq).collect();
            assert_eq!(came, seqs, "session {session}");
        }
    }
}

#[async_trait]
impl Adapter for Gate {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        self.pass(delivery).await;
        self.verdict.clone()
    }
}

#[async_trait]
impl Handler for Gate {
    async fn handle(
        &self,
        _transaction: &Transaction<'_>,
        delivery: &Delivery<'_>,
    ) -> Result<(), HandlerError> {
        self.pass(delivery).await;
        Ok(())
    }
}

impl DestinationSource for Gate {
    fn build(
        &self,
        _subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        Ok(if self.handles {
            Destination::Handler(Arc::new(self.clone()))
        } else {
            Destination::Adapter(Arc::new(self.clone()))
        })
    }
}

/// In each session a payload of so many bytes, and a small one behind it.
async fn enqueue(bed: &Bed, sessions: i32, bytes: i32) {
    for query in [
        "SELECT lanekeeper.enqueue('runs', 's' || s, 'step', to_jsonb(repeat('x', $2::int))) FROM generate_series(1, $1) AS s",
        "SELECT lanekeeper.enqueue('runs', 's' || s, 'step', to_jsonb($2::int)) FROM generate_series(1, $1) AS s",
    ] {
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&sessions, &bytes];
        bed.client.execute(query, &parameters).await.unwrap();
    }
}

async fn worker(bed: &Bed, gate: &Gate, prefetch_bytes: usize) -> Worker {
    let settings = WorkerSettings {
        prefetch_bytes,
        handler_connections: 4,
        ..WorkerSettings::default()
    };
    let database = bed.db.url().parse().unwrap();
    Worker::start(database, settings, Arc::new(gate.clone()))
        .await
        .unwrap()
}

/// Until so many lanes are held, and have been for a while: their entries are put away.
async fn held(bed: &Bed, lanes: usize) {
    wait_until(LIMIT, "all lanes are held", async || {
        let marked = "SELECT count(*) FROM lanekeeper.ready WHERE due_at > now() + interval '2 s'";
        usize::try_from(bed.count(marked).await) == Ok(lanes)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_large_payloads_are_in_memory_than_prefetch_bytes_allows() {
    let bed = Bed::new().await;
    enqueue(&bed, 40, 1_000_000).await;
    let gate = Gate::new();
    let worker = worker(&bed, &gate, 4 << 20).await;
    gate.let_go_one_by_one(&bed, 40, 4).await;
    bed.drained().await;
    gate.assert_exact(40, &[1, 2]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_wait_for_memory() {
    let bed = Bed::new().await;
    enqueue(&bed, 20, 1_000_000).await;
    let gate = Gate::new();
    let worker = worker(&bed, &gate, 4 << 20).await;
    held(&bed, 20).await;
    gate.entered(4).await;
    let stopping = tokio::spawn(async move { worker.stop().await });
    // Released by the stop, not by what the four give back.
    held(&bed, 4).await;
    gate.places.add_permits(4);
    timeout(LIMIT, stopping).await.unwrap().unwrap();
    let seen = gate.seen.borrow().clone();
    assert_eq!((seen.entered, seen.running), (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn requeued_dead_letters_wait_for_memory_and_come_whole() {
    let bed = Bed::new().await;
    enqueue(&bed, 12, 1_000_000).await;
    let refusing = Gate {
        verdict: Verdict::Rejected {
            error: "no".to_owned(),
        },
        ..Gate::new()
    };
    refusing.places.add_permits(12);
    let first = worker(&bed, &refusing, 4 << 20).await;
    bed.drained().await;
    first.stop().await;
    let requeue = "SELECT count(*) FROM lanekeeper.requeue_dead_letters(
                       (SELECT array_agg(dead_id) FROM lanekeeper.dead), false)";
    assert_eq!(bed.count(requeue).await, 24);
    let gate = Gate::new();
    let worker = worker(&bed, &gate, 4 << 20).await;
    gate.let_go_one_by_one(&bed, 12, 4).await;
    bed.drained().await;
    gate.assert_exact(12, &[1, 2]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_wait_for_memory() {
    let bed = Bed::new().await;
    enqueue(&bed, 12, 600_000).await;
    let gate = Gate {
        handles: true,
        ..Gate::new()
    };
    let worker = worker(&bed, &gate, 1 << 20).await;
    gate.let_go_one_by_one(&bed, 12, 1).await;
    bed.drained().await;
    gate.assert_exact(12, &[1, 2]);
    worker.stop().await;
}

/// A claim takes what there is room for when it begins, up to 256 lanes, and there are two connections.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_claimed_while_what_was_fetched_ahead_fills_its_bound() {
    const SESSIONS: usize = 1500;
    let bed = Bed::new().await;
    bed.client
        .batch_execute("UPDATE lanekeeper.subscription SET concurrency = 2000")
        .await
        .unwrap();
    bed.client
        .execute(
            "SELECT lanekeeper.enqueue_many('runs', (
                 SELECT jsonb_agg(jsonb_build_object(
                     'session', 's' || s, 'event_type', 'step', 'payload', repeat('x', 3000)))
                 FROM generate_series(1, 1500) AS s))",
            &[],
        )
        .await
        .unwrap();
    bed.fake.hold_all();
    let settings = WorkerSettings {
        prefetch_bytes: 256 << 10,
        max_lanes: Some(2 * SESSIONS),
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    wait_until(LIMIT, "deliveries run", async || {
        bed.fake.seen().running >= 256
    })
    .await;
    // Two full scans.
    tokio::time::sleep(std::time::Duration::from_millis(2200)).await;
    let running = bed.fake.seen().running;
    assert!(running <= 512, "{running}");
    bed.fake.release_all();
    bed.drained().await;
    bed.assert_exact(SESSIONS, 1);
    worker.stop().await;
}
