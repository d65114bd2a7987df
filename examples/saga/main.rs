//! A saga: runs of an agent in three steps, each with what takes it back. A step that fails, or an agent that says nothing
//! until its deadline, has the steps before it taken back, the last one first.
//!
//! Start it, kill it at any moment, and start it again:
//!
//! ```sh
//! lanekeeper dev --ephemeral -- cargo run --example saga
//! ```
//!
//! Without arguments it makes a run of each kind. `NAME=POOL/AGENT/DEADLINE_MS` asks for others: the pools are `main` and
//! `none`, the agents `good`, `bad`, `late` and `silent`. It ends when they have ended. A run is asked for once, however
//! often the program is started with its name.

mod agents;
mod deadlines;
mod run;
mod steps;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper::append::{NewEvent, enqueue};
use lanekeeper::subscription::{Subscription, SubscriptionFile, apply};
use lanekeeper::{Destination, DestinationSource, Worker, WorkerSettings};
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use agents::Agents;
use deadlines::Deadlines;
use steps::{STREAM, Steps};

const USUAL: [&str; 6] = [
    "all-well=main/good/30000",
    "no-workspace=none/good/30000",
    "no-agent=main//30000",
    "tests-fail=main/bad/30000",
    "says-nothing=main/silent/500",
    "too-late=main/late/500",
];

/// Who delivers what: by the subscription's name.
struct Destinations {
    database_url: String,
}

impl DestinationSource for Destinations {
    fn build(
        &self,
        subscription: &Subscription,
    ) -> Result<Destination, Box<dyn Error + Send + Sync>> {
        Ok(match &*subscription.name {
            "saga_steps" => Destination::Handler(Arc::new(Steps)),
            "saga_deadlines" => Destination::Handler(Arc::new(Deadlines)),
            "saga_agents" => Destination::Adapter(Arc::new(Agents {
                database_url: self.database_url.clone(),
            })),
            other => return Err(format!("{other} is not delivered by this program").into()),
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database_url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
    let (mut client, connection) = tokio_postgres::connect(&database_url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(include_str!("schema.sql")).await?;
    let file = SubscriptionFile::parse(include_str!("subscriptions.toml"), "subscriptions.toml")?;
    apply(&mut client, false, |current| file.plan(current, false)).await?;

    let destinations = Arc::new(Destinations {
        database_url: database_url.clone(),
    });
    let worker = Worker::start(
        database_url.parse()?,
        WorkerSettings::default(),
        destinations,
    )
    .await?;
    let given: Vec<String> = std::env::args().skip(1).collect();
    let runs = match given.is_empty() {
        true => USUAL.map(str::to_owned).to_vec(),
        false => given,
    };
    let names = request(&mut client, &runs).await?;
    let ended = "SELECT count(*) FROM saga.run WHERE run = ANY ($1) AND phase IN ('completed', 'compensated')";
    while client.query_one(ended, &[&names]).await?.get::<_, i64>(0) < i64::try_from(names.len())? {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    worker.stop().await;
    show(&client, &names).await
}

/// Asks for runs, each once, with a workspace for each in the pool `main`. All or none.
async fn request(client: &mut Client, runs: &[String]) -> Result<Vec<String>, Box<dyn Error>> {
    let transaction = client.transaction().await?;
    let mut names = Vec::new();
    for run in runs {
        let (name, request) = parsed(run).ok_or("write NAME=POOL/AGENT/DEADLINE_MS")?;
        let payload = request.to_string();
        let key = format!("request of {name}");
        let event = NewEvent {
            dedupe_key: Some(&key),
            ..NewEvent::new(name, run::REQUESTED, &payload)
        };
        if !enqueue(&transaction, STREAM, &event).await?.duplicate {
            let workspace = "INSERT INTO saga.workspace (pool) VALUES ('main')";
            transaction.execute(workspace, &[]).await?;
        }
        names.push(name.to_owned());
    }
    transaction.commit().await?;
    Ok(names)
}

fn parsed(run: &str) -> Option<(&str, Value)> {
    let (name, kind) = run.split_once('=')?;
    let [pool, agent, deadline] = kind.split('/').collect::<Vec<_>>().try_into().ok()?;
    let deadline: u64 = deadline.parse().ok()?;
    let request = json!({"pool": pool, "agent": agent, "deadline_ms": deadline});
    Some((name, request))
}

async fn show(client: &Client, names: &[String]) -> Result<(), Box<dyn Error>> {
    let overview =
        "SELECT r.run, r.phase, coalesce(string_agg(e.what, ', ' ORDER BY e.effect_id), 'nothing')
        FROM saga.run AS r LEFT JOIN saga.effect AS e ON e.run = r.run
        WHERE r.run = ANY ($1) GROUP BY r.run ORDER BY r.run";
    for row in client.query(overview, &[&names]).await? {
        let (run, phase, effects): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        println!("{run:14}{phase:13}{effects}");
    }
    Ok(())
}
