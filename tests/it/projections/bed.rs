//! A database with a read model, a role that keeps it, a projection, and workers.

use std::time::Duration;

use tokio_postgres::Client;

use crate::command::{self, Ran};
use crate::statements::role::Role;
use crate::support::{Receiver, TestDb, WorkerProcess, wait_until};

pub const LIMIT: Duration = Duration::from_secs(30);

/// The table has no key: a second effect would show.
const READ_MODEL: &str = "CREATE SCHEMA shop;
    CREATE TABLE shop.seen (id bigint GENERATED ALWAYS AS IDENTITY, session text, seq bigint, event_type text, data jsonb);
    CREATE TABLE shop.total (session text PRIMARY KEY, count bigint NOT NULL, note text);
    GRANT USAGE ON SCHEMA shop TO {role};
    GRANT SELECT, INSERT, UPDATE, DELETE ON shop.seen, shop.total TO {role};
    GRANT UPDATE ON ALL SEQUENCES IN SCHEMA shop TO {role};
    GRANT USAGE ON SCHEMA lanekeeper TO {role};
    GRANT EXECUTE ON FUNCTION lanekeeper.begin_projection, lanekeeper.settle_projection TO {role}";

/// What the function does unless a test says otherwise.
pub const COUNT: &str = "INSERT INTO seen (session, seq, event_type, data)
    VALUES (event ->> 'session', (event ->> 'seq')::bigint, event ->> 'type', event -> 'data');
    INSERT INTO total AS t VALUES (event ->> 'session', 1)
    ON CONFLICT (session) DO UPDATE SET count = t.count + 1;";

pub struct Bed {
    pub db: TestDb,
    pub client: Client,
    pub role: Role,
    pub receiver: Receiver,
}

impl Bed {
    /// With this body of the function, in PL/pgSQL.
    pub async fn new(body: &str) -> Self {
        let bed = Self::bare().await;
        bed.define(body).await;
        bed.apply("").await;
        bed
    }

    /// Without function and subscription.
    pub async fn bare() -> Self {
        let db = TestDb::new().await;
        let client = db.connect().await;
        let role = Role::stranger(&db, "p").await;
        let grants = READ_MODEL.replace("{role}", &role.name);
        client.batch_execute(&grants).await.unwrap();
        Self {
            db,
            client,
            role,
            receiver: Receiver::start(Duration::ZERO).await,
        }
    }

    pub async fn define(&self, body: &str) {
        let create = format!(
            "CREATE OR REPLACE FUNCTION shop.count_order(event jsonb) RETURNS void LANGUAGE plpgsql AS $f$
             BEGIN {body} END $f$"
        );
        self.client.batch_execute(&create).await.unwrap();
    }

    pub fn file(&self, more: &str) -> String {
        format!(
            "[subscription.totals]
             stream = \"runs\"
             adapter = \"projection\"
             start = \"earliest\"
             function = \"shop.count_order\"
             role = \"{}\"
             url_env = \"SHOP_URL\"
             tables = [\"seen\", \"total\"]
             {more}",
            self.role.name
        )
    }

    pub async fn try_apply(&self, more: &str) -> Ran {
        let url = [("DATABASE_URL", self.db.url())];
        command::run(&["apply", "-f", "-"], &url, &self.file(more)).await
    }

    pub async fn apply(&self, more: &str) {
        let ran = self.try_apply(more).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }

    pub async fn worker(&self) -> WorkerProcess {
        self.worker_with(&[]).await
    }

    pub async fn worker_with(&self, more: &[(&str, &str)]) -> WorkerProcess {
        let own = [("SHOP_URL", self.role.url())];
        let variables = [&own[..], more].concat();
        WorkerProcess::start(self.db.url(), &self.receiver, &variables).await
    }

    pub async fn rebuild(&self, more: &[&str]) -> Ran {
        let variables = [
            ("DATABASE_URL", self.db.url()),
            ("SHOP_URL", self.role.url()),
        ];
        let args = [&["projection", "rebuild", "totals"], more].concat();
        command::run(&args, &variables, "").await
    }

    /// `count` events to each of `sessions` sessions, in one transaction.
    pub async fn enqueue(&self, sessions: i64, count: i64) {
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

    pub async fn count(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    pub async fn text(&self, query: &str) -> String {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    pub async fn until(&self, what: &str, query: &str, expected: i64) {
        wait_until(LIMIT, what, async || self.count(query).await == expected).await;
    }

    pub async fn drained(&self) {
        let behind = "SELECT coalesce(sum(behind), 0)::bigint FROM lanekeeper.lane_status";
        self.until("every event is handled", behind, 0).await;
    }

    /// What readers see.
    pub async fn read_model(&self) -> String {
        self.text(
            "SELECT (SELECT coalesce(jsonb_agg(s ORDER BY s.id), '[]') FROM shop.seen AS s)::text
                 || (SELECT coalesce(jsonb_agg(t ORDER BY t.session), '[]') FROM shop.total AS t)::text",
        )
        .await
    }

    /// Each session has each of its events once, in its order, and what was counted agrees with it.
    pub async fn assert_exact(&self, sessions: i64, count: i64) {
        let seen = "SELECT count(*) FROM shop.seen";
        assert_eq!(self.count(seen).await, sessions * count);
        let distinct = "SELECT count(DISTINCT (session, seq)) FROM shop.seen";
        assert_eq!(self.count(distinct).await, sessions * count);
        let disordered = "SELECT count(*) FROM (
            SELECT seq, row_number() OVER (PARTITION BY session ORDER BY id) AS place FROM shop.seen) AS s WHERE seq <> place";
        assert_eq!(self.count(disordered).await, 0);
        let wrong = format!("SELECT count(*) FROM shop.total WHERE count <> {count}");
        assert_eq!(self.count(&wrong).await, 0);
        assert_eq!(
            self.count("SELECT count(*) FROM shop.total").await,
            sessions
        );
    }
}
