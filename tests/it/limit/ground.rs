//! The fixture: worker processes with one limited destination, and checks of its record.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Client;

use crate::command::run;
use crate::support::{
    Arrival, Receiver, RedisServer, SECRET_ENV, TestDb, WorkerProcess, connect, wait_until,
};

/// Long enough for the slowest machine; a test that waits this long has failed.
pub const LIMIT: Duration = Duration::from_secs(90);
/// What a request may take from the decision to the record, on a machine that does other things.
const UNDER_WAY: Duration = Duration::from_millis(250);

pub struct Ground {
    pub url: String,
    pub client: Client,
    pub receiver: Receiver,
    pub redis: RedisServer,
    _db: TestDb,
}

impl Ground {
    /// One webhook subscription of the stream `runs`, with this in its section.
    pub async fn new(settings: &str) -> Self {
        let db = TestDb::new().await;
        let url = db.url().to_owned();
        let ground = Self {
            client: connect(&url).await,
            receiver: Receiver::start(Duration::ZERO).await,
            redis: RedisServer::start(),
            url,
            _db: db,
        };
        ground.apply(&ground.section("out", settings)).await;
        ground
    }

    pub fn section(&self, name: &str, settings: &str) -> String {
        format!(
            "[subscription.{name}]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"{}\"\n\
             secret_env = \"{SECRET_ENV}\"\n{settings}\n",
            self.receiver.url()
        )
    }

    pub async fn apply(&self, file: &str) {
        let ran = run(&["apply", "-f", "-"], &[("DATABASE_URL", &self.url)], file).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }

    /// Workers that share their limits over Redis, once they do.
    pub async fn workers(&self, count: usize) -> Vec<WorkerProcess> {
        let redis = self.redis.url();
        let workers = self.workers_with(count, &[("REDIS_URL", &redis)]).await;
        for worker in &workers {
            wait_until(LIMIT, "limits are shared", async || {
                worker.logged("limits are shared")
            })
            .await;
        }
        workers
    }

    pub async fn workers_with(
        &self,
        count: usize,
        variables: &[(&str, &str)],
    ) -> Vec<WorkerProcess> {
        // A worker that is alone is silent for three heartbeats.
        let mut all = vec![("LANEKEEPER_WORKER__HEARTBEAT_MS", "300")];
        all.extend(variables);
        let mut workers = Vec::new();
        for _ in 0..count {
            workers.push(WorkerProcess::start(&self.url, &self.receiver, &all).await);
        }
        // So that all of them are counted from the start on.
        wait_until(LIMIT, "all heartbeats are there", async || {
            let sql = "SELECT count(DISTINCT worker_id) FROM lanekeeper.worker";
            self.client
                .query_one(sql, &[])
                .await
                .unwrap()
                .get::<_, i64>(0)
                == count as i64
        })
        .await;
        workers
    }

    /// `count` events to each of `sessions` sessions, in one transaction.
    pub async fn enqueue(&self, sessions: i64, count: i64) {
        self.client
            .execute(
                "SELECT lanekeeper.enqueue_many('runs', (
                     SELECT jsonb_agg(jsonb_build_object(
                         'session', 's' || s, 'event_type', 'step', 'payload', n) ORDER BY n, s)
                     FROM generate_series(1, $1::bigint) AS s, generate_series(1, $2::bigint) AS n))",
                &[&sessions, &count],
            )
            .await
            .unwrap();
    }

    /// Waits until so many were accepted.
    pub async fn accepted(&self, count: usize) {
        let what = format!("{count} events are accepted");
        self.receiver
            .wait_until(LIMIT, &what, |seen| seen.arrivals.len() >= count)
            .await;
    }

    /// Each session came whole, in order, and nothing twice or after a failed attempt.
    pub fn assert_exact(&self, sessions: usize, count: i64) {
        let seen = self.receiver.seen();
        assert_eq!(seen.refused, [""; 0]);
        let (arrived, repeats) = seen.deduplicated();
        assert_eq!((arrived.len(), repeats), (sessions, 0));
        for (session, seqs) in arrived {
            assert_eq!(seqs, (1..=count).collect::<Vec<_>>(), "session {session}");
        }
        let attempts = seen.arrivals.iter().chain(&seen.turned_away);
        assert!(
            attempts.into_iter().all(|one| one.attempt == 1),
            "no attempt was burnt"
        );
    }

    pub async fn stop(workers: Vec<WorkerProcess>) {
        for worker in workers {
            assert!(worker.stop().await.success());
        }
    }
}

/// Of any stretch of the record, however short or long, no more than the rate and the burst allow.
pub fn assert_never_faster(arrivals: &[Arrival], per_second: f64, burst: usize) {
    for (i, first) in arrivals.iter().enumerate() {
        for (j, last) in arrivals.iter().enumerate().skip(i) {
            let stretch = (last.at - first.at + UNDER_WAY).as_secs_f64();
            let allowed = per_second * stretch + burst as f64;
            let count = j - i + 1;
            assert!(
                count as f64 <= allowed + 1e-9,
                "{count} in {stretch:.3} s from {i} on, {allowed:.1} are allowed"
            );
        }
    }
}

/// The most of any window of a second, as the receiver's clock has it.
pub fn most_in_a_second(arrivals: &[Arrival]) -> usize {
    let second = Duration::from_secs(1);
    let from = |first: &Arrival| {
        let within = |one: &&Arrival| one.at >= first.at && one.at - first.at < second;
        arrivals.iter().filter(within).count()
    };
    arrivals.iter().map(from).max().unwrap_or(0)
}

/// How much of the rate was used between two instants.
pub fn used(arrivals: &[Arrival], per_second: f64, from: Instant, to: Instant) -> f64 {
    let count = arrivals
        .iter()
        .filter(|one| one.at >= from && one.at < to)
        .count();
    count as f64 / (per_second * (to - from).as_secs_f64())
}
