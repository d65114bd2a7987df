//! What `apply` does with schemas: versions, differences, what it says, and appends that are under way meanwhile.

use std::time::Duration;

use lanekeeper_core::subscription::ChangeKind;
use serde_json::{Value, json};
use tokio_postgres::IsolationLevel;

use super::{ORDERS, apply, events, refused};
use crate::command::run;
use crate::support::{TestDb, wait_until};

const RIGHT: &str = r#"SELECT lanekeeper.enqueue('runs', 's', 'order', '{"number": 1}')"#;
const WRONG: &str = r#"SELECT lanekeeper.enqueue('runs', 's', 'order', '{"number": 0}')"#;

#[tokio::test]
async fn schemas_come_change_and_go_by_versions_and_what_is_in_the_log_stays() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    client.batch_execute(WRONG).await.unwrap();
    let applied = apply(&mut client, ORDERS).await;
    assert_eq!(applied.changes[0].fields[0].field, "schema.order");
    assert_eq!(
        apply(&mut client, ORDERS).await.changes[0].change,
        ChangeKind::Unchanged
    );
    assert_eq!(refused(&client, WRONG).await.0, "LK006");
    client.batch_execute(RIGHT).await.unwrap();
    // A file that says nothing of them leaves them.
    apply(&mut client, "[stream.runs]\nmax_payload_bytes = 2048").await;
    assert_eq!(refused(&client, WRONG).await.0, "LK006");

    let lower = ORDERS.replace("minimum = 1", "minimum = 0");
    apply(&mut client, &lower).await;
    client.batch_execute(WRONG).await.unwrap();
    let other = ORDERS.replace("schema.order", "schema.invoice");
    let applied = apply(&mut client, &other).await;
    let fields: Vec<&str> = applied.changes[0]
        .fields
        .iter()
        .map(|it| it.field.as_str())
        .collect();
    assert_eq!(fields, ["schema.invoice", "schema.order"]);
    client
        .batch_execute("SELECT lanekeeper.enqueue('runs', 's', 'order', '7')")
        .await
        .unwrap();
    apply(&mut client, "[stream.runs]\nschema = false").await;
    client
        .batch_execute("SELECT lanekeeper.enqueue('runs', 's', 'invoice', '7')")
        .await
        .unwrap();
    assert_eq!(events(&client).await, 5);

    let versions = "SELECT jsonb_agg(jsonb_build_array(event_type, version, schema IS NOT NULL) ORDER BY event_type, version)
                    FROM lanekeeper.event_schema";
    let versions: Value = client.query_one(versions, &[]).await.unwrap().get(0);
    assert_eq!(
        versions,
        json!([
            ["invoice", 1, true],
            ["invoice", 2, false],
            ["order", 1, true],
            ["order", 2, true],
            ["order", 3, false]
        ])
    );
    let plain = "SELECT count(*) FROM lanekeeper.stream WHERE name = 'runs' AND NOT bounded AND judged IS NULL";
    assert_eq!(
        client.query_one(plain, &[]).await.unwrap().get::<_, i64>(0),
        1
    );
}

#[tokio::test]
async fn numbers_of_a_schema_come_back_as_they_went() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let file = "[stream.runs.schema]\nt = '''{\"enum\": [1.0, 1e300, -0.0000001, 18446744073709551615, 0.1, 1e2]}'''";
    apply(&mut client, file).await;
    assert_eq!(
        apply(&mut client, file).await.changes[0].change,
        ChangeKind::Unchanged
    );
}

#[tokio::test]
async fn the_command_says_whose_payloads_are_checked_from_now_on() {
    let db = TestDb::new().await;
    let url = [("DATABASE_URL", db.url())];
    let dry = run(&["apply", "-f", "-", "--dry-run"], &url, ORDERS).await;
    assert!(
        dry.stdout
            .starts_with("~ stream runs schema.order (none) → {"),
        "{}",
        dry.stdout
    );
    assert!(
        dry.stderr
            .contains("would be checked against the schemas of order"),
        "{}",
        dry.stderr
    );
    let ran = run(&["apply", "-f", "-"], &url, ORDERS).await;
    assert!(
        ran.stderr.contains(
            "from now on are checked against the schemas of order; what is in the log stays"
        ),
        "{}",
        ran.stderr
    );
    let again = run(&["apply", "-f", "-"], &url, ORDERS).await;
    assert!(!again.stderr.contains("checked"), "{}", again.stderr);
    let wrong = ORDERS.replace("minimum = 1", "minimun = 1");
    let ran = run(&["apply", "-f", "-"], &url, &wrong).await;
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr
            .contains("at /properties/number/minimun: unknown keyword; did you mean minimum?"),
        "{}",
        ran.stderr
    );
}

