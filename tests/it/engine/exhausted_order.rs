//! A3, I4: events after an exhausted event wait until its outcome is recorded.

use std::sync::{Arc, OnceLock};

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;

use super::bed::{Bed, LIMIT};
use crate::support::wait_until;

/// Found by chaos: the first event was refused for good and the second accepted, the connection was
/// cut before the dead letter was written, and the first came again, after the second.
#[tokio::test(flavor = "multi_thread")]
async fn no_event_is_accepted_after_its_successor_when_a_dead_letter_was_lost_with_a_connection() {
    let mut bed = Bed::new().await;
    let itself: Arc<OnceLock<Fake>> = Arc::default();
    let holder = Arc::clone(&itself);
    bed.fake = Fake::answering(move |delivery| {
        if delivery.event.seq == 2 {
            holder.get().unwrap().hold("s1");
        }
        Verdict::Accepted
    });
    itself.get_or_init(|| bed.fake.clone());
    let refused = Verdict::Rejected {
        error: "never".to_owned(),
    };
    bed.fake.script("s1", 1, [refused]);
    bed.enqueue_bulk(1, 3).await;
    let worker = bed.worker().await;
    wait_until(LIMIT, "the third is in flight", async || {
        let seen = bed.fake.seen();
        seen.running == 1 && seen.deliveries.last().unwrap().event.seq == 3
    })
    .await;
    bed.count("SELECT count(*) FILTER (WHERE pg_terminate_backend(backend_pid)) FROM lanekeeper.lane_connection")
        .await;
    wait_until(LIMIT, "its delivery is dropped", async || {
        bed.fake.seen().running == 0
    })
    .await;
    wait_until(LIMIT, "everything is settled", async || {
        bed.fake.release_all();
        bed.undelivered().await == 0
    })
    .await;
    let mut firsts = bed.accepted().remove("s1").unwrap();
    println!("accepted: {firsts:?}");
    let mut seen = std::collections::HashSet::new();
    firsts.retain(|seq| seen.insert(*seq));
    assert!(firsts.is_sorted(), "{firsts:?}");
    let dead = bed.count("SELECT count(*) FROM lanekeeper.dead").await;
    assert_eq!(dead, 1, "it was refused for good");
    worker.stop().await;
}
