//! The baseline of the drain: the usual row queue, which keeps no order at all.
//!
//! Four connections, each taking 100 rows by UPDATE … FOR UPDATE SKIP LOCKED and deleting them when
//! they are done, with the planner pinned like the engine's, so that no bad plan flatters us.

use std::sync::Arc;
use std::time::Instant;

use tokio_postgres::{Client, Statement};

use super::cost::{Drained, Reading};
use super::measure::per_second;
use super::{BenchError, Scratch, backlog, prepare};

pub const CONNECTIONS: usize = 4;
const SCHEMA: &str = "
    CREATE SCHEMA bench;
    CREATE TABLE bench.job (
        id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        state      smallint NOT NULL DEFAULT 0,
        session    text NOT NULL,
        event_type text NOT NULL,
        payload    jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX job_by_state ON bench.job (state, id);";
const FILL: &str = "
    INSERT INTO bench.job (session, event_type, payload)
    SELECT 's-' || n % 5000, 'message', $2::jsonb FROM generate_series(1, $1::bigint) AS n";
const CLAIM: &str = "
    UPDATE bench.job SET state = 1
    WHERE id IN (
        SELECT id FROM bench.job WHERE state = 0 ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)
    RETURNING id, payload";
const FINISH: &str = "DELETE FROM bench.job WHERE id = ANY ($1)";

/// Twice as many jobs as that, the second half when the first is done: jobs per second, from the first claim to the last
/// delete, of connections that were just opened and of such that have worked, and what each job cost them then.
pub async fn drain(
    scratch: &Scratch,
    jobs: usize,
    synchronous_commit: &str,
) -> Result<Drained, BenchError> {
    scratch.recreate().await?;
    let loader = scratch.connect().await?;
    loader
        .batch_execute(SCHEMA)
        .await
        .map_err(BenchError::on("creating the row queue"))?;
    fill(&loader, jobs).await?;

    let pins = format!(
        "SET synchronous_commit = {synchronous_commit}; SET plan_cache_mode = force_generic_plan;
         SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;
         SET enable_mergejoin = off; SET jit = off"
    );
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = scratch.connect().await?;
        client
            .batch_execute(&pins)
            .await
            .map_err(BenchError::on("pinning the planner"))?;
        let claim = prepare(&client, CLAIM).await?;
        let finish = prepare(&client, FINISH).await?;
        clients.push(Arc::new((client, claim, finish)));
    }
    let started_at = Instant::now();
    all(&clients, jobs).await?;
    let started = per_second(jobs, started_at.elapsed());

    fill(&loader, jobs).await?;
    backlog::vacuum(&loader, "bench.job").await?;
    let reading = Reading::take(&loader).await?;
    let started_at = Instant::now();
    all(&clients, jobs).await?;
    let rate = per_second(jobs, started_at.elapsed());
    let cost = reading.cost(&loader, jobs).await?;
    Ok(Drained {
        started,
        running: (rate, cost),
    })
}

async fn fill(loader: &Client, jobs: usize) -> Result<(), BenchError> {
    let payload = backlog::payload();
    loader
        .execute(
            FILL,
            &[&(jobs as i64), &tokio_postgres::types::Json(&payload)],
        )
        .await
        .map(drop)
        .map_err(BenchError::on("filling the row queue"))
}

type Connection = (Client, Statement, Statement);

/// All connections work until nothing is left.
async fn all(connections: &[Arc<Connection>], jobs: usize) -> Result<(), BenchError> {
    let mut workers = tokio::task::JoinSet::new();
    for connection in connections {
        let connection = Arc::clone(connection);
        workers.spawn(async move {
            let (client, claim, finish) = &*connection;
            work(client, claim, finish).await
        });
    }
    let mut done = 0;
    while let Some(finished) = workers.join_next().await {
        done += finished??;
    }
    if done == jobs {
        return Ok(());
    }
    Err(BenchError::Incomplete {
        undelivered: jobs as i64 - done as i64,
        delivered: done as u64,
        expected: jobs as u64,
    })
}

async fn work(client: &Client, claim: &Statement, finish: &Statement) -> Result<usize, BenchError> {
    let mut done = 0;
    loop {
        let rows = client
            .query(claim, &[])
            .await
            .map_err(BenchError::on("claiming jobs"))?;
        if rows.is_empty() {
            return Ok(done);
        }
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        client
            .execute(finish, &[&ids])
            .await
            .map_err(BenchError::on("finishing jobs"))?;
        done += ids.len();
    }
}
