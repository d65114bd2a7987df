//! The dead rows that a held snapshot keeps, and how many of them a statement reads.

use tokio_postgres::{Client, IsolationLevel, Transaction};

/// Holds a snapshot as old as this call, until it is dropped.
pub async fn hold(holder: &mut Client) -> Transaction<'_> {
    let held = holder
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    held.query("SELECT count(*) FROM lanekeeper.ready", &[])
        .await
        .unwrap();
    held
}

/// Pages of tables and indexes that were read by this plan, with EXPLAIN's BUFFERS in JSON: each as often as it was.
pub fn pages(explained: &serde_json::Value) -> i64 {
    let plan = &explained[0]["Plan"];
    ["Shared Hit Blocks", "Shared Read Blocks"]
        .iter()
        .map(|blocks| plan[*blocks].as_i64().unwrap())
        .sum()
}
