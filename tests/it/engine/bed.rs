//! The fixture: a database, a fake destination, and workers in this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_adapters::fake::Fake;
use lanekeeper_engine::{Destination, DestinationSource, Worker, WorkerSettings};
use lanekeeper_postgres::subscription::Subscription;
use tokio_postgres::Client;

use crate::support::{TestDb, wait_until};

/// Long enough for the slowest machine; a test that waits this long has failed.
pub const LIMIT: Duration = Duration::from_secs(30);

pub struct Bed {
    pub db: TestDb,
    pub client: Client,
    pub fake: Fake,
}

struct Everything(Fake);

impl DestinationSource for Everything {
    fn build(
        &self,
        _subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Destination::Adapter(Arc::new(self.0.clone())))
    }
}

/// A subscription of the stream `runs`, as a row.
pub struct Sub {
    pub name: &'static str,
    pub stream: &'static str,
    pub events: Option<Vec<&'static str>>,
    pub schedule_ms: Vec<i32>,
    pub max_attempts: i32,
    pub on_exhausted: &'static str,
    pub coalesce: bool,
    pub history: bool,
}

impl Default for Sub {
    fn default() -> Self {
        Self {
            name: "out",
            stream: "runs",
            events: None,
            schedule_ms: vec![50],
            max_attempts: 0,
            on_exhausted: "dead_letter",
            coalesce: false,
            history: false,
        }
    }
}

impl Bed {
    /// A bed with one subscription.
    pub async fn new() -> Self {
        Self::with(&Sub::default()).await
    }

    pub async fn with(sub: &Sub) -> Self {
        let bed = Self::bare().await;
        bed.subscribe(sub).await;
        bed
    }

    pub async fn bare() -> Self {
        let db = TestDb::new().await;
        let client = db.connect().await;
        // How often an idle worker scans is what each test says, whatever the stream.
        let quiet =
            "UPDATE lanekeeper.stream SET poll_floor_ms = NULL WHERE poll_floor_ms IS NOT NULL";
        client.batch_execute(quiet).await.unwrap();
        Self {
            db,
            client,
            fake: Fake::new(),
        }
    }

    pub async fn subscribe(&self, sub: &Sub) {
        self.client
            .execute(
                "WITH stream AS (
                     UPDATE lanekeeper.stream SET lanes_version = lanes_version + 1 WHERE name = $1 RETURNING stream_id)
                 INSERT INTO lanekeeper.subscription (stream_id, name, adapter, events, retry_schedule_ms, max_attempts,
                                                      on_exhausted, coalesce, history)
                 SELECT stream_id, $2, 'fake', $3, $4, $5, $6, $7, $8 FROM stream",
                &[
                    &sub.stream,
                    &sub.name,
                    &sub.events,
                    &sub.schedule_ms,
                    &sub.max_attempts,
                    &sub.on_exhausted,
                    &sub.coalesce,
                    &sub.history,
                ],
            )
            .await
            .unwrap();
    }

    pub async fn worker(&self) -> Worker {
        self.worker_with(WorkerSettings::default()).await
    }

    pub async fn worker_with(&self, settings: WorkerSettings) -> Worker {
        Self::start(self.db.url(), self.fake.clone(), settings).await
    }

    pub async fn start(url: &str, fake: Fake, settings: WorkerSettings) -> Worker {
        Worker::start(url.parse().unwrap(), settings, Arc::new(Everything(fake)))
            .await
            .unwrap()
    }

    pub async fn enqueue(&self, session: &str, event_type: &str) -> i64 {
        enqueue(&self.client, session, event_type).await
    }

    /// `count` events to each of `sessions` sessions, in one transaction.
    pub async fn enqueue_bulk(&self, sessions: i64, count: i64) {
        self.client
            .execute(
                "SELECT lanekeeper.enqueue_many('runs', (
                     SELECT jsonb_agg(jsonb_build_object('session', 's' || s, 'event_type', 'step', 'payload', n) ORDER BY n, s)
                     FROM generate_series(1, $1::bigint) AS s, generate_series(1, $2::bigint) AS n))",
                &[&sessions, &count],
            )
            .await
            .unwrap();
    }

    /// Waits until nothing is left: no entry, and every lane at its newest event.
    pub async fn drained(&self) {
        wait_until(
            LIMIT,
            "everything is settled and every lane idle",
            async || {
                self.count("SELECT count(*) FROM lanekeeper.ready").await == 0
                    && self.undelivered().await == 0
            },
        )
        .await;
    }

    /// Events behind the cursors of all lanes.
    pub async fn undelivered(&self) -> i64 {
        self.count("SELECT coalesce(sum(behind), 0)::bigint FROM lanekeeper.lane_status")
            .await
    }

    /// A test moved events to other days, which nothing else does: whatever remembers days follows.
    pub async fn days_moved(&self) {
        self.client
            .batch_execute(
                "UPDATE lanekeeper.session AS s SET newest_day = (
                     SELECT max(e.day) FROM lanekeeper.event AS e WHERE e.session_id = s.session_id);
                 UPDATE lanekeeper.ready SET day = NULL",
            )
            .await
            .unwrap();
    }

    pub async fn count(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Accepted seqs by session, in the order of their arrival.
    pub fn accepted(&self) -> BTreeMap<String, Vec<i64>> {
        let mut sessions: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (session, seq) in self.fake.seen().accepted() {
            sessions.entry(session.to_string()).or_default().push(seq);
        }
        sessions
    }

    /// Every session came complete, in order, once.
    pub fn assert_exact(&self, sessions: usize, count: i64) {
        let accepted = self.accepted();
        assert_eq!(accepted.len(), sessions);
        for (session, seqs) in accepted {
            assert_eq!(seqs, (1..=count).collect::<Vec<_>>(), "session {session}");
        }
    }
}

pub async fn enqueue(client: &Client, session: &str, event_type: &str) -> i64 {
    client
        .query_one(
            "SELECT seq FROM lanekeeper.enqueue('runs', $1, $2, '{}')",
            &[&session, &event_type],
        )
        .await
        .unwrap()
        .get(0)
}
