//! Lanes that are held while their subscription is paused or changed.

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

const CLAIMS: &str = "SELECT count(*) FROM lanekeeper.claim";

/// Another subscription that was put in force later is delivered: so the worker knows of both changes.
async fn noticed(bed: &Bed, stream: &'static str) {
    bed.subscribe(&Sub {
        name: stream,
        stream,
        ..Sub::default()
    })
    .await;
    // By the second one, a claim that saw all routes has been made.
    for _ in 0..2 {
        enqueue_to(bed, stream).await;
    }
}

async fn enqueue_to(bed: &Bed, stream: &str) {
    let before = bed.accepted().get(stream).map_or(0, Vec::len);
    bed.client
        .execute(
            "SELECT lanekeeper.enqueue($1, $1, 'step', '{}')",
            &[&stream],
        )
        .await
        .unwrap();
    wait_until(LIMIT, "it is delivered", async || {
        bed.accepted()
            .get(stream)
            .is_some_and(|seqs| seqs.len() > before)
    })
    .await;
}

async fn pause(bed: &Bed, reason: Option<&str>) {
    bed.client
        .execute(
            "SELECT lanekeeper.pause_subscription('out', $1)",
            &[&reason],
        )
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lane_ends_with_the_delivery_under_way_when_its_subscription_is_paused() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 20).await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.fake.wait_for(1).await;
    pause(&bed, Some("maintenance")).await;
    noticed(&bed, "inbound").await;
    bed.fake.release("s1");
    wait_until(LIMIT, "the lane is let go", async || {
        bed.count(CLAIMS).await == 0
    })
    .await;
    assert_eq!(bed.accepted()["s1"], [1]);
    pause(&bed, None).await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], (1..=20).collect::<Vec<i64>>());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_held_over_a_pause_count_against_the_concurrency_after_it() {
    let bed = Bed::new().await;
    bed.client
        .batch_execute("UPDATE lanekeeper.subscription SET concurrency = 1")
        .await
        .unwrap();
    bed.enqueue_bulk(3, 1).await;
    for session in ["s1", "s2", "s3"] {
        bed.fake.hold(session);
    }
    let worker = bed.worker().await;
    bed.fake.wait_for(1).await;
    pause(&bed, Some("maintenance")).await;
    noticed(&bed, "inbound").await;
    pause(&bed, None).await;
    noticed(&bed, "messages").await;
    let tried = bed.fake.seen().deliveries;
    let ours = tried
        .iter()
        .filter(|one| one.event.session.starts_with('s') && one.event.session.len() == 2);
    assert_eq!(ours.count(), 1);
    bed.fake.release_all();
    bed.drained().await;
    worker.stop().await;
}
