//! JSON Merge Patch as RFC 7396 has it.

use serde_json::Value;

use super::{put, refusal};
use crate::support::TestDb;
use lanekeeper_postgres::document::{self, Expect};

/// Appendix A of the RFC: original, patch, result.
const RFC: [[&str; 3]; 15] = [
    [r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#],
    [r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#],
    [r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#],
    [r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#],
    [r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#],
    [r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#],
    [
        r#"{"a":{"b":"c"}}"#,
        r#"{"a":{"b":"d","c":null}}"#,
        r#"{"a":{"b":"d"}}"#,
    ],
    [r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#],
    [r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#],
    [r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#],
    [r#"{"a":"foo"}"#, r#"null"#, r#"null"#],
    [r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#],
    [r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#],
    [r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#],
    [
        r#"{}"#,
        r#"{"a":{"bb":{"ccc":null}}}"#,
        r#"{"a":{"bb":{}}}"#,
    ],
];

#[tokio::test]
async fn every_test_case_of_the_rfc_has_its_result() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for (case, [original, patch, result]) in RFC.into_iter().enumerate() {
        let id = case.to_string();
        put(&client, &id, original, Expect::Absent).await.unwrap();
        let patch: Value = serde_json::from_str(patch).unwrap();
        document::patch(&client, "k", &id, &patch, Expect::Version(1))
            .await
            .unwrap();
        let found = document::get::<Value>(&client, "k", &id).await.unwrap();
        let expected: Value = serde_json::from_str(result).unwrap();
        assert_eq!(found.unwrap().body, expected, "{original} {patch}");
    }
}

#[tokio::test]
async fn a_patch_that_is_too_deep_or_too_large_is_refused_and_changes_nothing() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    put(&client, "c1", "{}", Expect::Absent).await.unwrap();
    let nested = |depth: &str| {
        format!(
            "SELECT lanekeeper.patch_document('k', 'c1', (repeat('{{\"a\":', {depth}) || '1' || repeat('}}', {depth}))::jsonb)"
        )
    };
    client.query(&nested("100"), &[]).await.unwrap();
    assert_eq!(refusal(&client, &nested("5000")).await, "54001");
    let large = "SELECT lanekeeper.patch_document('k', 'c1', jsonb_build_object('a', repeat('x', 1048577)))";
    assert_eq!(refusal(&client, large).await, "LK005");
    let found = document::get::<Value>(&client, "k", "c1").await.unwrap();
    assert_eq!(found.unwrap().version, 2);
}
