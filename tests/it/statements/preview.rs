//! Previews of large payloads.

use lanekeeper_postgres::preview;
use serde_json::{Value, json};

use crate::support::TestDb;

#[tokio::test]
async fn a_preview_has_the_payloads_values_at_its_pointers_and_nothing_else() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let filling = "z".repeat(50_000);
    let payloads = [
        json!({"a/b": {"~": "key"}, "n": -1001234567890_i64, "f": 1.0, "last": true, "no": null, "filling": filling}),
        json!({"text": "  x".to_owned() + &filling, "list": [{"name": "äöü🦀"}], "n": {"n": 1}}),
        json!({"text": "y".repeat(60_000), "last": false}),
        json!({"filling": filling}),
        json!("whole"),
    ];
    for payload in &payloads {
        let sql = "SELECT lanekeeper.enqueue('runs', 's', 'output', $1)";
        client.execute(sql, &[payload]).await.unwrap();
    }
    let sql = "SELECT session_id, seq, day FROM lanekeeper.event ORDER BY seq";
    let rows = client.query(sql, &[]).await.unwrap();
    let session_id = rows[0].get(0);
    let events: Vec<_> = rows.iter().map(|row| (row.get(1), row.get(2))).collect();
    let pointers = [
        "/a~1b/~0",
        "/n",
        "/f",
        "/last",
        "/no",
        "/text",
        "/list/0/name",
        "/filling/deeper",
    ];
    let read = async |events: &[_], pointers: &[&str]| {
        preview::read(&client, session_id, events, pointers, 55_000)
            .await
            .unwrap()
    };
    let previews = read(&events, &pointers).await;
    let parsed = |seq: i64| serde_json::from_str::<Value>(&previews[&seq]).unwrap();
    let first = json!({"a/b": {"~": "key"}, "n": -1001234567890_i64, "f": 1.0, "last": true});
    assert_eq!(parsed(1), first);
    assert_eq!(parsed(2).pointer("/list/0/name"), Some(&json!("äöü🦀")));
    let text = parsed(2)["text"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with("  xzzz") && text.len() == 1024,
        "{}",
        text.len()
    );
    assert_eq!(parsed(2).get("n"), None, "an object is no name");
    let told: Vec<i64> = previews.keys().copied().collect();
    assert_eq!(
        told,
        [1, 2],
        "the third has a text that is too long, the others say nothing"
    );
    assert_eq!(
        read(&events[1..2], &pointers).await.len(),
        1,
        "of those that were asked for"
    );
    assert!(read(&events, &["/list/-1/name"]).await.is_empty());
    assert!(read(&[], &pointers).await.is_empty());
}
