//! I13: server processes that are stopped. The worker abandons their connections. Their locks stay until they run
//! again, and nothing else of the worker waits for them.

use std::time::Duration;

use lanekeeper_postgres::{Database, pool};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::plant::{LIMIT, Plant};
use crate::support::{Server, WorkerProcess, connect, stand_in_line, wait_until};

/// More than the control connection could wait for one by one.
const CONNECTIONS: usize = 14;
const SOON: [(&str, &str); 3] = [
    ("LANEKEEPER_WORKER__LANE_CONNECTIONS", "14"),
    ("LANEKEEPER_WORKER__TRUST_MS", "1000"),
    ("LANEKEEPER_WORKER__HEARTBEAT_MS", "500"),
];

/// Backends that do not run until this is dropped.
struct Stopped(Vec<i32>);

impl Stopped {
    /// `count` of a name like this, as soon as there are so many.
    async fn of(plant: &Plant, name: &str, count: usize) -> Self {
        let query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE $1";
        let pids = async || -> Vec<i32> {
            let rows = plant.client.query(query, &[&name]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        wait_until(LIMIT, "they are there", async || {
            pids().await.len() == count
        })
        .await;
        let stopped = Self(pids().await);
        for pid in &stopped.0 {
            kill_process(Pid::from_raw(*pid).unwrap(), Signal::STOP).unwrap();
        }
        stopped
    }

    /// How many the server has still.
    async fn there(plant: &Plant, pids: &[i32]) -> i64 {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)";
        let row = plant.client.query_one(query, &[&pids]).await.unwrap();
        row.get(0)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            // It is gone where the server was first.
            let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::CONT);
        }
    }
}

async fn given_up(worker: &WorkerProcess, what: &str, count: usize) {
    wait_until(LIMIT, "they are given up", async || {
        worker.log().matches(what).count() >= count
    })
    .await;
}

async fn gone(plant: &Plant, pids: &[i32]) {
    wait_until(LIMIT, "they are gone", async || {
        Stopped::there(plant, pids).await == 0
    })
    .await;
}

