//! How large the engine's tables are, and how many dead rows they hold.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use super::super::BenchError;
use super::super::report::Table;

const SELECT: &str = "
    SELECT t.name, coalesce(s.n_dead_tup, 0), pg_total_relation_size(c.oid)::float8 / 1048576
    FROM unnest('{ready,progress,lane,session,claim}'::text[]) AS t (name)
    JOIN pg_class AS c ON c.relname = t.name AND c.relnamespace = 'lanekeeper'::regnamespace
    LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
    UNION ALL
    SELECT 'event', coalesce(sum(s.n_dead_tup), 0)::bigint,
           coalesce(sum(pg_total_relation_size(p.relid)), 0)::float8 / 1048576
    FROM pg_partition_tree('lanekeeper.event') AS p
    LEFT JOIN pg_stat_all_tables AS s ON s.relid = p.relid
    WHERE p.isleaf";

pub async fn read(client: &Client) -> Result<BTreeMap<String, Table>, BenchError> {
    let rows = client
        .query(SELECT, &[])
        .await
        .map_err(BenchError::on("reading the tables' sizes"))?;
    Ok(rows
        .iter()
        .map(|row| {
            let table = Table {
                dead_rows: row.get(1),
                mib: row.get(2),
            };
            (row.get(0), table)
        })
        .collect())
}
