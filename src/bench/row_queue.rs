//! The baseline of the drain: the usual row queue, which keeps no order at all.
//!
//! Four connections, each taking 100 rows by UPDATE … FOR UPDATE SKIP LOCKED and deleting them when
//! they are done, with the planner pinned like the engine's, so that no bad plan flatters us.

use std::time::Instant;

use tokio_postgres::Client;

use super::cost::{Cost, Reading};
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

/// Jobs per second, from the first claim to the last delete, and what each cost.
pub async fn drain(
    scratch: &Scratch,
    jobs: usize,
    synchronous_commit: &str,
) -> Result<(f64, Cost), BenchError> {
    scratch.recreate().await?;
    let loader = scratch.connect().await?;
    loader
        .batch_execute(SCHEMA)
        .await
        .map_err(BenchError::on("creating the row queue"))?;
    let payload = backlog::payload();
    loader
        .execute(
            FILL,
            &[&(jobs as i64), &tokio_postgres::types::Json(&payload)],
        )
        .await
        .map_err(BenchError::on("filling the row queue"))?;

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
        let statements = (
            prepare(&client, CLAIM).await?,
            prepare(&client, FINISH).await?,
        );
        clients.push((client, statements));
    }
    let reading = Reading::take(&loader).await?;
    let started_at = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for (client, (claim, finish)) in clients {
        workers.spawn(async move { work(&client, &claim, &finish).await });
    }
    let mut done = 0;
    while let Some(finished) = workers.join_next().await {
        done += finished??;
    }
    let took = started_at.elapsed();
    if done == jobs {
        Ok((per_second(jobs, took), reading.cost(&loader, jobs).await?))
    } else {
        Err(BenchError::Incomplete {
            undelivered: jobs as i64 - done as i64,
            delivered: done as u64,
            expected: jobs as u64,
        })
    }
}

async fn work(
    client: &Client,
    claim: &tokio_postgres::Statement,
    finish: &tokio_postgres::Statement,
) -> Result<usize, BenchError> {
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
