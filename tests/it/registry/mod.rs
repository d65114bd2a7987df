//! B3: the agent registry, from hook calls to its rows.

mod built_in;
mod codex;
mod command;
#[cfg(feature = "crash-points")]
mod crash_points;
mod exactly_once;
mod payloads;
mod sessions;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::subscription::built_in::REGISTRY;
use lanekeeper_engine::{Destination, DestinationSource, Worker, WorkerSettings};
use lanekeeper_postgres::subscription::{self, Subscription};
use lanekeeper_streams::hooks::STREAM;
use lanekeeper_streams::hooks::call::Call;
use lanekeeper_streams::hooks::config::HookConfig;
use lanekeeper_streams::hooks::origin::Origin;
use lanekeeper_streams::hooks::registry::{SessionRegistry, definition};
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Json;

use crate::support::{TestDb, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// A database with the registry in force.
struct Office {
    db: TestDb,
    client: Client,
}

struct OnlyRegistry;

impl DestinationSource for OnlyRegistry {
    fn build(
        &self,
        subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        if subscription.adapter != REGISTRY {
            return Err("another worker's".into());
        }
        Ok(Destination::Handler(Arc::new(SessionRegistry)))
    }
}

impl Office {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let mut client = db.connect().await;
        install(&mut client).await.unwrap();
        Self { db, client }
    }

    async fn worker(&self) -> Worker {
        let database = self.db.url().parse().unwrap();
        Worker::start(database, WorkerSettings::default(), Arc::new(OnlyRegistry))
            .await
            .unwrap()
    }

    /// Runs a worker until everything is entered.
    async fn work(&self) {
        let worker = self.worker().await;
        self.settled().await;
        worker.stop().await;
    }

    async fn settled(&self) {
        settled(&self.client).await;
    }

    /// What `lanekeeper hook` stores of a call; `None` where it stores nothing.
    async fn call(&self, cli: &str, payload: &Value) -> Option<i64> {
        self.call_with(cli, payload.to_string().as_bytes(), &HookConfig::default())
            .await
    }

    async fn call_with(&self, cli: &str, payload: &[u8], config: &HookConfig) -> Option<i64> {
        let call = Call::read(cli.parse().unwrap(), payload, true, &Origin::now(), config);
        if !config.allows(&call.record.event_type) {
            return None;
        }
        let record = call.record;
        let (payload, headers): (Value, Value) = (
            serde_json::from_str(record.payload.get()).unwrap(),
            serde_json::from_str(record.headers.get()).unwrap(),
        );
        let row = self
            .client
            .query_one(
                "SELECT seq FROM lanekeeper.enqueue('hooks', $1, $2, $3, headers => $4)",
                &[
                    &record.session,
                    &record.event_type,
                    &Json(payload),
                    &Json(headers),
                ],
            )
            .await;
        Some(row.unwrap().get(0))
    }

    /// An event of a producer that is no hook call.
    async fn enqueue(&self, session: &str, event_type: &str, payload: &Value) -> i64 {
        self.client
            .query_one(
                "SELECT seq FROM lanekeeper.enqueue('hooks', $1, $2, $3)",
                &[&session, &event_type, &Json(payload)],
            )
            .await
            .unwrap()
            .get(0)
    }

    async fn entry(&self, session: &str) -> Option<Value> {
        let row = self
            .client
            .query_opt(
                "SELECT to_jsonb(r) FROM lanekeeper.session_registry AS r WHERE r.session = $1",
                &[&session],
            )
            .await;
        row.unwrap().map(|row| row.get(0))
    }

    async fn count(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// The outcomes of a session's events: seq, kind, error.
    async fn outcomes(&self, session: &str) -> Vec<(i64, String, Option<String>)> {
        let rows = self
            .client
            .query(
                "SELECT o.seq, o.kind, o.error FROM lanekeeper.outcome AS o
             JOIN lanekeeper.lane AS l ON l.lane_id = o.lane_id
             JOIN lanekeeper.session AS s ON s.session_id = l.session_id
             WHERE s.name = $1 ORDER BY o.seq",
                &[&session],
            )
            .await
            .unwrap();
        rows.iter()
            .map(|row| (row.get(0), row.get(1), row.get(2)))
            .collect()
    }
}

async fn install(client: &mut Client) -> Result<subscription::Done, subscription::BuiltInError> {
    subscription::install(client, REGISTRY, STREAM, definition).await
}

async fn settled(client: &Client) {
    wait_until(LIMIT, "every event is entered", async || {
        let left = "SELECT count(*) FROM lanekeeper.lane_status WHERE head_seq IS NOT NULL AND subscription = 'registry'";
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
}

/// Keeps a record of every entry that was committed, in the order of the commits of each session.
/// `delay_s` makes each take that long.
async fn audit(client: &Client, delay_s: f64) {
    record_entries(client, delay_s, "NEW.seq").await;
}

/// The same where the registry forgets of which events it knows: of one that it knows it would make
/// nothing, and hide that it was told of it twice.
async fn audit_repeats(client: &Client, delay_s: f64) {
    record_entries(client, delay_s, "0").await;
}

async fn record_entries(client: &Client, delay_s: f64, known: &str) {
    client
        .batch_execute(&format!(
            "CREATE TABLE public.entered (id bigserial, session_id bigint, seq bigint, turn bigint);
             CREATE FUNCTION public.record_entry() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 PERFORM pg_sleep({delay_s});
                 INSERT INTO public.entered (session_id, seq, turn) VALUES (NEW.session_id, NEW.seq, NEW.turn);
                 NEW.seq := {known};
                 RETURN NEW;
             END $$;
             CREATE TRIGGER record_entry BEFORE INSERT OR UPDATE ON lanekeeper.agent_session
             FOR EACH ROW EXECUTE FUNCTION public.record_entry()"
        ))
        .await
        .unwrap();
}
