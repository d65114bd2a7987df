//! What survivors charge for dead workers.

use lanekeeper::store::claim::Bound;
use lanekeeper::store::{settle, worker};

use super::connection::Connection;
use crate::engine::bed::{Bed, LIMIT};
use crate::support::wait_until;

const CHARGED: &str = "SELECT max(crashes)::bigint FROM lanekeeper.progress";

/// A poison event can kill worker after worker before the first of them is charged for: whoever is next
/// finds the lanes free at once. Its neighbours would come to the number that exhausts an event.
#[tokio::test]
async fn any_number_of_deaths_among_others_makes_a_head_suspect_and_no_more() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(2, 1).await;
    for _ in 0..8 {
        let mut dying = Connection::open(&bed).await;
        wait_until(LIMIT, "the locks are free", async || {
            dying.claim(Bound::START, 2).await.lanes.len() == 2
        })
        .await;
    }
    let survivor = Connection::open(&bed).await;
    let own = worker::new_worker_id(&survivor.client).await.unwrap();
    let no_claims = "SELECT count(*) FROM lanekeeper.claim";
    wait_until(LIMIT, "all are taken over", async || {
        worker::take_over(&survivor.client, own, 30_000)
            .await
            .unwrap();
        bed.count(no_claims).await == 0
    })
    .await;
    assert_eq!(bed.count(CHARGED).await, 2);

    // From there on it is delivered alone, and another death is its own.
    let mut alone = Connection::open(&bed).await;
    let lanes = alone.claim(Bound::START, 2).await.lanes;
    let suspect = (lanes[0].lane_id, lanes[0].version, lanes[0].crashes);
    settle::record_suspect(&alone.client, alone.connection_id, 100, suspect)
        .await
        .unwrap();
    drop(alone);
    wait_until(LIMIT, "it is taken over", async || {
        worker::take_over(&survivor.client, own, 30_000)
            .await
            .unwrap();
        bed.count(no_claims).await == 0
    })
    .await;
    assert_eq!(bed.count(CHARGED).await, 3);
    let beyond = "SELECT count(DISTINCT lane_id) FROM lanekeeper.progress WHERE crashes = 3";
    assert_eq!(bed.count(beyond).await, 1);
}
