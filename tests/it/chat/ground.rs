//! The fixture: worker processes, and a fake of Telegram that enforces limits by its own clock.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Client;

use crate::command::run;
use crate::support::platform::{TOKEN, Telegram, Window};
use crate::support::{RedisServer, TestDb, WorkerProcess, connect, wait_until};

/// Long enough for the slowest machine; a test that waits this long has failed.
pub const LIMIT: Duration = Duration::from_secs(90);

pub struct Ground {
    pub url: String,
    pub client: Client,
    pub telegram: Telegram,
    redis: RedisServer,
    _db: TestDb,
}

impl Ground {
    /// One Telegram subscription of the stream `runs` whose events say where they go, with this in its section.
    pub async fn new(windows: &[Window], settings: &str) -> Self {
        let db = TestDb::new().await;
        let url = db.url().to_owned();
        let ground = Self {
            client: connect(&url).await,
            telegram: Telegram::start(windows).await,
            redis: RedisServer::start(),
            url,
            _db: db,
        };
        let file = format!(
            "[subscription.bot]\nstream = \"runs\"\nadapter = \"telegram\"\ntoken_env = \"BOT_TOKEN\"\n\
             api_url = \"{}\"\nchat_from = \"/chat\"\n{settings}\n",
            ground.telegram.url()
        );
        let variables = [("DATABASE_URL", ground.url.as_str())];
        let ran = run(&["apply", "-f", "-"], &variables, &file).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ground
    }

    /// Workers that share their limits over Redis, once they do.
    pub async fn workers(&self, count: usize) -> Vec<WorkerProcess> {
        let redis = self.redis.url();
        let variables = [
            ("BOT_TOKEN", TOKEN),
            ("REDIS_URL", &redis),
            ("LANEKEEPER_WORKER__HEARTBEAT_MS", "300"),
        ];
        let mut workers = Vec::new();
        for _ in 0..count {
            workers.push(WorkerProcess::spawn(&self.url, 0, "", &variables));
        }
        for worker in &workers {
            worker.serves().await;
            wait_until(LIMIT, "limits are shared", async || {
                worker.logged("limits are shared")
            })
            .await;
        }
        workers
    }

    pub async fn say(&self, session: &str, payload: &Value) {
        let sql = "SELECT lanekeeper.enqueue('runs', $1, 'output', $2)";
        self.client
            .execute(sql, &[&session, payload])
            .await
            .unwrap();
    }

    pub async fn count(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Waits until nothing is left: no token, and every lane at its newest event.
    pub async fn drained(&self) {
        let sql = "SELECT (SELECT count(*) FROM lanekeeper.ready)
                   + (SELECT coalesce(sum(behind), 0)::bigint FROM lanekeeper.lane_status)";
        wait_until(LIMIT, "everything is settled", async || {
            self.count(sql).await == 0
        })
        .await;
    }

    pub async fn stop(workers: Vec<WorkerProcess>) {
        for worker in workers {
            assert!(worker.stop().await.success());
        }
    }
}
