//! Payloads that are made to cost: nested deep, long, wide, and patterns that are made to run for long.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio_postgres::Client;

use super::{apply, events, refused, rules, violation};
use crate::support::TestDb;

/// Far less than a statement time-out, far more than a loaded machine needs.
const SOON: Duration = Duration::from_secs(30);

const FILE: &str = r##"
[stream.runs.schema]
chain = { "$defs" = { c = { type = "array", items = { "$ref" = "#/$defs/c" } } }, "$ref" = "#/$defs/c" }
tree  = { anyOf = [{ type = "integer" }, { type = "array", items = { "$ref" = "#" } }] }
list  = { items = { minimum = 0 } }
flat  = { items = { type = "number" } }
text  = { pattern = "^(a|a?)+$" }
"##;

async fn db() -> (TestDb, Client) {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    apply(&mut client, FILE).await;
    (db, client)
}

fn append(event_type: &str, payload: &str) -> String {
    format!("SELECT lanekeeper.enqueue('runs', 's', '{event_type}', {payload})")
}

#[tokio::test]
async fn a_payload_that_is_nested_deep_is_checked_or_refused_and_ends_no_stack() {
    let (_db, client) = db().await;
    let nested = |depth: usize, inner: &str| {
        format!("(repeat('[', {depth}) || '{inner}' || repeat(']', {depth}))::jsonb")
    };
    client
        .batch_execute(&append("chain", &nested(3_000, "")))
        .await
        .unwrap();
    let (code, _, detail) = refused(&client, &append("chain", &nested(3_000, "1"))).await;
    assert_eq!(
        (code.as_str(), &detail["keyword"]),
        ("LK006", &json!("type"))
    );
    let pointer = detail["pointer"].as_str().unwrap();
    assert!(
        pointer.starts_with('…') && pointer.ends_with("/0/0/0") && pointer.len() < 2_100,
        "{pointer}"
    );

    client
        .batch_execute(&append("tree", &nested(20, "1")))
        .await
        .unwrap();
    let (code, message, detail) = refused(&client, &append("tree", &nested(3_000, "1"))).await;
    assert_eq!(
        (code.as_str(), &detail["keyword"]),
        ("LK006", &json!("limit")),
        "{message}"
    );
    assert!(message.contains("nested too deep"), "{message}");
    // Deeper than Postgres reads JSON at all.
    let (code, ..) = refused(&client, &append("chain", &nested(100_000, ""))).await;
    assert_eq!(code, "54001");
    assert_eq!(events(&client).await, 2);
}

#[tokio::test]
async fn a_payload_with_more_parts_than_are_checked_is_refused_in_time() {
    let (_db, client) = db().await;
    let started = Instant::now();
    let list =
        |count: usize| format!("(SELECT jsonb_agg(n) FROM generate_series(1, {count}) AS n)");
    client
        .batch_execute(&append("list", &list(10_000)))
        .await
        .unwrap();
    // What has a type and nothing else is checked where it stands.
    client
        .batch_execute(&append("flat", &list(120_000)))
        .await
        .unwrap();
    let (code, message, detail) = refused(&client, &append("list", &list(120_000))).await;
    assert_eq!(
        (code.as_str(), &detail["keyword"]),
        ("LK006", &json!("limit")),
        "{message}"
    );
    assert!(message.contains("too many steps"), "{message}");
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    assert_eq!(events(&client).await, 2);
}

#[tokio::test]
async fn a_pattern_that_makes_others_run_for_ever_is_matched_in_the_time_of_its_text() {
    let (_db, client) = db().await;
    let started = Instant::now();
    let text = |last: &str| format!("to_jsonb(repeat('a', 100000) || '{last}')");
    client
        .batch_execute(&append("text", &text("a")))
        .await
        .unwrap();
    let (_, _, detail) = refused(&client, &append("text", &text("!"))).await;
    assert_eq!(detail["keyword"], json!("pattern"));
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[tokio::test]
async fn every_pattern_that_a_file_may_have_is_one_that_postgres_takes() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for pattern in [
        "",
        "a|",
        "(|a)",
        "()",
        "(?:)",
        "^$",
        "^a|b$",
        "[a-]",
        "[-a]",
        "[\\]^\\\\-]",
        "[^^]",
        "\\.\\*\\/\\-\\{",
        "a{0}",
        "a{255}",
        "(a?){22}",
        "((a{15}){2}){16}",
        "x{2,}y{0,3}z{4}",
        "[\\x00-\\x1f]",
        "[é-ü]",
        "\\u{1F600}",
        "[\\s\\d\\w]",
        "(?<n>a)",
        "\\n\\t\\r\\f\\v",
        ".\\s\\S\\d\\D\\w\\W",
        "\\x20",
        "#",
        "a b",
        "[#&~ ]",
    ] {
        let schema = json!({"pattern": pattern});
        let Ok(rules) = rules(&schema) else {
            panic!("{pattern} is refused: {:?}", rules(&schema));
        };
        let theirs = jsonschema::validator_for(&schema).unwrap();
        for text in [
            "", "a", "b", "-", "^", "]", "xxyzzzz", "😀", "é", " ", "\n", "\u{1}", "\u{85}",
            "\u{2028}", "0", "_",
        ] {
            let value = json!(text);
            let found = violation(&client, &rules, &value).await;
            assert_eq!(
                found.is_none(),
                theirs.is_valid(&value),
                "{pattern:?} of {text:?}"
            );
        }
    }
}
