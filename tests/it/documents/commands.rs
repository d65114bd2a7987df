//! `lanekeeper document`.

use serde_json::{Value, json};

use crate::command::{Ran, run};
use crate::support::TestDb;

async fn document(db: &TestDb, arguments: &[&str], input: &str) -> Ran {
    let arguments = [&["document"], arguments].concat();
    run(&arguments, &[("DATABASE_URL", db.url())], input).await
}

fn lines(ran: &Ran) -> Vec<Value> {
    ran.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn a_document_is_put_patched_read_and_deleted_by_command() {
    let db = TestDb::new().await;
    let put = document(
        &db,
        &["put", "commitment", "c1", "--expect", "absent"],
        r#"{"a":1}"#,
    )
    .await;
    assert_eq!(
        put.stdout, "commitment/c1: created at version 1, event 1\n",
        "{}",
        put.stderr
    );
    let patch = [
        "patch",
        "commitment",
        "c1",
        "--patch",
        r#"{"a":null,"b":2}"#,
        "--expect",
        "1",
    ];
    let patched = document(&db, &[&patch[..], &["--output", "json"]].concat(), "").await;
    assert_eq!(lines(&patched)[0]["version"], 2, "{}", patched.stderr);
    let refused = document(&db, &patch, "").await;
    assert_eq!(refused.code, Some(1));
    for told in ["version 2", "version 1 was expected", "nothing was changed"] {
        assert!(refused.stderr.contains(told), "{}", refused.stderr);
    }
    let get = ["get", "commitment", "c1"];
    assert_eq!(document(&db, &get, "").await.stdout, "{\"b\": 2}\n");
    let first = document(
        &db,
        &[&get[..], &["--version", "1", "--output", "json"]].concat(),
        "",
    )
    .await;
    assert_eq!(
        lines(&first)[0]["body"],
        json!({"a": 1}),
        "{}",
        first.stderr
    );
    let own = [
        "put",
        "commitment",
        "c2",
        "--body",
        "1",
        "--event-type",
        "Added",
        "--event",
        "{}",
    ];
    assert_eq!(document(&db, &own, "").await.code, Some(0));
    let listed = document(&db, &["list", "commitment", "--output", "json"], "").await;
    let ids: Vec<_> = lines(&listed).iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, ["c1", "c2"]);
    let page = document(&db, &["list", "commitment", "--limit", "1"], "").await;
    assert!(page.stderr.contains("--after c1"), "{}", page.stderr);
    let deleted = document(&db, &["delete", "commitment", "c1", "--expect", "2"], "").await;
    assert_eq!(
        deleted.stdout,
        "commitment/c1: deleted at version 3, event 3\n"
    );
    let gone = document(&db, &get, "").await;
    assert!(
        gone.code == Some(1) && gone.stderr.contains("deleted, as version 3"),
        "{}",
        gone.stderr
    );
    let history = document(&db, &["history", "commitment", "c1"], "").await;
    assert!(history.stdout.contains("DocumentDeleted") && history.stdout.lines().count() == 4);
}

#[tokio::test]
async fn a_document_command_that_cannot_be_carried_out_says_why() {
    let db = TestDb::new().await;
    for (arguments, code, told) in [
        (&["put", "k", "c1", "--body", "{"][..], 1, "not JSON"),
        (&["put", "k", "c1"], 2, "the body is missing"),
        (
            &["put", "k", "c1", "--body", "1", "--expect", "0"],
            2,
            "a version from 1",
        ),
        (
            &["put", "k", "c1", "--body", "1", "--event", "{}"],
            2,
            "--event-type",
        ),
        (&["put", "a/b", "c1", "--body", "1"], 1, "no slash"),
        (
            &["patch", "k", "c1", "--patch", "{}"],
            1,
            "there is no document",
        ),
        (&["delete", "k", "c1"], 1, "there is no document"),
        (&["get", "k", "c1"], 1, "there is no document"),
        (
            &[
                "get",
                "k",
                "c1",
                "--version",
                "1",
                "--at",
                "2026-01-01T00:00:00Z",
            ],
            2,
            "--at",
        ),
        (&["history", "k", "c1"], 1, "there is no document"),
    ] {
        let ran = document(&db, arguments, "").await;
        assert_eq!(ran.code, Some(code), "{arguments:?} {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{arguments:?} {}", ran.stderr);
    }
}
