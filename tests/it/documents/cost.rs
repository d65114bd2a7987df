//! I9: what a call reads does not grow with the documents, versions and deletions that have piled up.

use serde_json::Value;
use tokio_postgres::Client;

use crate::support::TestDb;

const CALLS: [&str; 7] = [
    "SELECT lanekeeper.put_document('k', 'hot', '{\"n\": 2}')",
    "SELECT lanekeeper.patch_document('k', 'hot', '{\"n\": 3}')",
    "SELECT * FROM lanekeeper.get_document('k', 'hot')",
    "SELECT * FROM lanekeeper.get_document('k', 'hot', 1)",
    // Before them all.
    "SELECT * FROM lanekeeper.get_document('k', 'hot', at_time => now() - interval '1 day')",
    "SELECT * FROM lanekeeper.list_documents('k', NULL, 3)",
    "SELECT * FROM lanekeeper.document_history('k', 'hot', NULL, 3)",
];

/// Pages that the call reads, those of the function's own statements too.
async fn pages(client: &Client, call: &str) -> i64 {
    // What is read once for each connection, and plans, are made first.
    for _ in 0..3 {
        client.batch_execute(call).await.unwrap();
    }
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}");
    let plan: Value = client.query_one(&explain, &[]).await.unwrap().get(0);
    let plan = &plan[0]["Plan"];
    let read = |what: &str| plan[what].as_i64().unwrap();
    read("Shared Hit Blocks") + read("Shared Read Blocks")
}

#[tokio::test]
async fn a_call_reads_no_more_when_documents_versions_and_deletions_have_piled_up() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    // No statistics come to the planner's help.
    let quiet = "ALTER TABLE lanekeeper.document SET (autovacuum_enabled = off);
        ALTER TABLE lanekeeper.document_version SET (autovacuum_enabled = off);
        SELECT lanekeeper.put_documents('[{\"kind\":\"k\",\"id\":\"a\",\"body\":1},{\"kind\":\"k\",\"id\":\"b\",\"body\":1}]')";
    client.batch_execute(quiet).await.unwrap();
    let mut before = Vec::new();
    for call in CALLS {
        before.push(pages(&client, call).await);
    }
    client
        .batch_execute(
            "SET synchronous_commit = off;
             SELECT lanekeeper.put_document('k', 'hot', to_jsonb(n)) FROM generate_series(1, 3000) AS n;
             SELECT lanekeeper.put_document('k', 'z' || n, '1') FROM generate_series(1, 2000) AS n;
             SELECT lanekeeper.put_document('k', 'a' || n, '1') FROM generate_series(1, 2000) AS n;
             SELECT lanekeeper.delete_document('k', 'a' || n) FROM generate_series(1, 2000) AS n",
        )
        .await
        .unwrap();
    // As autovacuum does, which is off here.
    let vacuum = client.batch_execute("VACUUM lanekeeper.document").await;
    vacuum.unwrap();
    for (call, before) in CALLS.into_iter().zip(before) {
        let after = pages(&client, call).await;
        // Indexes are some levels higher.
        assert!(after <= before + 40, "{call}: {before}, then {after}");
    }
}
