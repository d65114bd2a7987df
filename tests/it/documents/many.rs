//! Many documents in one call: in the order of the array, all or none, and without deadlocks between such calls.

use std::time::Duration;

use lanekeeper_postgres::document::{self, Expect};
use serde_json::json;
use tokio::time::timeout;

use super::{events, put, refusal};
use crate::support::TestDb;

#[tokio::test]
async fn many_documents_are_changed_in_the_order_of_the_array() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    put(&client, "old", "{\"a\":1}", Expect::Absent)
        .await
        .unwrap();
    put(&client, "gone", "1", Expect::Absent).await.unwrap();
    let documents = json!([
        {"kind": "k", "id": "z", "body": {"n": 1}, "expected_version": 0},
        {"kind": "k", "id": "a", "body": null},
        {"kind": "k", "id": "z", "patch": {"m": 2}, "expected_version": 1, "event_type": "Own", "event": {"x": 1}},
        {"kind": "k", "id": "old", "patch": {"a": null}, "event": null, "headers": null, "event_type": null},
        {"kind": "k", "id": "gone", "delete": true, "expected_version": 1},
    ]);
    let written = document::put_many(&client, &documents.to_string(), None)
        .await
        .unwrap();
    let told: Vec<_> = written
        .iter()
        .map(|one| (one.version, one.seq, one.created))
        .collect();
    assert_eq!(
        told,
        [
            (1, 1, true),
            (1, 1, true),
            (2, 2, false),
            (2, 2, false),
            (2, 2, false)
        ]
    );
    assert_eq!(
        events(&client, "z").await[1],
        (2, "Own".to_owned(), json!({"x": 1}))
    );
    let listed = document::list(&client, "k", None, 10).await.unwrap();
    let listed: Vec<&str> = listed.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(listed, ["a", "old", "z"]);
    assert_eq!(document::put_many(&client, "[]", None).await.unwrap(), []);
}

#[tokio::test]
async fn one_element_that_is_refused_refuses_all() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    put(&client, "there", "1", Expect::Absent).await.unwrap();
    let first = r#"{"kind":"k","id":"new","body":1}"#;
    for (other, code) in [
        (
            r#"{"kind":"k","id":"there","body":1,"expected_version":0}"#,
            "LK004",
        ),
        (r#"{"kind":"k","id":"none","patch":{}}"#, "LK010"),
        (r#"{"kind":"k","id":"none","delete":true}"#, "LK010"),
        (r#"{"kind":"a/b","id":"c","body":1}"#, "LK006"),
        (r#"{"kind":"k","id":"","body":1}"#, "LK006"),
        (r#"{"kind":"k","id":"x"}"#, "LK006"),
        (r#"{"kind":"k","id":"x","delete":false}"#, "LK006"),
        (r#"{"kind":"k","id":"x","body":1,"patch":1}"#, "LK006"),
        (r#"{"kind":"k","id":7,"body":1}"#, "LK006"),
        (
            r#"{"kind":"k","id":"x","body":1,"expected_version":"1.5"}"#,
            "LK006",
        ),
        (
            r#"{"kind":"k","id":"x","body":1,"expected_version":true}"#,
            "LK006",
        ),
        (
            r#"{"kind":"k","id":"x","body":1,"exspected_version":1}"#,
            "LK006",
        ),
        (r#"{"kind":"k","id":"x","body":1,"event":{}}"#, "LK006"),
        (r#"["k","x",1]"#, "LK006"),
        ("null", "LK006"),
    ] {
        let statement = format!("SELECT * FROM lanekeeper.put_documents('[{first},{other}]')");
        assert_eq!(refusal(&client, &statement).await, code, "{other}");
    }
    for whole in [
        "'{}'",
        "NULL",
        "'7'",
        "(SELECT jsonb_agg(n) FROM generate_series(1, 1001) AS n)",
    ] {
        let statement = format!("SELECT * FROM lanekeeper.put_documents({whole})");
        assert_eq!(refusal(&client, &statement).await, "LK006", "{whole}");
    }
    assert_eq!(events(&client, "new").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_name_the_same_documents_in_other_orders_do_not_deadlock() {
    let db = TestDb::new().await;
    let mut calls = Vec::new();
    for caller in 0..8_usize {
        let client = db.connect().await;
        calls.push(tokio::spawn(async move {
            for round in 0..15_usize {
                let mut ids: Vec<String> = (0..6).map(|n| format!("r{round}-{n}")).collect();
                ids.rotate_left(caller % 6);
                if caller % 2 == 0 {
                    ids.reverse();
                }
                // As appends to the same sessions do, half of them.
                if caller == 7 {
                    let events: Vec<_> = ids.iter().map(|id| json!({"session": format!("k/{id}"), "event_type": "seen", "payload": 1})).collect();
                    let events = serde_json::Value::from(events);
                    let append = "SELECT count(*) FROM lanekeeper.enqueue_many('documents', $1)";
                    client.query(append, &[&events]).await.unwrap();
                    continue;
                }
                let documents: Vec<_> = ids.iter().map(|id| json!({"kind": "k", "id": id, "body": caller})).collect();
                let documents = serde_json::Value::from(documents).to_string();
                document::put_many(&client, &documents, None).await.unwrap();
            }
        }));
    }
    for call in calls {
        timeout(Duration::from_secs(60), call)
            .await
            .unwrap()
            .unwrap();
    }
    let client = db.connect().await;
    let versions: i64 = client
        .query_one("SELECT count(*) FROM lanekeeper.document_version", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(versions, 7 * 15 * 6);
}
