//! G1, G2: one limit over several processes.

use super::ground::{Ground, assert_never_faster, most_in_a_second};

#[tokio::test(flavor = "multi_thread")]
async fn four_processes_share_one_limit_and_every_session_keeps_its_order() {
    let ground = Ground::new("limit = { rate = \"20/s\", burst = 1, key = \"token\" }").await;
    let workers = ground.workers(4).await;
    ground.enqueue(40, 4).await;
    ground.accepted(160).await;
    let arrivals = ground.receiver.seen().arrivals;
    let (first, last) = (&arrivals[0], &arrivals[159]);
    println!(
        "160 in {:.2?}, at most {} in a second",
        last.at - first.at,
        most_in_a_second(&arrivals)
    );
    assert_never_faster(&arrivals, 20.0, 1);
    ground.assert_exact(40, 4);
    let senders: std::collections::HashSet<_> = arrivals.iter().map(|one| one.sender).collect();
    assert_eq!(senders.len(), 4, "each of them had its part");
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_with_one_key_share_its_limit() {
    let limit = "limit = [{ rate = \"20/s\", key = \"token\" }, { rate = \"600/min\", burst = 5 }]";
    let ground = Ground::new(limit).await;
    let both = ground.section("out", limit) + &ground.section("more", limit);
    ground.apply(&both).await;
    let workers = ground.workers(2).await;
    ground.enqueue(10, 3).await;
    ground.accepted(60).await;
    // The stricter one of the two counts: ten a second, for both subscriptions together.
    assert_never_faster(&ground.receiver.seen().arrivals, 10.0, 5);
    Ground::stop(workers).await;
}
