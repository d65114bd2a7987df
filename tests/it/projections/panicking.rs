//! What feeds handlers and projections outlives a panic that no attempt catches, such as one in a destructor of a handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lanekeeper_core::adapter::Delivery;
use lanekeeper_engine::{
    Destination, DestinationSource, Handler, HandlerError, Worker, WorkerSettings,
};
use lanekeeper_postgres::subscription::Subscription;
use tokio_postgres::Transaction;

use crate::engine::bed::{Bed, LIMIT};
use crate::support::wait_until;

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("as told by the test");
    }
}

/// Writes each event into a table. Its first call does not end, and panics when it is dropped.
#[derive(Default)]
struct Fragile {
    calls: AtomicUsize,
}

#[async_trait]
impl Handler for Fragile {
    async fn handle(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery<'_>,
    ) -> Result<(), HandlerError> {
        let insert = "INSERT INTO public.ledger (session, seq) VALUES ($1, $2)";
        transaction
            .execute(insert, &[&&*delivery.event.session, &delivery.event.seq])
            .await?;
        if self.calls.fetch_add(1, Ordering::SeqCst) == 0 {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

struct Only(Arc<Fragile>);

impl DestinationSource for Only {
    fn build(
        &self,
        _subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Destination::Handler(self.0.clone()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_outside_of_an_attempt_costs_its_connection_and_its_lanes_go_on_over_another() {
    let bed = Bed::new().await;
    let ledger = "CREATE TABLE public.ledger (id bigserial, session text, seq bigint)";
    bed.client.batch_execute(ledger).await.unwrap();
    let fragile = Arc::new(Fragile::default());
    // No other connection that could go on in its place.
    let settings = WorkerSettings {
        handler_connections: 1,
        ..WorkerSettings::default()
    };
    let source = Arc::new(Only(Arc::clone(&fragile)));
    let worker = Worker::start(bed.db.url().parse().unwrap(), settings, source)
        .await
        .unwrap();
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "it is under way", async || {
        fragile.calls.load(Ordering::SeqCst) == 1
    })
    .await;
    // Its transaction is dropped.
    let interrupt = "SELECT lanekeeper.interrupt('runs', 's1', 'stop', '1')";
    bed.client.query(interrupt, &[]).await.unwrap();
    bed.enqueue("s2", "step").await;
    bed.drained().await;
    worker.stop().await;
    let twice = "SELECT count(*) - count(DISTINCT (session, seq)) FROM public.ledger";
    assert_eq!(bed.count(twice).await, 0, "the first call was rolled back");
    let others = "SELECT count(*) FROM public.ledger WHERE session = 's2'";
    assert_eq!(bed.count(others).await, 1);
    let interrupts = "SELECT count(*) FROM public.ledger WHERE session = 's1' AND seq = 2";
    assert_eq!(bed.count(interrupts).await, 1);
}
