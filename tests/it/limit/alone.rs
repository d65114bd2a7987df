//! G4, I10: Redis goes away and comes back, for all processes or for one of them; or there is no Redis.

use rustix::process::Signal;
use tokio::time::Instant;

use super::ground::{Ground, LIMIT, assert_never_faster, used};
use crate::support::{WorkerProcess, wait_until};

async fn all_logged(workers: &[WorkerProcess], text: &str, times: usize) {
    let count = |worker: &WorkerProcess| worker.log().matches(text).count();
    wait_until(LIMIT, text, async || {
        workers.iter().all(|worker| count(worker) >= times)
    })
    .await;
}

const AWAY: &str = "Redis is away";
const SHARED: &str = "limits are shared";

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_for_a_while_the_limit_holds_and_deliveries_go_on() {
    let mut ground = Ground::new("limit = { rate = \"40/s\" }").await;
    let workers = ground.workers(3).await;
    ground.enqueue(30, 20).await;
    ground.accepted(60).await;
    ground.redis.kill();
    let killed_at = Instant::now();
    all_logged(&workers, AWAY, 1).await;
    ground.accepted(220).await;
    let back_at = Instant::now();
    ground.redis.restart();
    all_logged(&workers, SHARED, 2).await;
    println!("shared again after {:.2?}", back_at.elapsed());
    ground.accepted(600).await;
    let arrivals = ground.receiver.seen().arrivals;
    println!(
        "{:.2} of the rate without Redis",
        used(&arrivals, 40.0, killed_at, back_at)
    );
    assert_never_faster(&arrivals, 40.0, 1);
    ground.assert_exact(30, 20);
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stands_still_counts_as_away_and_what_it_does_late_counts_for_nothing() {
    let ground = Ground::new("limit = { rate = \"40/s\" }").await;
    let workers = ground.workers(3).await;
    ground.enqueue(30, 15).await;
    ground.accepted(60).await;
    ground.redis.signal(Signal::STOP);
    all_logged(&workers, AWAY, 1).await;
    ground.accepted(180).await;
    ground.redis.signal(Signal::CONT);
    all_logged(&workers, SHARED, 2).await;
    ground.accepted(450).await;
    assert_never_faster(&ground.receiver.seen().arrivals, 40.0, 1);
    ground.assert_exact(30, 15);
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_worker_that_loses_redis_for_a_moment_goes_on_when_it_is_back() {
    let mut ground = Ground::new("limit = { rate = \"40/s\" }").await;
    let redis = ground.redis.url();
    // On its own it is silent for its first three beats, where there are others.
    let variables = [
        ("REDIS_URL", redis.as_str()),
        ("LANEKEEPER_WORKER__HEARTBEAT_MS", "10000"),
    ];
    let workers = ground.workers_with(2, &variables).await;
    all_logged(&workers, SHARED, 1).await;
    let (other, new) = (&workers[0], &workers[1..]);
    other.signal(Signal::STOP);
    ground.enqueue(30, 4).await;
    ground.accepted(40).await;
    ground.redis.kill();
    all_logged(new, AWAY, 1).await;
    ground.redis.restart();
    all_logged(new, SHARED, 2).await;
    let back_at = Instant::now();
    ground.accepted(120).await;
    let took = back_at.elapsed();
    other.signal(Signal::CONT);
    println!("all of it {took:.2?} after Redis was back");
    // 4 s at half the limit. The beats are over more than 20 s after Redis was back.
    assert!(took.as_secs() < 15, "{took:?}");
    assert_never_faster(&ground.receiver.seen().arrivals, 40.0, 1);
    ground.assert_exact(30, 4);
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_that_cannot_reach_redis_takes_its_share_and_the_others_leave_it() {
    let ground = Ground::new("limit = { rate = \"40/s\" }").await;
    let redis = ground.redis.url();
    let mut workers = ground.workers_with(2, &[("REDIS_URL", &redis)]).await;
    let nowhere = [("REDIS_URL", "redis://127.0.0.1:1")];
    let (sender, secret) = ground.receiver.new_secret();
    let mut variables = vec![("LANEKEEPER_WORKER__HEARTBEAT_MS", "500")];
    variables.extend(nowhere);
    let cut_off = WorkerProcess::spawn(&ground.url, sender, &secret, &variables);
    cut_off.serves().await;
    workers.push(cut_off);
    all_logged(&workers[..2], SHARED, 1).await;
    ground.enqueue(30, 12).await;
    ground.accepted(360).await;
    let arrivals = ground.receiver.seen().arrivals;
    assert!(arrivals.iter().any(|one| one.sender == sender), "it sends");
    assert!(
        arrivals.iter().any(|one| one.sender != sender),
        "so do the others"
    );
    assert_never_faster(&arrivals, 40.0, 1);
    ground.assert_exact(30, 12);
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_configured_redis_each_worker_keeps_to_its_share_and_says_so() {
    let ground = Ground::new("limit = { rate = \"40/s\" }").await;
    let workers = ground.workers_with(3, &[]).await;
    all_logged(&workers, "no Redis is configured", 1).await;
    ground.enqueue(30, 8).await;
    ground.accepted(240).await;
    assert_never_faster(&ground.receiver.seen().arrivals, 40.0, 1);
    ground.assert_exact(30, 8);
    Ground::stop(workers).await;
}
