//! A worker that ends at each place between "lane locked" and "cursor moved", the first time it gets
//! there and a later time. Its successor delivers the rest, in order, and repeats what it must.

use std::time::Duration;

use lanekeeper_fault::CrashPoint;
use tokio::time::sleep;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::ground::Ground;
use crate::ledger::{Fate, Ledger};
use crate::monitor::Monitor;
use crate::oracle::Case;
use crate::receiver::Receiver;
use crate::scene::{SUBSCRIPTIONS, apply, lanes, log};
use crate::support::{
    Line, Protocol, Proxy, Upstream, WorkerProcess, connect, lanekeeper, wait_until,
};
use crate::workload::STREAM;

const LIMIT: Duration = Duration::from_secs(60);
/// Each way: longer than it takes for a delivery to be marked.
const DELIVERY: Duration = Duration::from_millis(40);
const EVENTS: usize = 4;

struct Stage {
    ground: Ground,
    client: Client,
    receiver: Receiver,
    ledger: Ledger,
    _proxy: Proxy,
    _dir: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Self {
        let ground = Ground::shared().await;
        let dir = tempfile::tempdir().unwrap();
        let (receiver, port) = Receiver::start(dir.path()).await;
        let upstream = Upstream::Tcp(([127, 0, 0, 1], port).into());
        let proxy = Proxy::start(upstream, Protocol::Http).await;
        proxy.set(Line {
            delay: DELIVERY,
            ..Line::default()
        });
        apply(ground.url(), proxy.port(), false, false).await;
        Self {
            client: connect(ground.url()).await,
            ground,
            receiver,
            ledger: Ledger::default(),
            _proxy: proxy,
            _dir: dir,
        }
    }

    /// Events of one session.
    async fn enqueue(&self, session: &str, count: usize) {
        for _ in 0..count {
            let id = Uuid::now_v7();
            self.ledger.intend(id, session, "a");
            let call = "SELECT seq FROM lanekeeper.enqueue($1, $2, 'a', '{}', $3)";
            let row = self.client.query_one(call, &[&STREAM, &session, &id]).await;
            let seq = row.unwrap().get(0);
            self.ledger.is(id, Fate::Committed { seq });
        }
    }

    fn worker(&mut self, variables: &[(&str, &str)]) -> WorkerProcess {
        let (sender, secret) = self.receiver.new_secret();
        WorkerProcess::spawn_as(lanekeeper(), self.ground.url(), sender, &secret, variables)
    }

    /// Starts a worker that ends when it reaches this place for the `times`th time.
    async fn ends_at(&mut self, point: CrashPoint, times: u64) {
        let place = format!("{}:{times}", point.name());
        let mut worker = self.worker(&[("CRASH_POINT", &place)]);
        for number in 0.. {
            if worker.has_ended() {
                break;
            }
            assert!(number < 600, "{place} is not reached:\n{}", worker.log());
            sleep(Duration::from_millis(50)).await;
            // Lanes that are claimed and settled anew.
            if times > 1 && worker.logged("serving") && number % 2 == 0 {
                self.enqueue(&format!("{place} {number}"), 1).await;
            }
        }
        assert!(!worker.logged("error:"), "{}", worker.log());
        // The next worker charges for this one before it claims only if the server has noticed by then.
        wait_until(LIMIT, "its connections are gone", async || {
            let connections = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name LIKE 'lanekeeper %'";
            let row = self.client.query_one(connections, &[]).await.unwrap();
            row.get::<_, i64>(0) == 0
        })
        .await;
    }

    async fn settled(&self) {
        wait_until(LIMIT, "everything is settled", async || {
            let left = "SELECT count(*) FROM lanekeeper.lane_status WHERE head_seq IS NOT NULL";
            let row = self.client.query_one(left, &[]).await.unwrap();
            row.get::<_, i64>(0) == 0
        })
        .await;
    }

    async fn judge(&self, causes: usize) -> Case {
        let case = Case {
            subscriptions: SUBSCRIPTIONS.to_vec(),
            ledger: self.ledger.entries(),
            log: log(&self.client).await.unwrap(),
            lanes: lanes(&self.client).await.unwrap(),
            arrivals: self.receiver.reader().more(),
            causes,
            rounds: Vec::new(),
            acks: None,
            limited: None,
        };
        let wrong = case.judge();
        assert!(wrong.is_empty(), "{wrong:?}");
        case
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_every_place_between_the_lock_and_the_cursor_a_worker_may_end() {
    let mut stage = Stage::new().await;
    let monitor = Monitor::start(stage.ground.url(), stage.receiver.reader());
    let mut causes = 0;
    for point in CrashPoint::ADAPTERS {
        // That one takes two deaths before: the other test has them.
        if point == CrashPoint::SuspectedPoisonRecorded {
            continue;
        }
        for times in [1, 3] {
            let name = format!("{}{times}", point.name());
            for session in ["one", "other"] {
                stage.enqueue(&format!("{name} {session}"), EVENTS).await;
            }
            stage.ends_at(point, times).await;
            causes += 1;
            let successor = stage.worker(&[]);
            // A signal before its handler is there would end it.
            successor.serves().await;
            stage.settled().await;
            assert!(successor.stop().await.success());
        }
    }
    let case = stage.judge(causes).await;
    assert!(case.lanes.values().all(|lane| lane.outcomes.is_empty()));
    let wrong = monitor.stop().await;
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_workers_end_at_its_delivery_is_exhausted_at_the_third() {
    let mut stage = Stage::new().await;
    stage.enqueue("poisoned", EVENTS).await;
    for _ in 0..2 {
        stage.ends_at(CrashPoint::Delivering, 1).await;
    }
    stage.ends_at(CrashPoint::SuspectedPoisonRecorded, 1).await;
    let successor = stage.worker(&[]);
    stage.settled().await;
    assert!(successor.stop().await.success());
    let case = stage.judge(3).await;
    // Every subscription's head was held by each of the workers, and charged to once by each.
    for (name, lane) in &case.lanes {
        assert!(lane.outcomes.len() <= 1, "{name:?}: {:?}", lane.outcomes);
    }
    let exhausted = case
        .lanes
        .values()
        .filter(|lane| lane.outcomes.contains_key(&1));
    assert!(exhausted.count() >= 1, "{:?}", case.lanes);
}