async fn beats_on(plant: &Plant) {
    let beats = async || {
        let versions = "SELECT max(version)::bigint FROM lanekeeper.worker";
        plant.count(versions).await
    };
    let before = beats().await;
    wait_until(LIMIT, "its heart beats on", async || {
        beats().await >= before + 6
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_beats_delivers_and_stops_while_lane_connections_that_it_gave_up_do_not_end() {
    let server = Server::start().await;
    let plant = Plant::on(server.url.clone(), "runs", Duration::ZERO).await;
    let worker = plant.worker(&SOON).await;
    let stopped = Stopped::of(&plant, "lanekeeper lanes", CONNECTIONS).await;
    given_up(&worker, "lane connection lost", CONNECTIONS).await;
    beats_on(&plant).await;
    plant.enqueue("s", 5, 2).await;
    plant.settled().await;
    plant.assert_complete(5, 2);
    let pids = stopped.0.clone();
    assert_eq!(Stopped::there(&plant, &pids).await, 14, "none ended");

    assert_eq!(worker.stop().await.code(), Some(0));
    let rows = "SELECT count(*) FROM lanekeeper.worker";
    assert_eq!(plant.count(rows).await, 1, "for survivors to count from");
    drop(stopped);
    gone(&plant, &pids).await;
    drop(plant);
    server.stop().await;
}

/// It has the liveness lock, which counts as this worker's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_beats_while_its_last_control_connection_does_not_end_and_then_has_its_lock() {
    let server = Server::start().await;
    let plant = Plant::on(server.url.clone(), "runs", Duration::ZERO).await;
    let worker = plant.worker(&SOON).await;
    let stopped = Stopped::of(&plant, "lanekeeper control", 1).await;
    given_up(&worker, "control connection lost", 1).await;
    beats_on(&plant).await;
    let pids = stopped.0.clone();
    assert_eq!(Stopped::there(&plant, &pids).await, 1, "it did not end");
    drop(stopped);
    gone(&plant, &pids).await;
    let holder = "SELECT count(*) FROM pg_locks AS l CROSS JOIN lanekeeper.worker AS w
                  WHERE l.locktype = 'advisory' AND l.granted AND l.pid <> $1
                    AND (l.classid::bigint << 32 | l.objid::bigint) = lanekeeper.worker_lock(w.worker_id)";
    wait_until(LIMIT, "the next one has the lock", async || {
        let row = plant.client.query_one(holder, &[&pids[0]]).await.unwrap();
        row.get::<_, i64>(0) == 1
    })
    .await;
    assert_eq!(worker.stop().await.code(), Some(0));
    drop(plant);
    server.stop().await;
}

const DOORBELL: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'
     AND (classid::bigint << 32 | objid::bigint) = lanekeeper.doorbell_lock()";

/// A server on which somebody else has the doorbell, and one worker, which waits for it.
async fn waits_for_the_doorbell() -> (Server, Plant, Client, WorkerProcess) {
    let server = Server::start().await;
    let plant = Plant::on(server.url.clone(), "runs", Duration::ZERO).await;
    let holder = connect(&server.url).await;
    holder
        .batch_execute("SELECT pg_advisory_lock(lanekeeper.doorbell_lock())")
        .await
        .unwrap();
    let worker = plant.worker(&[]).await;
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE application_name LIKE 'lanekeeper doorbell %' AND wait_event_type = 'Lock'";
    wait_until(LIMIT, "the worker waits", async || {
        plant.count(waits).await == 1
    })
    .await;
    (server, plant, holder, worker)
}

/// The server may grant a lock before it hears that nobody waits for it any more, and what a session has it keeps where its
/// statement is given up. A doorbell that nobody knew of had all producers stand in line until the worker ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_doorbell_that_is_granted_while_its_wait_is_cancelled_is_released() {
    let (server, plant, holder, worker) = waits_for_the_doorbell().await;
    let stopped = Stopped::of(&plant, "lanekeeper doorbell %", 1).await;
    let backend = Pid::from_raw(stopped.0[0]).unwrap();
    wait_until(LIMIT, "the server hears that nobody waits", async || {
        // Until the worker listens, it hears of nobody.
        stand_in_line(&plant.client).await;
        is_pending(backend, Signal::INT)
    })
    .await;
    holder
        .batch_execute("SELECT pg_advisory_unlock(lanekeeper.doorbell_lock())")
        .await
        .unwrap();
    drop(stopped);
    wait_until(
        LIMIT,
        "nobody has it while producers stand in line",
        async || {
            stand_in_line(&plant.client).await;
            plant.count(DOORBELL).await == 0
        },
    )
    .await;
    assert_eq!(worker.stop().await.code(), Some(0));
    drop(plant);
    server.stop().await;
}

/// Whether a signal was sent to a process that has not taken it yet.
fn is_pending(process: Pid, signal: Signal) -> bool {
    let status = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = std::fs::read_to_string(status).unwrap();
    let pending = status
        .lines()
        .find_map(|line| line.strip_prefix("ShdPnd:"))
        .unwrap();
    let pending = u64::from_str_radix(pending.trim(), 16).unwrap();
    pending & (1 << (signal.as_raw() - 1)) != 0
}

/// A place in the queue has all producers notify, as the doorbell itself does.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_in_the_queue_for_the_doorbell_leaves_it() {
    let (server, plant, holder, worker) = waits_for_the_doorbell().await;
    worker.signal(Signal::KILL);
    wait_until(LIMIT, "its place is free", async || {
        plant
            .count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            .await
            == 0
    })
    .await;
    drop((holder, worker, plant));
    server.stop().await;
}

/// Its backend does not end where it is told to, and whatever it has stays: the worker asks for the doorbell anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_doorbell_connection_does_not_answer_opens_another() {
    let server = Server::start().await;
    let plant = Plant::on(server.url.clone(), "runs", Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    wait_until(LIMIT, "it has the doorbell", async || {
        plant.count(DOORBELL).await == 1
    })
    .await;
    let stopped = Stopped::of(&plant, "lanekeeper doorbell %", 1).await;
    plant.enqueue("s", 1, 1).await;
    given_up(&worker, "no doorbell", 1).await;
    let pids = stopped.0.clone();
    drop(stopped);
    gone(&plant, &pids).await;
    wait_until(LIMIT, "it has it again", async || {
        plant.count(DOORBELL).await == 1
    })
    .await;
    plant.settled().await;
    assert_eq!(worker.stop().await.code(), Some(0));
    drop(plant);
    server.stop().await;
}

/// Whoever asks the pool would wait for as long as the process is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_that_does_not_answer_is_replaced_within_the_pools_patience() {
    let plant = Plant::new(Duration::ZERO).await;
    let database: Database = plant.url.parse().unwrap();
    let database = database.with(|driver| {
        driver.application_name("pooled");
    });
    let pool = pool::build(&database, 1, Duration::from_millis(500)).unwrap();
    drop(pool.get().await.unwrap());
    // One that was just used is trusted.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let stopped = Stopped::of(&plant, "pooled", 1).await;
    let asked = timeout(Duration::from_secs(10), pool.get()).await;
    let client = asked.expect("it is not waited for").unwrap();
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
    assert_ne!(row.unwrap().get::<_, i32>(0), stopped.0[0]);
}
