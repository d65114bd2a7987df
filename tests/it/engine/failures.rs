//! A5, A6, I2, I5: claims that are lost, claims that a lane has twice, and claims of dead workers.

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::{Stopped, WorkerSettings};
use lanekeeper_postgres::lane_connection::{self, Backend};

use super::bed::{Bed, LIMIT, Sub};
use crate::support::{Protocol, Proxy, Upstream, wait_until};

/// Ends every lane connection of this database, as an administrator or a failover would.
async fn cut_lane_connections(bed: &Bed) -> i64 {
    bed.count(
        "SELECT count(*) FILTER (WHERE pg_terminate_backend(backend_pid)) FROM lanekeeper.lane_connection",
    )
    .await
}

/// Found as a lane that was claimed twice by one connection: session locks are re-entrant, a marked
/// lane's own entry is in the future, and a spare one was due.
#[tokio::test(flavor = "multi_thread")]
async fn a_spare_ready_entry_of_a_lane_with_a_long_delivery_does_not_claim_it_again() {
    let bed = Bed::new().await;
    bed.fake.hold_all();
    let worker = bed
        .worker_with(WorkerSettings {
            lane_connections: 1,
            ..WorkerSettings::default()
        })
        .await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "the delivery is marked as long", async || {
        bed.count("SELECT count(*) FROM lanekeeper.ready WHERE due_at > now() + interval '10 s'")
            .await
            == 1
    })
    .await;
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
             SELECT route, 0, clock_timestamp(), lane_id FROM lanekeeper.lane",
        )
        .await
        .unwrap();
    // Two full scans.
    tokio::time::sleep(Duration::from_millis(2200)).await;
    assert_eq!(bed.fake.seen().deliveries.len(), 1);
    bed.fake.release_all();
    bed.drained().await;
    bed.assert_exact(1, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_lane_connection_cancels_its_deliveries_and_settles_nothing() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue_bulk(2, 3).await;
    wait_until(LIMIT, "s1 is being delivered", async || {
        bed.fake.seen().running == 1
    })
    .await;
    assert!(cut_lane_connections(&bed).await > 0);
    wait_until(
        LIMIT,
        "its delivery was dropped and begun anew",
        async || {
            let seen = bed.fake.seen();
            seen.running == 1
                && seen
                    .deliveries
                    .iter()
                    .filter(|d| &*d.event.session == "s1")
                    .count()
                    == 2
        },
    )
    .await;
    bed.fake.release_all();
    bed.fake.release("s1");
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_and_completeness_survive_cut_connections_under_load() {
    let bed = Bed::new().await;
    let workers = [bed.worker().await, bed.worker().await];
    for round in 0..6 {
        bed.enqueue_bulk(30, 10).await;
        if round % 2 == 1 {
            cut_lane_connections(&bed).await;
        }
    }
    bed.drained().await;
    for (session, seqs) in bed.accepted() {
        // Redelivered stretches repeat from where the settled cursor was; first deliveries are in order.
        let mut newest = 0;
        for &seq in &seqs {
            assert!(seq <= newest + 1, "session {session}: {seq} after {newest}");
            newest = newest.max(seq);
        }
        assert_eq!(newest, 60, "session {session}");
    }
    for worker in workers {
        assert_eq!(worker.stop().await, Stopped::Clean);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_version_settles_nothing() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    // On a slow machine the entry would be put away for half a minute, and here nobody else makes one.
    let settings = WorkerSettings {
        mark_after: LIMIT,
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "s1 is being delivered", async || {
        bed.fake.seen().running == 1
    })
    .await;
    // Somebody else moved the lane on, whatever the lock says.
    bed.client
        .batch_execute(
            "WITH gone AS (DELETE FROM lanekeeper.progress RETURNING *)
             INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day, last_error)
             SELECT lane_id, version + 1, cursor, cursor_day, 'the successor' FROM gone",
        )
        .await
        .unwrap();
    bed.fake.release("s1");
    bed.drained().await;
    assert_eq!(
        bed.accepted()["s1"],
        [1, 1],
        "the successor's state counts, and it is delivered again"
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_hands_its_lanes_back_without_duplicates() {
    let bed = Bed::new().await;
    let first = bed.worker().await;
    bed.fake.hold("s1");
    bed.enqueue_bulk(20, 10).await;
    wait_until(LIMIT, "s1 is being delivered", async || {
        bed.fake.seen().running == 1
    })
    .await;
    let stopping = tokio::spawn(first.stop());
    let second = bed.worker().await;
    bed.enqueue_bulk(20, 10).await;
    bed.fake.release("s1");
    assert_eq!(stopping.await.unwrap(), Stopped::Clean);
    bed.drained().await;
    bed.assert_exact(20, 20);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_deliveries_outlast_the_grace_period_says_so() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let settings = WorkerSettings {
        shutdown_grace: Duration::from_millis(300),
        ..WorkerSettings::default()
    };
    let worker = bed.worker_with(settings).await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "s1 is being delivered", async || {
        bed.fake.seen().running == 1
    })
    .await;
    assert_eq!(worker.stop().await, Stopped::Abandoned { lanes: 1 });
    wait_until(LIMIT, "the delivery was dropped", async || {
        bed.fake.seen().running == 0
    })
    .await;
    bed.fake.release_all();
    bed.fake.release("s1");
    let next = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1]);
    next.stop().await;
}

