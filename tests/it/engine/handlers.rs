//! A9: a handler's effect commits with its settlement, so it happens exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::Delivery;
use lanekeeper_engine::{
    Destination, DestinationSource, Handler, HandlerError, Worker, WorkerSettings,
};
use lanekeeper_postgres::replay::{self, By, Pace, Range};
use lanekeeper_postgres::subscription::Subscription;
use tokio_postgres::Transaction;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::{Protocol, Proxy, Upstream, wait_until};

/// Writes each event into a table, and is as slow and unreliable as told.
#[derive(Default)]
struct Ledger {
    calls: AtomicUsize,
    /// Every n-th call fails after its statement; 0: none.
    fail_every: usize,
    panic_on: Option<i64>,
    pause: Duration,
}

#[async_trait]
impl Handler for Ledger {
    async fn handle(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery<'_>,
    ) -> Result<(), HandlerError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        transaction
            .execute(
                "INSERT INTO public.ledger (session, seq) VALUES ($1, $2)",
                &[&&*delivery.event.session, &delivery.event.seq],
            )
            .await?;
        assert!(
            self.panic_on != Some(delivery.event.seq) || delivery.attempt > 1,
            "as told by the test"
        );
        tokio::time::sleep(self.pause).await;
        if self.fail_every > 0 && call.is_multiple_of(self.fail_every) {
            return Err(HandlerError::Retry {
                error: "not now".to_owned(),
                after: None,
            });
        }
        Ok(())
    }
}

struct Only(Arc<Ledger>);

impl DestinationSource for Only {
    fn build(
        &self,
        _subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Destination::Handler(self.0.clone()))
    }
}

async fn bed() -> Bed {
    let bed = Bed::with(&Sub {
        schedule_ms: vec![10],
        ..Sub::default()
    })
    .await;
    // No key: a second effect would show as a second row.
    bed.client
        .batch_execute("CREATE TABLE public.ledger (id bigserial, session text, seq bigint)")
        .await
        .unwrap();
    bed
}

async fn start(url: &str, ledger: &Arc<Ledger>) -> Worker {
    let source = Arc::new(Only(Arc::clone(ledger)));
    Worker::start(url.parse().unwrap(), WorkerSettings::default(), source)
        .await
        .unwrap()
}

