//! H3: SIGTERM under load.

use std::time::Duration;

use tokio::time::Instant;

use super::plant::{LIMIT, Plant};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_stop_under_load_exits_0_and_repeats_nothing() {
    let plant = Plant::new(Duration::from_millis(20)).await;
    let leaving = plant
        .worker(&[("LANEKEEPER_WORKER__MAX_LANES", "40")])
        .await;
    plant.enqueue("leaving", 40, 60).await;
    wait_until(LIMIT, "it is busy", async || {
        plant.held_by(&leaving).await.len() == 40
    })
    .await;
    let staying = plant.worker(&[]).await;
    plant.enqueue("staying", 40, 60).await;
    let sender = staying.sender;
    plant
        .receiver
        .wait_until(LIMIT, "the other one is busy too", |seen| {
            seen.arrivals.iter().any(|one| one.sender == sender)
        })
        .await;
    assert!(!plant.held_by(&leaving).await.is_empty());
    let since = Instant::now();
    let status = leaving.stop().await;
    let took = since.elapsed();
    println!("ended {took:.0?} after SIGTERM");
    assert_eq!(status.code(), Some(0));
    assert!(
        took < Duration::from_secs(5),
        "no delivery takes longer than 20 ms: {took:?}"
    );
    plant.settled().await;
    assert_eq!(plant.assert_complete(80, 60), 0, "nothing came twice");
    // A worker that stops leaves the tokens of lanes that it had no time to find empty.
    wait_until(LIMIT, "the other one finds every lane empty", async || {
        plant.count("SELECT count(*) FROM lanekeeper.ready").await == 0
    })
    .await;
    assert!(staying.stop().await.success());
    for left in ["worker", "lane_connection", "claim", "ready"] {
        let rows = plant
            .count(&format!("SELECT count(*) FROM lanekeeper.{left}"))
            .await;
        assert_eq!(rows, 0, "{left}");
    }
}