/// A worker that dies without a word: its runtime is gone, and its connections with it.
pub(super) struct Doomed {
    worker_id: i64,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Doomed {
    pub async fn start(bed: &Bed) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let url = bed.db.url().to_owned();
        let fake = bed.fake.clone();
        let worker =
            runtime.spawn(async move { Bed::start(&url, fake, WorkerSettings::default()).await });
        let worker = worker.await.unwrap();
        let worker_id = worker.id();
        // Never stopped: it ends with the runtime.
        std::mem::forget(worker);
        Self {
            worker_id,
            runtime: Some(runtime),
        }
    }

    /// Returns when the server has noticed.
    pub async fn kill(mut self, bed: &Bed) {
        let alive = format!(
            "SELECT count(*) FROM lanekeeper.lane_connection AS c
             JOIN pg_stat_activity AS a ON a.pid = c.backend_pid AND a.backend_start = c.backend_start
             WHERE c.worker_id = {}",
            self.worker_id
        );
        self.runtime.take().unwrap().shutdown_background();
        wait_until(LIMIT, "its connections are closed", async || {
            bed.count(&alive).await == 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn survivors_deliver_what_a_dead_worker_held() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let doomed = Doomed::start(&bed).await;
    bed.enqueue_bulk(2, 2).await;
    wait_until(LIMIT, "the delivery is marked as long", async || {
        bed.count("SELECT count(*) FROM lanekeeper.ready WHERE due_at > now() + interval '10 s'")
            .await
            == 1
    })
    .await;
    let survivor = bed.worker().await;
    doomed.kill(&bed).await;
    wait_until(
        Duration::from_secs(5),
        "the survivor delivers it",
        async || {
            let seen = bed.fake.seen();
            seen.deliveries
                .iter()
                .filter(|d| &*d.event.session == "s1")
                .count()
                == 2
        },
    )
    .await;
    let charged = bed
        .count("SELECT max(crashes)::bigint FROM lanekeeper.progress")
        .await;
    assert_eq!(charged, 1, "the head was charged a crash");
    bed.fake.release("s1");
    wait_until(LIMIT, "everything is settled", async || {
        bed.undelivered().await == 0
    })
    .await;
    assert_eq!(bed.accepted()["s1"], [1, 2]);
    assert_eq!(
        bed.count("SELECT max(crashes)::bigint FROM lanekeeper.progress")
            .await,
        0,
        "and is forgiven"
    );
    survivor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_killed_three_workers_is_exhausted_and_its_neighbours_are_not() {
    let bed = Bed::with(&Sub::default()).await;
    bed.fake.hold("poison");
    bed.enqueue("poison", "step").await;
    for round in 1..=3 {
        let doomed = Doomed::start(&bed).await;
        bed.enqueue("innocent", "step").await;
        wait_until(
            LIMIT,
            "the poison is being delivered, the innocent done",
            async || {
                bed.fake.seen().running == 1
                    && bed.accepted().get("innocent").map_or(0, Vec::len) == round
            },
        )
        .await;
        // Else it is charged too, and waits behind the poison: suspects are delivered one at a time.
        let behind =
            "SELECT sum(behind)::bigint FROM lanekeeper.lane_status WHERE session = 'innocent'";
        wait_until(LIMIT, "the innocent is settled", async || {
            bed.count(behind).await == 0
        })
        .await;
        doomed.kill(&bed).await;
        wait_until(LIMIT, "the delivery was dropped", async || {
            bed.fake.seen().running == 0
        })
        .await;
    }
    let survivor = bed.worker().await;
    wait_until(LIMIT, "the poison is dead-lettered", async || {
        bed.count(
            "SELECT count(*) FROM lanekeeper.dead_letter WHERE session = 'poison' AND crashes = 3",
        )
        .await
            == 1
    })
    .await;
    wait_until(LIMIT, "everything is settled", async || {
        bed.undelivered().await == 0
    })
    .await;
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.dead_letter")
            .await,
        1
    );
    // One that was accepted and not yet settled when its worker died comes twice.
    let mut innocent = bed.accepted().remove("innocent").unwrap();
    innocent.dedup();
    assert_eq!(innocent, [1, 2, 3]);
    survivor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_heartbeat_is_ended_by_a_peer() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let frozen = Doomed::start(&bed).await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "s1 is being delivered", async || {
        bed.fake.seen().running == 1
    })
    .await;
    let peer = bed.worker().await;
    // Its last heartbeat, as it would look after half a minute of silence.
    bed.client
        .batch_execute(&format!(
            "UPDATE lanekeeper.worker SET beat_at = beat_at - interval '1 minute' WHERE worker_id <> {}",
            peer.id()
        ))
        .await
        .unwrap();
    wait_until(LIMIT, "its lane went on", async || {
        bed.fake.seen().deliveries.len() >= 2 && bed.fake.seen().running == 1
    })
    .await;
    bed.fake.release("s1");
    wait_until(LIMIT, "everything is settled", async || {
        bed.undelivered().await == 0
    })
    .await;
    frozen.kill(&bed).await;
    peer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_adapter_is_a_failed_attempt() {
    let bed = Bed::new().await;
    let bed = Bed {
        fake: lanekeeper_adapters::fake::Fake::answering(|delivery| {
            assert!(delivery.attempt > 1, "as told by the test");
            Verdict::Accepted
        }),
        ..bed
    };
    let worker = bed.worker().await;
    bed.enqueue("s1", "step").await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_is_ended_by_its_pid_and_its_start() {
    let bed = Bed::new().await;
    let database = bed.db.url().parse().unwrap();
    let opened = lane_connection::open(&database, "lanes").await.unwrap();
    let backend = opened.backend;
    let namesake = Backend {
        start: backend.start - Duration::from_micros(1),
        ..backend
    };
    assert_eq!(
        lane_connection::end(&bed.client, &[namesake])
            .await
            .unwrap(),
        []
    );
    assert!(
        !lane_connection::is_there(&bed.client, namesake)
            .await
            .unwrap()
    );
    assert!(
        lane_connection::is_there(&bed.client, backend)
            .await
            .unwrap()
    );
    assert_eq!(
        lane_connection::end(&bed.client, &[namesake, backend])
            .await
            .unwrap(),
        [backend]
    );
    wait_until(LIMIT, "it is gone", async || {
        !lane_connection::is_there(&bed.client, backend)
            .await
            .unwrap()
    })
    .await;
    let again = lane_connection::end(&bed.client, &[backend]).await;
    assert_eq!(again.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_leaves_no_connection_that_hangs_behind() {
    let bed = Bed::new().await;
    let proxy = Proxy::start(Upstream::of(bed.db.url()), Protocol::Postgres).await;
    let settings = WorkerSettings {
        trust: Duration::from_secs(1),
        ..WorkerSettings::default()
    };
    bed.fake.hold_all();
    let worker = Bed::start(
        &proxy.through(bed.db.url()),
        bed.fake.clone(),
        settings.clone(),
    )
    .await;
    bed.enqueue("s1", "step").await;
    wait_until(LIMIT, "it is being delivered", async || {
        bed.fake.seen().deliveries.len() == 1
    })
    .await;
    proxy.hang(" lanes");
    assert_eq!(worker.stop().await, Stopped::Clean);
    for left in ["lane_connection", "claim", "worker"] {
        let rows = format!("SELECT count(*) FROM lanekeeper.{left}");
        assert_eq!(bed.count(&rows).await, 0, "{left}");
    }
    let charges = "SELECT max(crashes)::bigint FROM lanekeeper.progress";
    assert_eq!(bed.count(charges).await, 0);
    bed.fake.release_all();
    let successor = bed.worker().await;
    bed.drained().await;
    successor.stop().await;
}
