//! C8: a destination that fails for many sessions gets no deliveries from any process, except one probe at a time.

use std::time::Duration;

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::WorkerSettings;
use lanekeeper_limit::BreakerSettings;

use super::ground::{Ground, LIMIT};
use crate::command::run;
use crate::engine::bed::Bed;
use crate::support::{Arrival, WorkerProcess, wait_until};

const OPEN: Duration = Duration::from_secs(2);

async fn workers(ground: &Ground, variables: &[(&str, &str)]) -> Vec<WorkerProcess> {
    let mut all = vec![
        ("LANEKEEPER_WORKER__BREAKER_OPEN_MS", "2000"),
        ("LANEKEEPER_WORKER__POLL_FLOOR_MS", "50"),
    ];
    all.extend(variables);
    ground.workers_with(3, &all).await
}

/// The attempts that were begun when the circuit had been open for a moment, and their distances.
fn probes(turned_away: &[Arrival], since: tokio::time::Instant) -> Vec<Duration> {
    let at: Vec<_> = turned_away
        .iter()
        .map(|one| one.at)
        .filter(|at| *at > since)
        .collect();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_failing_lanes_cause_one_probe_at_a_time_and_others_go_on() {
    // A schedule that would try all of them again and again.
    let ground = Ground::new("retry = { schedule = [\"100ms\"] }").await;
    // It knows no secret of the workers: what arrives is refused there for good, which is an answer.
    let other = crate::support::Receiver::start(Duration::ZERO).await;
    let sound = format!(
        "[subscription.sound]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"{}\"\n",
        other.url()
    );
    ground
        .apply(&(ground.section("out", "retry = { schedule = [\"100ms\"] }") + &sound))
        .await;
    ground.receiver.set_broken(true);
    let redis = ground.redis.url();
    let workers = workers(&ground, &[("REDIS_URL", &redis)]).await;
    for worker in &workers {
        wait_until(LIMIT, "limits are shared", async || {
            worker.logged("limits are shared")
        })
        .await;
    }
    ground.enqueue(200, 1).await;
    wait_until(LIMIT, "the circuit opens", async || {
        workers.iter().any(|worker| worker.logged("circuit opened"))
    })
    .await;
    let variables = [("REDIS_URL", redis.as_str())];
    let listed = run(&["breaker", "list", "--output", "json"], &variables, "").await;
    assert!(
        listed.stdout.contains("\"state\":\"open\""),
        "{}",
        listed.stdout
    );
    // What was under way when it opened has come by then.
    tokio::time::sleep(OPEN).await;
    let since = tokio::time::Instant::now();
    let before = ground.receiver.seen().turned_away.len();
    ground
        .receiver
        .wait_until(LIMIT, "three probes", |seen| {
            seen.turned_away.len() >= before + 3
        })
        .await;
    let distances = probes(&ground.receiver.seen().turned_away, since);
    println!("{before} attempts until it was quiet, then probes at distances of {distances:.2?}");
    assert!(
        distances
            .iter()
            .all(|distance| *distance >= OPEN.mul_f64(0.9)),
        "{distances:?}"
    );
    other
        .wait_until(LIMIT, "the other destination has everything", |seen| {
            seen.refused.len() + seen.arrivals.len() >= 200
        })
        .await;
    ground.receiver.set_broken(false);
    ground.accepted(200).await;
    let seen = ground.receiver.seen();
    let (arrived, repeats) = seen.deduplicated();
    assert_eq!((arrived.len(), repeats), (200, 0));
    let unburnt = seen.arrivals.iter().filter(|one| one.attempt == 1).count();
    println!("{unburnt} of 200 lanes never burnt an attempt");
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_has_a_destination_tried_at_once() {
    let ground = Ground::new("retry = { schedule = [\"100ms\"] }").await;
    ground.receiver.set_broken(true);
    let redis = ground.redis.url();
    let long = [
        ("REDIS_URL", redis.as_str()),
        ("LANEKEEPER_WORKER__BREAKER_OPEN_MS", "3600000"),
    ];
    let workers = ground.workers_with(2, &long).await;
    for worker in &workers {
        wait_until(LIMIT, "limits are shared", async || {
            worker.logged("limits are shared")
        })
        .await;
    }
    ground.enqueue(30, 1).await;
    wait_until(LIMIT, "the circuit opens", async || {
        workers.iter().any(|worker| worker.logged("circuit opened"))
    })
    .await;
    let variables = [("REDIS_URL", redis.as_str())];
    let list = async || {
        run(&["breaker", "list", "--output", "json"], &variables, "")
            .await
            .stdout
    };
    // A process may open it for itself before Redis has answered.
    wait_until(LIMIT, "it is open for all", async || {
        !list().await.trim().is_empty()
    })
    .await;
    ground.receiver.set_broken(false);
    let listed = list().await;
    let row: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
    let destination = row["destination"].as_str().unwrap();
    let reset = run(&["breaker", "reset", destination], &variables, "").await;
    assert!(reset.stdout.contains("is tried again"), "{}", reset.stderr);
    ground.accepted(30).await;
    Ground::stop(workers).await;
    assert_eq!(run(&["breaker", "list"], &[], "").await.code, Some(2));
}

/// Lanes that fail while `broken`, in one process without Redis.
async fn alone(
    lanes: i64,
) -> (
    Bed,
    Fake,
    lanekeeper_engine::Worker,
    tokio::sync::watch::Sender<bool>,
) {
    let broken = tokio::sync::watch::Sender::new(true);
    let watched = broken.clone();
    let fake = Fake::answering(move |_| match *watched.borrow() {
        true => Verdict::Retry {
            error: "down".to_owned(),
            after: None,
        },
        false => Verdict::Accepted,
    });
    let bed = Bed::new().await;
    let settings = WorkerSettings {
        breaker: BreakerSettings {
            lanes: 5,
            open: Duration::from_secs(2),
        },
        ..WorkerSettings::default()
    };
    let worker = Bed::start(bed.db.url(), fake.clone(), settings).await;
    bed.enqueue_bulk(lanes, 1).await;
    (bed, fake, worker, broken)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_process_has_breakers_of_its_own() {
    let (bed, fake, worker, broken) = alone(100).await;
    // Each would fail twenty times a second.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let attempts = fake.seen().deliveries.len();
    println!("{attempts} attempts in 5 s");
    assert!(
        attempts < 100 + 64 + 5,
        "what was under way, and probes: {attempts}"
    );
    broken.send_replace(false);
    wait_until(LIMIT, "everything is accepted", async || {
        fake.seen().accepted().len() == 100
    })
    .await;
    bed.drained().await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_fail_on_their_own_account_open_nothing() {
    let (bed, fake, worker, broken) = alone(4).await;
    fake.wait_until(|seen| seen.deliveries.len() >= 60).await;
    broken.send_replace(false);
    bed.drained().await;
    worker.stop().await;
}
