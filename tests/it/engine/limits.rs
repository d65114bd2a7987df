//! What a worker holds at once, over all its lane connections.

use std::time::Duration;

use lanekeeper::engine::WorkerSettings;

use super::bed::{Bed, LIMIT};
use crate::support::wait_until;

/// The most deliveries that run at once while `rounds` loads of 40 sessions come to one worker with
/// several lane connections, which all wake at the same moment.
async fn most_at_once(bed: &Bed, settings: WorkerSettings) -> usize {
    let worker = bed.worker_with(settings).await;
    let mut most = 0;
    for round in 1..=10_i64 {
        bed.fake.hold_all();
        bed.enqueue_bulk(40, 1).await;
        wait_until(LIMIT, "a delivery runs", async || {
            bed.fake.seen().running > 0
        })
        .await;
        // Whatever else is going to be claimed has been by then.
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(bed.fake.seen().running);
        bed.fake.release_all();
        wait_until(LIMIT, "the round is over", async || {
            bed.fake.seen().accepted().len() == 40 * round as usize
        })
        .await;
        bed.drained().await;
    }
    worker.stop().await;
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_delivers_no_more_lanes_of_a_subscription_at_once_than_its_concurrency() {
    let bed = Bed::new().await;
    let strictly_one = "UPDATE lanekeeper.subscription SET concurrency = 1";
    bed.client.batch_execute(strictly_one).await.unwrap();
    let settings = WorkerSettings {
        lane_connections: 4,
        ..WorkerSettings::default()
    };
    assert_eq!(most_at_once(&bed, settings).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_holds_no_more_lanes_at_once_than_max_lanes() {
    let bed = Bed::new().await;
    let settings = WorkerSettings {
        lane_connections: 4,
        max_lanes: 4,
        ..WorkerSettings::default()
    };
    assert_eq!(most_at_once(&bed, settings).await, 4);
}
