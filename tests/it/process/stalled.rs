//! F6: work that is due and makes no progress is noticed, told once and taken over.

use std::time::Duration;

use super::plant::{LIMIT, Plant};
use crate::support::wait_until;

#[cfg(feature = "crash-points")]
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_loop_that_stands_still_is_ended_told_and_its_lanes_go_on_elsewhere() {
    let plant = Plant::new(Duration::ZERO).await;
    let still = plant
        .worker(&[
            ("HANG", "claim"),
            ("LANEKEEPER_WORKER__LANE_CONNECTIONS", "1"),
            ("LANEKEEPER_WORKER__TRUST_MS", "1000"),
        ])
        .await;
    plant.enqueue("s", 5, 4).await;
    plant
        .receiver
        .wait_until(LIMIT, "it has lanes", |seen| !seen.arrivals.is_empty())
        .await;
    let successor = plant.worker(&[]).await;
    plant.settled().await;
    assert!(still.logged("a claim loop stands still"), "{}", still.log());
    let lines = still
        .log()
        .lines()
        .filter(|line| line.contains("a claim loop stands still"))
        .count();
    assert_eq!(lines, 1, "told once");
    assert!(
        !still.logged("took over"),
        "it holds nothing any more that it could take over from itself"
    );
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ready = reqwest::get(format!("{}/readyz", still.http()))
        .await
        .unwrap();
    assert_eq!(ready.status(), 503);
    let reason = ready.text().await.unwrap();
    assert!(reason.contains("a claim loop has stood still"), "{reason}");
    let metrics = reqwest::get(format!("{}/metrics", still.http()))
        .await
        .unwrap();
    let metrics = metrics.text().await.unwrap();
    let stands = |line: &str| line.starts_with("lanekeeper_worker_stalled") && line.ends_with(" 1");
    assert!(metrics.lines().any(stands), "{metrics}");
    successor.stop().await;
    still.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_takes_too_long_and_a_subscription_that_nobody_delivers_are_told_once() {
    let plant = Plant::new(Duration::ZERO).await;
    let soon = [("LANEKEEPER_WORKER__STALLED_AFTER_MS", "1000")];
    plant
        .client
        .batch_execute(
            "INSERT INTO lanekeeper.subscription (stream_id, name, adapter, retry_schedule_ms, max_attempts, on_exhausted, coalesce)
             SELECT stream_id, 'nobodys', 'unknown', '{10}', 0, 'park', false FROM lanekeeper.stream WHERE name = 'runs';
             UPDATE lanekeeper.stream SET lanes_version = lanes_version + 1 WHERE name = 'runs'",
        )
        .await
        .unwrap();
    let worker = plant.worker(&soon).await;
    plant.receiver.hold(worker.sender);
    plant.enqueue("s", 1, 1).await;
    let count = |name: &str, what: &str| {
        let name = format!("subscription=\"{name}\"");
        let log = worker.log();
        let lines = log
            .lines()
            .filter(|line| line.contains(what) && line.contains(&name));
        lines.count()
    };
    for (name, state) in [("nobodys", "state=Due"), ("out", "state=Held")] {
        wait_until(LIMIT, name, async || count(name, "makes no progress") == 1).await;
        assert_eq!(count(name, state), 1, "{}", worker.log());
    }
    let variables = [("DATABASE_URL", plant.url.as_str()), soon[0]];
    let status = crate::command::run(&["status"], &variables, "").await;
    assert!(
        status.stdout.contains("nobodys: session s1 has waited for"),
        "{}",
        status.stdout
    );
    plant.receiver.release(worker.sender);
    let mended = "UPDATE lanekeeper.subscription SET adapter = 'stdout', version = version + 1 WHERE name = 'nobodys'";
    plant.client.batch_execute(mended).await.unwrap();
    for name in ["nobodys", "out"] {
        wait_until(LIMIT, name, async || {
            count(name, "makes progress again") == 1
        })
        .await;
        assert_eq!(count(name, "makes no progress"), 1, "told once");
    }
    worker.stop().await;
}
