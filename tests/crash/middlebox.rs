//! A middlebox that hangs: it keeps the connections of a worker open and lets nothing pass. The server
//! cannot tell that from a worker that has nothing to say.

use std::time::Duration;

use tokio::time::Instant;

use crate::ground::Ground;
use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::scene::Scene;
use crate::support::{Dice, wait_until};
use crate::workload::Producers;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn lanes_of_connections_that_hang_while_their_worker_lives_are_delivered() {
    survives(" lanes", false).await;
}

/// Its control connection too, whose backend has the worker's liveness lock: the next one needs it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_which_every_connection_hangs_goes_on_with_new_ones() {
    survives("", true).await;
}

/// One worker, alone: nobody else can end the connections whose name ends in this.
async fn survives(hanging: &'static str, soon: bool) {
    let plan = Plan {
        workers: 1,
        soon,
        ..Plan::only(1, &[])
    };
    let mut scene = Scene::new(Ground::shared().await, &plan).await;
    let ledger = Ledger::default();
    let url = scene.producers_proxy.through(scene.ground.url());
    let producers = Producers::start(&url, &Dice::new(1), &ledger, 60);
    wait_until(LIMIT, "it is busy", async || {
        producers.bursts().ask();
        scene.held(0).await.len() > 10
    })
    .await;
    scene.workers[0].proxy.hang(hanging);
    let since = Instant::now();
    wait_until(LIMIT, "it notices", async || {
        let worker = scene.workers[0].process.as_ref().unwrap();
        worker.logged("lane connection lost")
    })
    .await;
    producers.stop().await;
    println!("noticed after {:.1?}", since.elapsed());
    wait_until(LIMIT, "everything is settled", async || {
        scene.unsettled().await == 0
    })
    .await;
    println!("settled after {:.1?}", since.elapsed());
    let beats = "SELECT count(*) > 0 FROM lanekeeper.worker WHERE beat_at > clock_timestamp() - interval '1 s'";
    wait_until(LIMIT, "it is known to live", async || {
        scene
            .client
            .query_one(beats, &[])
            .await
            .unwrap()
            .get::<_, bool>(0)
    })
    .await;
    let worker = scene.workers[0].process.as_ref().unwrap();
    let log = worker.log();
    let mut takeovers = log
        .lines()
        .filter(|line| line.contains("took over"))
        .peekable();
    assert!(takeovers.peek().is_some(), "{log}");
    assert!(takeovers.all(|line| line.contains("charged=0")), "{log}");
    for place in &mut scene.workers {
        place.process.take().unwrap().stop().await;
    }
}
