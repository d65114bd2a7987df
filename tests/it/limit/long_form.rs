//! The figures of docs/limits.md: a minute each, on a machine that does nothing else. Not part of
//! `make test`; the command is in docs/limits.md.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ground::{Ground, most_in_a_second, used};
use crate::support::WorkerProcess;

const RATE: f64 = 30.0;

/// Processor time that the processes used so far.
fn processor_time(workers: &[WorkerProcess]) -> Duration {
    let ticks = |worker: &WorkerProcess| {
        let path = format!("/proc/{}/stat", worker.pid());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let after = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |i: usize| fields.get(i).and_then(|ticks| ticks.parse::<u64>().ok());
        ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0)
    };
    Duration::from_millis(workers.iter().map(ticks).sum::<u64>() * 10)
}

async fn measured(limit: &str, lanes: i64, count: i64) -> (Ground, Vec<WorkerProcess>) {
    let ground = Ground::new(limit).await;
    let workers = ground.workers(4).await;
    ground.enqueue(lanes, count).await;
    ground.accepted(30).await;
    (ground, workers)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute on a quiet machine"]
async fn a_minute_of_thirty_a_second_over_four_processes() {
    let (ground, workers) = measured("limit = { rate = \"30/s\" }", 200, 15).await;
    let (from, spent) = (Instant::now(), processor_time(&workers));
    sleep(Duration::from_secs(60)).await;
    let (to, spent) = (Instant::now(), processor_time(&workers) - spent);
    let arrivals = ground.receiver.seen().arrivals;
    let (most, used) = (most_in_a_second(&arrivals), used(&arrivals, RATE, from, to));
    println!(
        "at most {most} in a second, {used:.4} used, {spent:?} of processor time in four workers"
    );
    assert!(most <= 31, "{most}");
    assert!(used >= 0.97, "{used}");
    let seen = ground.receiver.seen();
    let (sessions, repeats) = seen.deduplicated();
    assert_eq!(repeats, 0);
    for (session, seqs) in sessions {
        let in_order = seqs.iter().copied().eq(1..=seqs.len() as i64);
        assert!(in_order, "session {session}: {seqs:?}");
    }
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute on a quiet machine"]
async fn a_minute_with_redis_killed_in_its_middle() {
    let (mut ground, workers) = measured("limit = { rate = \"30/s\" }", 200, 15).await;
    let from = Instant::now();
    sleep(Duration::from_secs(20)).await;
    ground.redis.kill();
    let killed = Instant::now();
    sleep(Duration::from_secs(20)).await;
    let back = Instant::now();
    ground.redis.restart();
    sleep(Duration::from_secs(20)).await;
    let to = Instant::now();
    let arrivals = ground.receiver.seen().arrivals;
    let most = most_in_a_second(&arrivals);
    let whole = used(&arrivals, RATE, from, to);
    let away = used(&arrivals, RATE, killed, back);
    let again = used(&arrivals, RATE, back + Duration::from_secs(5), to);
    println!(
        "at most {most} in a second; used: {whole:.4} in all, {away:.4} without Redis, {again:.4} from 5 s after its return"
    );
    assert!(most <= 31, "{most}");
    assert!(away >= 0.7 && again >= 0.95, "{away} {again}");
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute on a quiet machine"]
async fn ten_thousand_lanes_wait_on_one_bucket() {
    let ground = Ground::new("limit = { rate = \"30/h\" }").await;
    let workers = ground.workers(1).await;
    ground.enqueue(10_000, 1).await;
    ground.accepted(1).await;
    sleep(Duration::from_secs(5)).await;
    let spent = processor_time(&workers);
    sleep(Duration::from_secs(30)).await;
    let spent = processor_time(&workers) - spent;
    println!("{spent:?} of processor time in 30 s");
    assert!(spent <= Duration::from_millis(300), "{spent:?}");
    Ground::stop(workers).await;
}
