//! A2, I13: a session that an append creates has all the lanes of its stream, whichever way it was created.

use serde_json::json;
use uuid::Uuid;

use super::bed::Bed;

async fn enqueue_many(bed: &Bed, begin: &str, event: serde_json::Value) {
    bed.client.batch_execute(begin).await.unwrap();
    bed.client
        .query(
            "SELECT * FROM lanekeeper.enqueue_many('runs', $1)",
            &[&json!([event])],
        )
        .await
        .unwrap();
    bed.client.batch_execute("COMMIT").await.unwrap();
}

/// Found by chaos.rs: what a spool sends in bulk has message ids.
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_call_with_message_ids_or_dedupe_keys_creates_the_lanes_of_new_sessions() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    let base = |session: &str| json!({"session": session, "event_type": "step", "payload": 1});
    let with = |session: &str, key: &str, value: String| {
        let mut event = base(session);
        event[key] = value.into();
        event
    };
    let id = Uuid::now_v7().to_string();
    enqueue_many(&bed, "BEGIN", with("by id", "message_id", id)).await;
    enqueue_many(&bed, "BEGIN", with("by key", "dedupe_key", "one".into())).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        enqueue_many(&bed, &format!("BEGIN ISOLATION LEVEL {level}"), base(level)).await;
    }
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.lane").await, 4);
    bed.drained().await;
    bed.assert_exact(4, 1);
    worker.stop().await;
}
