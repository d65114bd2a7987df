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
#[ignore = "a defect: a worker that gave a lane connection up does not end it at the server, whose lock \
            keeps the lanes for as long as the middlebox keeps the connection"]
async fn lanes_of_connections_that_hang_while_their_worker_lives_are_delivered() {
    let plan = Plan {
        workers: 1,
        soon: true,
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
    scene.workers[0].proxy.hang(" lanes");
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
    for place in &mut scene.workers {
        place.process.take().unwrap().stop().await;
    }
}
