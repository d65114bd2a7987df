//! The fixture: a database, a webhook subscription, and the receiver.

use std::time::Duration;

use tokio_postgres::Client;

use crate::command::run;
use crate::support::{Receiver, SECRET_ENV, TestDb, WorkerProcess, connect, wait_until};

/// Long enough for the slowest machine; a test that waits this long has failed.
pub const LIMIT: Duration = Duration::from_secs(60);

pub struct Plant {
    pub url: String,
    pub client: Client,
    pub receiver: Receiver,
    /// Dropped last, when nothing needs it any more.
    _db: Option<TestDb>,
}

impl Plant {
    /// On a database of the test server; the receiver answers after `delay`.
    pub async fn new(delay: Duration) -> Self {
        Self::of("runs", TestDb::new().await, delay).await
    }

    /// A subscription of this stream.
    pub async fn of(stream: &str, db: TestDb, delay: Duration) -> Self {
        let url = db.url().to_owned();
        Self {
            _db: Some(db),
            ..Self::on(url, stream, delay).await
        }
    }

    /// On any migrated database.
    pub async fn on(url: String, stream: &str, delay: Duration) -> Self {
        let receiver = Receiver::start(delay).await;
        let subscription = format!(
            "[subscription.out]\nstream = \"{stream}\"\nadapter = \"webhook\"\nurl = \"{}\"\n\
             secret_env = \"{SECRET_ENV}\"\nconcurrency = 1024\n",
            receiver.url()
        );
        let ran = run(
            &["apply", "-f", "-"],
            &[("DATABASE_URL", &url)],
            &subscription,
        )
        .await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let client = connect(&url).await;
        Self {
            url,
            client,
            receiver,
            _db: None,
        }
    }

    pub async fn worker(&self, variables: &[(&str, &str)]) -> WorkerProcess {
        WorkerProcess::start(&self.url, &self.receiver, variables).await
    }

    /// `count` events to each of the sessions `{prefix}1` to `{prefix}{sessions}`, in one
    /// transaction.
    pub async fn enqueue(&self, prefix: &str, sessions: i64, count: i64) {
        self.client
            .execute(
                "SELECT lanekeeper.enqueue_many('runs', (
                     SELECT jsonb_agg(jsonb_build_object(
                         'session', $1 || s, 'event_type', 'step', 'payload', n) ORDER BY n, s)
                     FROM generate_series(1, $2::bigint) AS s, generate_series(1, $3::bigint) AS n))",
                &[&prefix, &sessions, &count],
            )
            .await
            .unwrap();
    }

    pub async fn count(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// The sessions that a worker holds and has something left to deliver of.
    pub async fn held_by(&self, worker: &WorkerProcess) -> Vec<String> {
        let rows = self
            .client
            .query(
                "SELECT s.session FROM lanekeeper.lane_status AS s
                 JOIN lanekeeper.worker AS w ON w.worker_id = s.held_by
                 WHERE w.pid = $1 AND s.behind > 0",
                &[&worker.pid()],
            )
            .await
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Waits until every event that passes the filter is settled.
    pub async fn settled(&self) {
        wait_until(LIMIT, "everything is settled", async || {
            self.count("SELECT count(*) FROM lanekeeper.lane_status WHERE head_seq IS NOT NULL")
                .await
                == 0
        })
        .await;
    }

    /// Every one of `sessions` sessions came with all of its `count` events in order, as a receiver
    /// sees it that drops repeated ids. Returns how many repeats there were.
    pub fn assert_complete(&self, sessions: usize, count: i64) -> usize {
        let seen = self.receiver.seen();
        assert_eq!(seen.refused, [""; 0]);
        let (arrived, repeats) = seen.deduplicated();
        assert_eq!(arrived.len(), sessions);
        for (session, seqs) in arrived {
            assert_eq!(seqs, (1..=count).collect::<Vec<_>>(), "session {session}");
        }
        repeats
    }
}
