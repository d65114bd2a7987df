//! H3: SIGTERM while a thousand deliveries run.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use super::plant::{LIMIT, Plant};
use crate::support::wait_until;

const SESSIONS: usize = 1_000;
/// The default of `worker.shutdown_grace_ms`.
const GRACE: Duration = Duration::from_secs(25);

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_stop_with_a_thousand_deliveries_under_way_ends_them_all() {
    // The probe's client is made without TLS of its own.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plant = Plant::new(Duration::ZERO).await;
    let all = SESSIONS.to_string();
    let leaving = plant
        .worker(&[("LANEKEEPER_WORKER__MAX_LANES", &all)])
        .await;
    let sender = leaving.sender;
    plant.receiver.hold(sender);
    plant.enqueue("s", 1_000, 2).await;
    wait_until(LIMIT, "a thousand deliveries are under way", async || {
        plant.receiver.accepted() == SESSIONS
    })
    .await;
    leaving.signal(Signal::TERM);
    let probe = leaving.http() + "/readyz";
    wait_until(LIMIT, "it drains", async || {
        reqwest::get(&probe).await.unwrap().status() == 503
    })
    .await;
    let since = Instant::now();
    plant.receiver.release(sender);
    let status = leaving.stop().await;
    let took = since.elapsed();
    println!("ended {took:.0?} after the receiver answered");
    assert_eq!(status.code(), Some(0));
    assert!(took < GRACE, "{took:?}");
    assert_eq!(
        plant.receiver.accepted(),
        SESSIONS,
        "it began nothing after the signal"
    );
    let settled = "SELECT count(*) FROM lanekeeper.lane_status WHERE cursor = 1 AND behind = 1";
    assert_eq!(plant.count(settled).await, 1_000);
    for left in ["worker", "lane_connection", "claim"] {
        let rows = plant
            .count(&format!("SELECT count(*) FROM lanekeeper.{left}"))
            .await;
        assert_eq!(rows, 0, "{left}");
    }
    let next = plant.worker(&[]).await;
    plant.settled().await;
    assert_eq!(plant.assert_complete(SESSIONS, 2), 0, "nothing came twice");
    assert!(next.stop().await.success());
}
