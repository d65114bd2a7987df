//! A5, A6: SIGSTOP with deliveries in flight. A peer terminates the frozen worker's connections, and only the successor
//! settles what was in flight.

use std::time::Duration;

use rustix::process::Signal;

use super::plant::{LIMIT, Plant};
use crate::support::wait_until;

/// The same figures as by default, in a tenth of the time.
const SOON: [(&str, &str); 3] = [
    ("LANEKEEPER_WORKER__FROZEN_AFTER_MS", "3000"),
    ("LANEKEEPER_WORKER__TRUST_MS", "1000"),
    ("LANEKEEPER_WORKER__HEARTBEAT_MS", "500"),
];

const PROGRESS: &str =
    "SELECT coalesce(json_agg(p ORDER BY p.lane_id), '[]')::text FROM lanekeeper.progress AS p";

#[tokio::test(flavor = "multi_thread")]
async fn a_thawed_worker_settles_nothing_and_its_successors_order_is_intact() {
    let plant = Plant::new(Duration::ZERO).await;
    let frozen = plant.worker(&SOON).await;
    plant.receiver.hold(frozen.sender);
    plant.enqueue("s", 20, 5).await;
    plant
        .receiver
        .wait_until(LIMIT, "all heads are in flight", |seen| {
            seen.arrivals.len() == 20
        })
        .await;
    let successor = plant.worker(&SOON).await;
    frozen.signal(Signal::STOP);
    plant.settled().await;
    assert!(successor.logged("ended a connection of a worker without heartbeat"));
    wait_until(LIMIT, "the successor takes over", async || {
        successor.logged("took over")
    })
    .await;
    for line in successor
        .log()
        .lines()
        .filter(|line| line.contains("took over"))
    {
        assert!(line.contains("charged=0"), "nobody crashed: {line}");
    }
    let by_successor = plant.receiver.seen().arrivals;
    assert!(
        by_successor[20..]
            .iter()
            .all(|one| one.sender == successor.sender)
    );
    let progress = async || -> String {
        let row = plant.client.query_one(PROGRESS, &[]).await.unwrap();
        row.get(0)
    };
    let before = progress().await;

    // It gets the answer to what it sent before it froze, and would like to settle.
    plant.receiver.release(frozen.sender);
    frozen.signal(Signal::CONT);
    wait_until(LIMIT, "it notices", async || {
        frozen.logged("lane connection lost")
    })
    .await;
    // Not the one for handlers, which is opened when the registry's subscription is there.
    wait_until(LIMIT, "it is back with both connections", async || {
        plant
            .count(&format!(
                "SELECT count(*) FROM lanekeeper.lane_connection AS c
                 JOIN lanekeeper.worker AS w USING (worker_id)
                 JOIN pg_stat_activity AS a ON a.pid = c.backend_pid AND a.backend_start = c.backend_start
                 WHERE w.pid = {} AND a.application_name = 'lanekeeper lanes'",
                frozen.pid()
            ))
            .await
            == 2
    })
    .await;
    assert_eq!(progress().await, before, "it settled something");

    assert!(successor.stop().await.success());
    plant.enqueue("s", 20, 5).await;
    plant.settled().await;
    let repeats = plant.assert_complete(20, 10);
    assert_eq!(repeats, 20, "only what was in flight came twice");
    let last = plant.receiver.seen().arrivals.pop().unwrap();
    assert_eq!(last.sender, frozen.sender, "it works again");
    assert_eq!(frozen.stop().await.code(), Some(0));
}

/// It has all producers that meet an idle lane commit one after the other, for as long as it has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_worker_keeps_no_doorbell() {
    let plant = Plant::new(Duration::ZERO).await;
    let frozen = plant.worker(&SOON).await;
    let holder = async || -> Option<i32> {
        let holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                      AND (classid::bigint << 32 | objid::bigint) = lanekeeper.doorbell_lock()";
        let row = plant.client.query_opt(holder, &[]).await.unwrap();
        row.map(|row| row.get(0))
    };
    wait_until(LIMIT, "it has the doorbell", async || {
        holder().await.is_some()
    })
    .await;
    let before = holder().await;
    frozen.signal(Signal::STOP);
    let successor = plant.worker(&SOON).await;
    wait_until(LIMIT, "its peer has it", async || {
        holder().await.is_some_and(|now| Some(now) != before)
    })
    .await;
    frozen.signal(Signal::CONT);
    assert_eq!(successor.stop().await.code(), Some(0));
    assert_eq!(frozen.stop().await.code(), Some(0));
}
