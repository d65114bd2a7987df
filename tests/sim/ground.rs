//! The database of a run, with a clock that only operations move, and its connections. They are kept from
//! list to list: opening them costs more than running one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::try_join;
use lanekeeper_postgres::{Database, claim, fetch, lane_connection, settle, subscription};
use lanekeeper_subscription::SubscriptionFile;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use crate::compare::Looks;
use crate::operation::{CRITICAL, FILTERS, POLICIES, PRODUCERS};
use crate::support::TestDb;

/// Longer than anything takes: a call that has not come back by then does not come back.
pub const LIMIT: Duration = Duration::from_secs(20);

/// A connection with a lane connection's settings and statements.
pub struct Physical {
    pub client: Client,
    pub pid: i32,
    pub claim: Statement,
    pub fetch: fetch::Fetch,
    pub settle: settle::Settle,
    pub unlock: Statement,
    pub mark: Statement,
}

/// A producer's connection.
pub struct Producing {
    pub client: Arc<Client>,
    pub pid: i32,
}

pub struct Ground {
    pub db: TestDb,
    pub admin: Client,
    pub looks: Looks,
    pub producers: Vec<Producing>,
    pub spare: Vec<Physical>,
}

impl Ground {
    pub async fn new() -> Self {
        let db = TestDb::new().await;
        db.connect()
            .await
            .batch_execute(include_str!("clock.sql"))
            .await
            .expect("the clock is put in");
        let mut admin = db.connect().await;
        apply(&mut admin, FILTERS.len(), 0).await;
        let looks = Looks::new(&admin).await;
        let mut ground = Self {
            db,
            admin,
            looks,
            producers: Vec::new(),
            spare: Vec::new(),
        };
        for _ in 0..PRODUCERS {
            let producing = ground.producing().await;
            ground.producers.push(producing);
        }
        ground
    }

    async fn producing(&self) -> Producing {
        let client = self.db.connect().await;
        let pid = client
            .query_one("SELECT pg_backend_pid()", &[])
            .await
            .unwrap()
            .get(0);
        Producing {
            client: Arc::new(client),
            pid,
        }
    }

    /// Everything as it was at first. A producer that is at a call is ended; the others' transactions are
    /// rolled back, and the locks of lane connections let go.
    pub async fn reset(&mut self, busy: [bool; PRODUCERS]) {
        for (producer, busy) in busy.into_iter().enumerate() {
            if busy {
                self.end(self.producers[producer].pid).await;
                self.producers[producer] = self.producing().await;
            }
            self.producers[producer]
                .client
                .batch_execute("ROLLBACK")
                .await
                .unwrap();
        }
        for physical in &self.spare {
            physical
                .client
                .execute("SELECT pg_advisory_unlock_all()", &[])
                .await
                .unwrap();
        }
        self.admin.execute("SELECT sim.reset()", &[]).await.unwrap();
        let narrow: Vec<&str> = FILTERS[0].expect("the first is a filter").to_vec();
        self.admin
            .execute(
                "UPDATE lanekeeper.subscription SET paused_at = NULL, pause_reason = NULL, on_exhausted = $1,
                        events = CASE WHEN name = 'narrow' THEN $2::text[] END",
                &[&POLICIES[0], &narrow],
            )
            .await
            .unwrap();
    }

    pub async fn vacuum(&self) {
        self.admin.batch_execute("VACUUM").await.unwrap();
    }

    /// A connection from the store, or a new one.
    pub async fn open(&mut self) -> Physical {
        if let Some(physical) = self.spare.pop() {
            return physical;
        }
        let database: Database = self.db.url().parse().expect("a URL of the tests' own");
        let opened = lane_connection::open(&database, "sim")
            .await
            .expect("a lane connection");
        let client = opened.client;
        let unlock = [Type::INT8_ARRAY, Type::INT8, Type::INT8_ARRAY];
        let (int8s, int2s, int4s) = (Type::INT8_ARRAY, Type::INT2_ARRAY, Type::INT4_ARRAY);
        let mark = [
            int8s.clone(),
            int4s,
            int2s,
            Type::TID_ARRAY,
            int8s,
            Type::INT8,
        ];
        let driver = async |text, types: &[Type]| {
            Ok(client
                .prepare_typed(text, types)
                .await
                .expect("a statement of the store"))
        };
        let (claim, fetch, settle, unlock, mark) = try_join!(
            claim::prepare(&client),
            fetch::prepare(&client),
            settle::prepare(&client),
            driver(settle::UNLOCK, &unlock),
            driver(settle::RECORD_IN_FLIGHT, &mark),
        )
        .expect("the schema has what the store asks for");
        Physical {
            pid: opened.backend.pid,
            client,
            claim,
            fetch,
            settle,
            unlock,
            mark,
        }
    }

    /// Ends a backend, and waits until its locks are free.
    pub async fn end(&self, pid: i32) {
        self.admin
            .execute("SELECT pg_terminate_backend($1)", &[&pid])
            .await
            .unwrap();
        self.gone(pid).await;
    }

    pub async fn gone(&self, pid: i32) {
        until("a backend is gone", async || {
            let there = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)
                         OR EXISTS (SELECT FROM pg_locks WHERE pid = $1)";
            !self
                .admin
                .query_one(there, &[&pid])
                .await
                .unwrap()
                .get::<_, bool>(0)
        })
        .await;
    }

    pub async fn set_clock(&self, now: i64) {
        self.admin
            .execute("SELECT setval('sim.clock', $1, true)", &[&now])
            .await
            .unwrap();
    }
}

/// `filter` past the end: the first one, at the very beginning.
pub async fn apply(client: &mut Client, filter: usize, policy: usize) -> bool {
    let filter = FILTERS.get(filter).unwrap_or(&FILTERS[0]);
    let events = filter.unwrap_or(&["*"]);
    let policy = POLICIES[policy];
    let text = format!(
        "[stream.sim]\ncritical = [{CRITICAL:?}]\n
         [subscription.wide]\nstream = \"sim\"\nadapter = \"stdout\"\ncoalesce = true\nevents = [\"*\"]\n\
         retry = {{ schedule = [\"1s\", \"2s\"], max_attempts = 0, on_exhausted = \"dead_letter\" }}\n
         [subscription.narrow]\nstream = \"sim\"\nadapter = \"stdout\"\ncoalesce = false\nevents = {events:?}\n\
         retry = {{ schedule = [\"1s\", \"2s\"], max_attempts = 2, on_exhausted = \"{policy}\" }}\n"
    );
    let file = SubscriptionFile::parse(&text, "sim.toml").expect("a valid file");
    let applied = subscription::apply(client, false, |current| file.plan(current, false))
        .await
        .expect("applied");
    applied
        .changes
        .iter()
        .any(|change| change.change != lanekeeper_core::subscription::ChangeKind::Unchanged)
}

/// Waits for something that Postgres is about to do.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        sleep(Duration::from_millis(1)).await;
    }
}