async fn assert_exactly_once(bed: &Bed, sessions: i64, count: i64) {
    let rows = bed.count("SELECT count(*) FROM public.ledger").await;
    assert_eq!(rows, sessions * count);
    let disordered = "SELECT count(*) FROM (
        SELECT seq, row_number() OVER (PARTITION BY session ORDER BY id) AS place FROM public.ledger) AS l
        WHERE seq <> place";
    assert_eq!(
        bed.count(disordered).await,
        0,
        "each session once, in its order"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_calls_a_handler_once_more_for_each_event_in_its_order() {
    let bed = bed().await;
    let ledger = Arc::new(Ledger {
        fail_every: 7,
        ..Ledger::default()
    });
    let worker = start(bed.db.url(), &ledger).await;
    bed.enqueue_bulk(3, 120).await;
    bed.drained().await;
    assert_exactly_once(&bed, 3, 120).await;
    bed.client
        .execute("DELETE FROM public.ledger", &[])
        .await
        .unwrap();
    let range = Range {
        subscription: "out".to_owned(),
        ..Range::default()
    };
    let pace = Pace {
        rate: None,
        concurrency: 2,
    };
    let id = replay::start(&bed.client, &range, &pace, By::default())
        .await
        .unwrap();
    wait_until(LIMIT, "the replay has ended", async || {
        let now = replay::find(&bed.client, id).await.unwrap().unwrap();
        now.ended_at.is_some()
    })
    .await;
    assert_exactly_once(&bed, 3, 120).await;
    let done = replay::find(&bed.client, id).await.unwrap().unwrap();
    assert_eq!(done.progress.delivered, 360);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_and_panics_leaves_each_effect_once_and_in_order() {
    let bed = bed().await;
    let ledger = Arc::new(Ledger {
        fail_every: 5,
        panic_on: Some(3),
        ..Ledger::default()
    });
    let workers = [
        start(bed.db.url(), &ledger).await,
        start(bed.db.url(), &ledger).await,
    ];
    bed.enqueue_bulk(6, 10).await;
    bed.drained().await;
    assert_exactly_once(&bed, 6, 10).await;
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_effect_happens_exactly_once_through_crashes_and_cut_connections() {
    let bed = bed().await;
    let ledger = Arc::new(Ledger {
        pause: Duration::from_millis(3),
        ..Ledger::default()
    });
    bed.enqueue_bulk(8, 25).await;
    let survivor = start(bed.db.url(), &ledger).await;
    for round in 0..6 {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (url, doomed) = (bed.db.url().to_owned(), Arc::clone(&ledger));
        // Never stopped: it ends with its runtime.
        std::mem::forget(
            runtime
                .spawn(async move { start(&url, &doomed).await })
                .await
                .unwrap(),
        );
        let before = ledger.calls.load(Ordering::SeqCst);
        wait_until(LIMIT, "handlers run", async || {
            ledger.calls.load(Ordering::SeqCst) > before + 5 || bed.undelivered().await == 0
        })
        .await;
        if round % 2 == 0 {
            runtime.shutdown_background();
        } else {
            bed.count("SELECT count(*) FILTER (WHERE pg_terminate_backend(backend_pid)) FROM lanekeeper.lane_connection")
                .await;
            runtime.shutdown_background();
        }
    }
    wait_until(LIMIT, "everything is settled", async || {
        bed.undelivered().await == 0
    })
    .await;
    assert_exactly_once(&bed, 8, 25).await;
    survivor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_statement_failed_and_that_says_ok_is_not_settled() {
    struct Careless;
    #[async_trait]
    impl Handler for Careless {
        async fn handle(
            &self,
            transaction: &Transaction<'_>,
            delivery: &Delivery<'_>,
        ) -> Result<(), HandlerError> {
            if delivery.attempt == 1 {
                // Swallowed: the transaction is aborted now.
                let _ = transaction.batch_execute("SELECT 1/0").await;
            }
            Ok(())
        }
    }
    struct Source;
    impl DestinationSource for Source {
        fn build(
            &self,
            _subscription: &Subscription,
        ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
            Ok(Destination::Handler(Arc::new(Careless)))
        }
    }
    let bed = bed().await;
    let database = bed.db.url().parse().unwrap();
    let worker = Worker::start(database, WorkerSettings::default(), Arc::new(Source))
        .await
        .unwrap();
    bed.enqueue("s1", "step").await;
    bed.drained().await;
    let attempts = "SELECT max(version + step)::bigint FROM lanekeeper.progress";
    assert_eq!(
        bed.count(attempts).await,
        2,
        "one failed attempt, one settlement"
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeued_dead_letter_has_its_effect_exactly_once() {
    let bed = Bed::with(&Sub {
        schedule_ms: vec![10],
        max_attempts: 1,
        ..Sub::default()
    })
    .await;
    bed.client
        .batch_execute("CREATE TABLE public.ledger (id bigserial, session text, seq bigint)")
        .await
        .unwrap();
    // The third call is the third event's first and only attempt.
    let ledger = Arc::new(Ledger {
        fail_every: 3,
        ..Ledger::default()
    });
    let worker = start(bed.db.url(), &ledger).await;
    bed.enqueue_bulk(1, 5).await;
    bed.drained().await;
    // Its second life fails, being the sixth call; the third does not.
    for _ in 0..2 {
        let requeue = "SELECT count(*) FROM lanekeeper.requeue_dead_letters(ARRAY[1])";
        assert_eq!(bed.count(requeue).await, 1);
        bed.drained().await;
    }
    assert_eq!(ledger.calls.load(Ordering::SeqCst), 7);
    let seqs = "SELECT string_agg(seq::text, ',' ORDER BY id)::text FROM public.ledger";
    let seqs: String = bed.client.query_one(seqs, &[]).await.unwrap().get(0);
    assert_eq!(seqs, "1,2,4,5,3");
    worker.stop().await;
}

/// Through this, as if frozen workers were replaced soon.
async fn through(bed: &Bed, proxy: &Proxy, ledger: &Arc<Ledger>) -> Worker {
    let settings = WorkerSettings {
        frozen_after: Duration::from_secs(3),
        heartbeat: Duration::from_millis(500),
        ..WorkerSettings::default()
    };
    let source = Arc::new(Only(Arc::clone(ledger)));
    let url = proxy.through(bed.db.url());
    Worker::start(url.parse().unwrap(), settings, source)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_of_handler_connections_that_hang_are_handled_by_their_worker() {
    let bed = bed().await;
    let proxy = Proxy::start(Upstream::of(bed.db.url()), Protocol::Postgres).await;
    let ledger = Arc::new(Ledger::default());
    let worker = through(&bed, &proxy, &ledger).await;
    bed.enqueue_bulk(4, 5).await;
    bed.drained().await;
    proxy.hang(" handlers");
    bed.enqueue_bulk(4, 5).await;
    bed.drained().await;
    assert_exactly_once(&bed, 4, 10).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_connection_was_ended_unheard_is_run_again() {
    let bed = bed().await;
    let proxy = Proxy::start(Upstream::of(bed.db.url()), Protocol::Postgres).await;
    // Its pause outlasts the test, unless it is dropped.
    let ledger = Arc::new(Ledger {
        pause: Duration::from_secs(3600),
        ..Ledger::default()
    });
    let worker = through(&bed, &proxy, &ledger).await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "the handler runs", async || {
        ledger.calls.load(Ordering::SeqCst) == 1
    })
    .await;
    proxy.hang(" handlers");
    // As the server does by itself after a minute.
    let end = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'lanekeeper handlers'
                 AND state = 'idle in transaction'";
    assert_eq!(bed.count(end).await, 1);
    wait_until(LIMIT, "the handler runs again", async || {
        ledger.calls.load(Ordering::SeqCst) == 2
    })
    .await;
    // In a handler that sleeps for an hour.
    drop(worker);
}
