//! A9: a worker ends at each point between "lane locked" and "cursor moved" of a handler, the first or a later time
//! that it reaches it. The worker or its successor records the event exactly once.

use std::time::Duration;

use lanekeeper_fault::CrashPoint;
use serde_json::json;
use tokio::time::sleep;

use super::{LIMIT, audit_repeats, settled};
use crate::support::{TestDb, WorkerProcess, lanekeeper, wait_until};

const EVENTS: usize = 4;

struct Stage {
    db: TestDb,
    client: tokio_postgres::Client,
    enqueued: i64,
}

impl Stage {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let client = db.connect().await;
        audit_repeats(&client, 0.0).await;
        Self {
            db,
            client,
            enqueued: 0,
        }
    }

    /// Prompts, which are critical: each is entered.
    async fn enqueue(&mut self, session: &str, count: usize) {
        for _ in 0..count {
            let payload = json!({"session_id": session, "prompt": "go on"});
            let call = "SELECT lanekeeper.enqueue('hooks', $1, 'user_prompt_submit', $2)";
            let payload = tokio_postgres::types::Json(payload);
            let stored = self.client.execute(call, &[&session, &payload]).await;
            stored.unwrap();
            self.enqueued += 1;
        }
    }

    /// It has the registry and no other destination.
    fn worker(&self, variables: &[(&str, &str)]) -> WorkerProcess {
        WorkerProcess::spawn_as(lanekeeper(), self.db.url(), 0, "none", variables)
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
            // Lanes that are claimed anew.
            if times > 1 && worker.logged("serving") && number % 2 == 0 {
                self.enqueue(&format!("{place} {number}"), 1).await;
            }
        }
        assert!(!worker.logged("error:"), "{}", worker.log());
        // The next worker charges for this one before it claims only if the server has noticed by then.
        wait_until(LIMIT, "its connections are gone", async || {
            let connections = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name LIKE 'lanekeeper %'";
            self.count(connections).await == 0
        })
        .await;
    }

    async fn succeeded(&self) {
        let successor = self.worker(&[]);
        successor.serves().await;
        settled(&self.client).await;
        assert!(successor.stop().await.success());
    }

    async fn count(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Each event of each session once, in its order, but for these many that were exhausted.
    async fn assert_entered(&self, exhausted: i64) {
        let entered = self.count("SELECT count(*) FROM public.entered").await;
        assert_eq!(entered, self.enqueued - exhausted);
        let twice = "SELECT count(*) - count(DISTINCT (session_id, seq)) FROM public.entered";
        assert_eq!(self.count(twice).await, 0);
        let disordered = "SELECT count(*) FROM (
            SELECT seq, lag(seq) OVER (PARTITION BY session_id ORDER BY id) AS before FROM public.entered) AS e
            WHERE seq <= before";
        assert_eq!(self.count(disordered).await, 0);
        let outcomes = self.count("SELECT count(*) FROM lanekeeper.outcome").await;
        assert_eq!(outcomes, exhausted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_every_place_of_a_handler_a_worker_may_end_and_each_event_is_entered_once() {
    tokio::join!(at_every_place(1), at_every_place(3));
}

async fn at_every_place(times: u64) {
    let mut stage = Stage::new().await;
    for point in CrashPoint::HANDLERS {
        // That one takes two deaths before: the other test has them.
        if point == CrashPoint::SuspectedPoisonRecorded {
            continue;
        }
        for session in ["one", "other"] {
            let session = format!("{} {session}", point.name());
            stage.enqueue(&session, EVENTS).await;
        }
        stage.ends_at(point, times).await;
        stage.succeeded().await;
        stage.assert_entered(0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_workers_end_in_its_handler_is_exhausted_at_the_third() {
    let mut stage = Stage::new().await;
    stage.enqueue("poisoned", EVENTS).await;
    for _ in 0..2 {
        stage.ends_at(CrashPoint::Delivering, 1).await;
    }
    stage.ends_at(CrashPoint::SuspectedPoisonRecorded, 1).await;
    stage.succeeded().await;
    stage.assert_entered(1).await;
    let first = "SELECT seq FROM lanekeeper.outcome";
    assert_eq!(stage.count(first).await, 1);
}
