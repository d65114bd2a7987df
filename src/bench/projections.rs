//! A read model that a function in SQL keeps, fed by a worker, against one connection that calls the same function with the
//! same events, fifty in a transaction, without settling anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lanekeeper_engine::{Destination, DestinationSource, Worker};
use lanekeeper_postgres::operate;
use lanekeeper_postgres::projection::Projection;
use lanekeeper_postgres::subscription::{self, ApplyError, Subscription};
use lanekeeper_subscription::SubscriptionFile;
use tokio::time::sleep;
use tokio_postgres::Client;
use uuid::Uuid;

use super::backlog::{self, STREAM, SUBSCRIPTION};
use super::measure::{Pairs, per_second};
use super::report::{Comparison, Line};
use super::{Backlog, BenchError, Options, Scratch, prepare, progress};

const SESSIONS: usize = 1_000;
/// Of the other side, as large as the worker's.
const IN_A_TRANSACTION: usize = 50;
const TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Without an event for so long, something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

const READ_MODEL: &str = "
    CREATE SCHEMA bench;
    CREATE TABLE bench.total (session text PRIMARY KEY, events bigint NOT NULL) WITH (fillfactor = 50);
    CREATE FUNCTION bench.count_event(event jsonb) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO total AS t VALUES (event ->> 'session', 1)
        ON CONFLICT (session) DO UPDATE SET events = t.events + 1;
    END $$";
const COUNTED: &str = "SELECT coalesce(sum(t.events), 0)::bigint FROM bench.total AS t";
const BY_HAND: &str = "
    SELECT count(bench.count_event(jsonb_build_object('session', $1 || (n % $2)::text, 'seq', n, 'data', $3::text::jsonb)))
    FROM generate_series($4::bigint, $5::bigint) AS n";

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Line, BenchError> {
    let role = Role {
        name: format!("lanekeeper_bench_{}_fed", std::process::id()),
        password: Uuid::new_v4().simple().to_string(),
    };
    let measured = compared(scratch, options, &role).await;
    let dropped = role.drop_from(scratch).await;
    let line = measured?;
    dropped.map(|()| line)
}

async fn compared(scratch: &Scratch, options: &Options, role: &Role) -> Result<Line, BenchError> {
    let sessions = SESSIONS.min(options.spread_events.max(1));
    let backlog = Backlog {
        sessions,
        events: options.spread_events.div_ceil(sessions).max(1),
    };
    let mut pairs = Pairs::default();
    for run in 1..=options.runs() {
        progress(&format!(
            "projections {backlog}, run {run} of {}",
            options.runs()
        ));
        scratch.recreate().await?;
        let client = scratch.connect().await?;
        role.create(&client).await?;
        pairs.push(
            fed(scratch, options, role, &client, backlog).await?,
            by_hand(&client, backlog).await?,
        );
    }
    let against = format!(
        "one connection that calls the function, {IN_A_TRANSACTION} events in a transaction"
    );
    let case = format!("{backlog}, a function in PL/pgSQL");
    Ok(Line::Comparison(Comparison::new(
        ("projections", case),
        against,
        pairs,
        None,
    )))
}

/// Events per second, from when the worker may claim to when the last one is in the read model.
async fn fed(
    scratch: &Scratch,
    options: &Options,
    role: &Role,
    client: &Client,
    backlog: Backlog,
) -> Result<f64, BenchError> {
    let text = format!(
        "[subscription.{SUBSCRIPTION}]\nstream = \"{STREAM}\"\nadapter = \"projection\"\nfunction = \"bench.count_event\"\n\
         role = \"{}\"\nurl_env = \"UNUSED\"\ntables = [\"total\"]\nmax_pending = 0\n",
        role.name
    );
    let file = SubscriptionFile::parse(&text, "bench").map_err(ApplyError::File)?;
    let mut applying = scratch.connect().await?;
    subscription::apply(&mut applying, false, |current| file.plan(current, false)).await?;
    backlog::finish_changes(client).await?;
    operate::pause_subscription(client, SUBSCRIPTION, "loading").await?;
    backlog::load(scratch, "fed", backlog).await?;
    let source = Arc::new(Fed(Arc::new(Projection {
        schema: "bench".to_owned(),
        function: "count_event".to_owned(),
        role: role.name.clone(),
        tables: vec!["total".to_owned()],
        timeout: TIMEOUT,
        database: scratch.database_for(&role.name, &role.password),
    })));
    let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
    operate::resume_subscription(client, SUBSCRIPTION).await?;
    let began = Instant::now();
    let counting = counted(client, backlog.total()).await;
    let took = began.elapsed();
    worker.stop().await;
    counting?;
    Ok(per_second(backlog.total(), took))
}