/// The schema is read behind the append lock, whatever the append waited for.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_waits_for_its_session_is_judged_by_what_is_in_force_when_it_goes_on() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let lower = ORDERS.replace("minimum = 1", "minimum = 0");
    apply(&mut client, &lower).await;
    client.batch_execute(RIGHT).await.unwrap();
    let mut first = db.connect().await;
    let open = first.transaction().await.unwrap();
    open.batch_execute(RIGHT).await.unwrap();
    let second = db.connect().await;
    let waiting = tokio::spawn(async move { refused(&second, WRONG).await });
    wait_until(Duration::from_secs(30), "the second waits", async || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";
        client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    // It waits for no producer's transaction.
    let mut operator = db.connect().await;
    apply(&mut operator, ORDERS).await;
    open.commit().await.unwrap();
    let (code, _, detail) = waiting.await.unwrap();
    assert_eq!(
        (code.as_str(), &detail["pointer"]),
        ("LK006", &json!("/number"))
    );
    assert_eq!(events(&client).await, 2);
}

/// A stream without schemas has nothing to read them by: the append that began before counts as one before the change.
#[tokio::test]
async fn an_append_that_began_before_the_first_schema_is_not_judged_and_the_next_is() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let mut producer = db.connect().await;
    let open = producer
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    open.batch_execute("SELECT count(*) FROM lanekeeper.stream")
        .await
        .unwrap();
    apply(&mut client, ORDERS).await;
    open.batch_execute(WRONG).await.unwrap();
    open.commit().await.unwrap();
    assert_eq!(refused(&producer, WRONG).await.0, "LK006");
    // A change that is rolled back was never there.
    let mut operator = db.connect().await;
    let change = operator.transaction().await.unwrap();
    change
        .batch_execute(
            "UPDATE lanekeeper.stream SET judged = NULL, bounded = false WHERE name = 'runs'",
        )
        .await
        .unwrap();
    change.rollback().await.unwrap();
    assert_eq!(refused(&producer, WRONG).await.0, "LK006");
    assert_eq!(events(&client).await, 1);
}

#[tokio::test]
async fn a_producer_neither_reads_nor_writes_schemas_nor_calls_what_checks_them() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    apply(&mut client, ORDERS).await;
    let role = format!("producer_{}", uuid::Uuid::now_v7().simple());
    client
        .batch_execute(&format!(
            "CREATE ROLE {role}; GRANT USAGE ON SCHEMA lanekeeper TO {role};
             GRANT EXECUTE ON FUNCTION lanekeeper.enqueue, lanekeeper.enqueue_many TO {role}; SET ROLE {role}"
        ))
        .await
        .unwrap();
    for denied in [
        "SELECT FROM lanekeeper.event_schema",
        "UPDATE lanekeeper.event_schema SET schema = '{}'",
        "DELETE FROM lanekeeper.event_schema",
        "SELECT lanekeeper.check_schema('runs', 1, 'order', '1')",
        "SELECT lanekeeper.schema_violation('{}', '{}', '1', 1, 1)",
    ] {
        assert_eq!(refused(&client, denied).await.0, "42501", "{denied}");
    }
    // The pass of an interrupt cannot be made up.
    client
        .batch_execute("SET lanekeeper.appending_again = 'x'")
        .await
        .unwrap();
    assert_eq!(refused(&client, WRONG).await.0, "LK006");
    client.batch_execute(RIGHT).await.unwrap();
    client
        .batch_execute(&format!(
            "RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}"
        ))
        .await
        .unwrap();
}
