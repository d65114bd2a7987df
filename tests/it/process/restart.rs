//! A1: Postgres crashes under load. Workers reconnect, no confirmed event is lost, and no head is charged with a crash.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::NoTls;
use uuid::Uuid;

use super::plant::{LIMIT, Plant};
use crate::support::{Server, WorkerProcess, connect, wait_until};

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Enqueues one event after the other until it is told to stop.
struct Producer {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Uuid>>,
}

impl Producer {
    fn start(url: &str, name: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(produce(url.to_owned(), name, Arc::clone(&stop)));
        Self { stop, task }
    }

    /// The ids of what was confirmed.
    async fn stop(self) -> Vec<Uuid> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

async fn produce(url: String, name: &'static str, stop: Arc<AtomicBool>) -> Vec<Uuid> {
    let mut confirmed = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        tokio::spawn(connection);
        while !stop.load(Ordering::Relaxed) {
            let id = Uuid::now_v7();
            let session = format!("{name}{}", id.as_u128() % 20);
            let call = "SELECT * FROM lanekeeper.enqueue('runs', $1, 'step', '{}', $2)";
            if client.execute(call, &[&session, &id]).await.is_err() {
                break;
            }
            confirmed.push(id);
            sleep(Duration::from_millis(2)).await;
        }
    }
    confirmed
}

/// Two workers under the load of two producers while `trouble` happens to the server; then what
/// must hold.
async fn survive(trouble: impl AsyncFnOnce(Server, &Plant, &[WorkerProcess; 2]) -> Server) {
    let server = Server::start().await;
    let mut plant = Plant::on(server.url.clone(), "runs", Duration::from_millis(5)).await;
    let workers = [plant.worker(&[]).await, plant.worker(&[]).await];
    let producers = ["a", "b"].map(|name| Producer::start(&plant.url, name));
    deliveries_go_on(&plant).await;
    let server = trouble(server, &plant, &workers).await;
    deliveries_go_on(&plant).await;
    let mut confirmed = HashSet::new();
    for producer in producers {
        confirmed.extend(producer.stop().await);
    }
    plant.client = connect(&plant.url).await;
    plant.settled().await;

    let seen = plant.receiver.seen();
    assert_eq!(seen.refused, [""; 0]);
    let (arrived, repeats) = seen.deduplicated();
    for (session, seqs) in arrived {
        assert_eq!(
            seqs,
            (1..=seqs.len() as i64).collect::<Vec<_>>(),
            "{session}"
        );
    }
    let ids: HashSet<Uuid> = seen.arrivals.iter().map(|arrival| arrival.id).collect();
    assert_eq!(confirmed.difference(&ids).count(), 0, "confirmed and lost");
    let events = plant.count("SELECT count(*) FROM lanekeeper.event").await;
    assert_eq!(ids.len() as i64, events);
    println!("{events} events, {repeats} repeated");
    for worker in workers {
        for line in worker
            .log()
            .lines()
            .filter(|line| line.contains("took over"))
        {
            assert!(line.contains("charged=0"), "{line}");
        }
        assert_eq!(worker.stop().await.code(), Some(0));
    }
    drop(plant);
    server.stop().await;
}

async fn deliveries_go_on(plant: &Plant) {
    let target = plant.receiver.seen().arrivals.len() + 200;
    plant
        .receiver
        .wait_until(LIMIT, "deliveries go on", |seen| {
            seen.arrivals.len() >= target
        })
        .await;
}

/// Freezes a worker that has been at its deliveries for so long that its claims are on disk. Its id, and how
/// often the survivor had taken over from it.
async fn freeze(plant: &Plant, worker: &WorkerProcess, survivor: &WorkerProcess) -> (i64, usize) {
    plant.receiver.hold(worker.sender);
    let client = connect(&plant.url).await;
    wait_until(LIMIT, "its claims are old", async || {
        let claims = "SELECT FROM lanekeeper.claim AS c
                      JOIN lanekeeper.lane_connection USING (connection_id)
                      JOIN lanekeeper.worker AS w USING (worker_id)
                      WHERE w.pid = $1 AND c.claimed_at < clock_timestamp() - interval '1 s'";
        let rows = client.query(claims, &[&worker.pid()]).await.unwrap();
        !rows.is_empty()
    })
    .await;
    worker.signal(Signal::STOP);
    let id = "SELECT max(w.worker_id) FROM lanekeeper.worker AS w WHERE w.pid = $1";
    let id: i64 = client.query_one(id, &[&worker.pid()]).await.unwrap().get(0);
    (id, takeovers(survivor, id))
}

/// How often `survivor` has said that it took over from `worker`.
fn takeovers(survivor: &WorkerProcess, worker: i64) -> usize {
    let from = format!("worker_id={worker} ");
    let log = survivor.log();
    let lines = log.lines().filter(|line| line.contains("took over"));
    lines.filter(|line| line.contains(&from)).count()
}

/// Thaws it once the survivor took over from it: sooner, it would take over from itself, without a charge.
async fn thaw_after_takeover(
    plant: &Plant,
    frozen: &WorkerProcess,
    survivor: &WorkerProcess,
    before: (i64, usize),
) {
    let (worker, taken) = before;
    wait_until(LIMIT, "the survivor takes over", async || {
        takeovers(survivor, worker) > taken
    })
    .await;
    plant.receiver.release(frozen.sender);
    frozen.signal(Signal::CONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_recover_from_immediate_restarts_of_postgres_and_are_not_charged_for_them() {
    survive(async |server, plant, [one, other]| {
        let server = server.restart().await;
        deliveries_go_on(plant).await;
        let before = freeze(plant, other, one).await;
        let server = server.restart().await;
        thaw_after_takeover(plant, other, one, before).await;
        server
    })
    .await;
}
/// A backend that is killed makes the server end all others and recover, without a new postmaster.
#[tokio::test(flavor = "multi_thread")]
async fn nor_are_they_for_a_reset_of_all_sessions_after_a_backend_was_killed() {
    survive(async |server, plant, [one, other]| {
        let before = freeze(plant, other, one).await;
        let backend = connect(&server.url).await;
        let pid = backend.query_one("SELECT pg_backend_pid()", &[]).await;
        kill(pid.unwrap().get(0), Signal::KILL);
        thaw_after_takeover(plant, other, one, before).await;
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_connection_that_the_server_ends_is_logged_as_closed() {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    plant.enqueue("s", 3, 1).await;
    plant.settled().await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'lanekeeper lanes'";
    assert_eq!(plant.count(end).await, 2);
    wait_until(LIMIT, "both are lost", async || {
        worker.log().matches("lane connection lost").count() == 2
    })
    .await;
    let log = worker.log();
    let lost = log
        .lines()
        .filter(|line| line.contains("lane connection lost"));
    for line in lost {
        assert!(!line.contains("validity window"), "{line}");
        // A claim that was under way has the server's own words.
        let reasons = ["clos", "terminating connection"];
        assert!(reasons.iter().any(|reason| line.contains(reason)), "{line}");
    }
    plant.enqueue("t", 3, 1).await;
    plant.settled().await;
    assert!(worker.stop().await.success());
}