async fn counted(client: &Client, expected: usize) -> Result<(), BenchError> {
    let statement = prepare(client, COUNTED).await?;
    let (mut last, mut moved_at) = (0, Instant::now());
    loop {
        let events: i64 = client
            .query_one(&statement, &[])
            .await
            .and_then(|row| row.try_get(0))
            .map_err(BenchError::on("reading the read model"))?;
        let delivered = u64::try_from(events).unwrap_or_default();
        if delivered >= expected as u64 {
            return Ok(());
        }
        if delivered > last {
            (last, moved_at) = (delivered, Instant::now());
        } else if moved_at.elapsed() > PATIENCE {
            return Err(BenchError::Stalled {
                delivered,
                expected: expected as u64,
                silent: PATIENCE,
            });
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn by_hand(client: &Client, backlog: Backlog) -> Result<f64, BenchError> {
    let calling = BenchError::on;
    client
        .batch_execute("TRUNCATE bench.total; SET search_path = bench, pg_catalog")
        .await
        .map_err(calling("emptying the read model"))?;
    let statement = prepare(client, BY_HAND).await?;
    let sessions = i64::try_from(backlog.sessions).unwrap_or(i64::MAX);
    let payload = backlog::payload();
    let began = Instant::now();
    for first in (0..backlog.total()).step_by(IN_A_TRANSACTION) {
        let last = backlog.total().min(first + IN_A_TRANSACTION) - 1;
        let (first, last) = (first as i64, last as i64);
        client
            .query_one(
                &statement,
                &[&"hand", &sessions, &payload.get(), &first, &last],
            )
            .await
            .map_err(calling("calling the function"))?;
    }
    Ok(per_second(backlog.total(), began.elapsed()))
}

/// Whose rights the function has. Roles belong to the whole server.
struct Role {
    name: String,
    password: String,
}

impl Role {
    async fn create(&self, client: &Client) -> Result<(), BenchError> {
        let Self { name, password } = self;
        let create = format!(
            "DO $$ BEGIN CREATE ROLE {name} LOGIN PASSWORD '{password}';
             EXCEPTION WHEN duplicate_object THEN NULL; END $$;
             {READ_MODEL};
             GRANT USAGE ON SCHEMA bench, lanekeeper TO {name};
             GRANT SELECT, INSERT, UPDATE, DELETE ON bench.total TO {name};
             GRANT EXECUTE ON FUNCTION lanekeeper.begin_projection, lanekeeper.settle_projection TO {name}"
        );
        let created = client.batch_execute(&create).await;
        created.map_err(BenchError::on("creating the role of the read model"))
    }

    /// Its rights go with the scratch database.
    async fn drop_from(&self, scratch: &Scratch) -> Result<(), BenchError> {
        scratch.remove().await?;
        let admin = scratch.connect_admin().await?;
        let drop = format!("DROP ROLE IF EXISTS {}", self.name);
        let dropped = admin.batch_execute(&drop).await;
        dropped.map_err(BenchError::on("dropping the role of the read model"))
    }
}

struct Fed(Arc<Projection>);

impl DestinationSource for Fed {
    fn build(
        &self,
        _subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Destination::Projection(Arc::clone(&self.0)))
    }
}
