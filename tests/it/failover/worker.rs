//! A worker whose first host falls silent.

use std::time::Duration;

use tokio::time::Instant;

use super::{server, url};
use crate::process::plant::{LIMIT, Plant};
use crate::support::{BlackHole, Line, Silence, TestDb, WorkerProcess};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_first_host_falls_silent_delivers_over_the_second_within_15_s() {
    let db = TestDb::new().await;
    let (first, second) = (server(&db).await, server(&db).await);
    let url = url(&db, &[first.port()], &second);
    let plant = Plant::of("runs", db, Duration::ZERO).await;
    let worker = WorkerProcess::start(&url, &plant.receiver, &[]).await;
    plant.enqueue("before-", 3, 2).await;
    plant.settled().await;

    first.set(Line {
        silent: true,
        ..Line::default()
    });
    let since = Instant::now();
    plant.enqueue("after-", 20, 5).await;
    let all_came = plant.receiver.wait_until(LIMIT, "everything came", |seen| {
        let (sessions, _) = seen.deduplicated();
        sessions.values().map(Vec::len).sum::<usize>() == 3 * 2 + 20 * 5
    });
    all_came.await;
    let took = since.elapsed();
    eprintln!("everything came {took:?} after the first host fell silent");
    assert!(took < Duration::from_secs(15), "{took:?}\n{}", worker.log());
    plant.settled().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_starts_past_a_first_host_that_vanished() {
    let db = TestDb::new().await;
    let (hole, server) = (BlackHole::new(Silence::Vanished).await, server(&db).await);
    let url = url(&db, &[hole.port()], &server);
    let plant = Plant::of("runs", db, Duration::ZERO).await;
    let worker = WorkerProcess::start(&url, &plant.receiver, &[]).await;
    let told = "a host of database.url does not answer";
    assert!(worker.logged(told), "{}", worker.log());
    plant.enqueue("s-", 3, 2).await;
    plant.settled().await;
    assert_eq!(plant.assert_complete(3, 2), 0);
    assert!(worker.stop().await.success());
}
