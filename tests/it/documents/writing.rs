//! A change of a document and its event are there together or not at all.

use lanekeeper_postgres::document::{self, Change, DocumentError, Expect, Operation};
use serde_json::json;

use super::{conflict, events, put, refusal};
use crate::support::TestDb;

#[tokio::test]
async fn a_document_and_its_events_tell_the_same_from_its_creation_to_its_next_one() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let created = put(&client, "c1", r#"{"a":1}"#, Expect::Absent)
        .await
        .unwrap();
    assert_eq!(
        (created.version, created.seq, created.created),
        (1, 1, true)
    );
    let updated = put(&client, "c1", r#"{"a":2}"#, Expect::Version(1))
        .await
        .unwrap();
    assert_eq!(
        (updated.version, updated.seq, updated.created),
        (2, 2, false)
    );
    let patch = json!({"b": true});
    document::patch(&client, "k", "c1", &patch, Expect::Present)
        .await
        .unwrap();
    let deleted = document::delete(&client, "k", "c1", Expect::Version(3))
        .await
        .unwrap();
    assert_eq!((deleted.version, deleted.seq), (4, 4));
    let again = put(&client, "c1", "[]", Expect::Absent).await.unwrap();
    assert_eq!((again.version, again.created), (5, true), "numbers go on");
    let told = |version: i64, body: serde_json::Value| json!({"kind": "k", "id": "c1", "version": version, "body": body});
    assert_eq!(
        events(&client, "c1").await,
        [
            (1, "DocumentCreated".to_owned(), told(1, json!({"a": 1}))),
            (2, "DocumentUpdated".to_owned(), told(2, json!({"a": 2}))),
            (
                3,
                "DocumentUpdated".to_owned(),
                told(3, json!({"a": 2, "b": true}))
            ),
            (
                4,
                "DocumentDeleted".to_owned(),
                json!({"kind": "k", "id": "c1", "version": 4})
            ),
            (5, "DocumentCreated".to_owned(), told(5, json!([]))),
        ]
    );
}

#[tokio::test]
async fn a_change_is_refused_with_the_version_that_there_is_and_leaves_nothing() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    assert_eq!(conflict(put(&client, "c1", "1", Expect::Present).await), 0);
    assert_eq!(
        conflict(put(&client, "c1", "1", Expect::Version(1)).await),
        0
    );
    assert_eq!(
        conflict(document::delete(&client, "k", "c1", Expect::Version(1)).await),
        0
    );
    for expect in [Expect::Anything, Expect::Anything] {
        put(&client, "c1", "1", expect).await.unwrap();
    }
    assert_eq!(conflict(put(&client, "c1", "2", Expect::Absent).await), 2);
    assert_eq!(
        conflict(put(&client, "c1", "2", Expect::Version(1)).await),
        2
    );
    assert_eq!(
        conflict(put(&client, "c1", "2", Expect::Version(3)).await),
        2
    );
    let patched = document::patch(&client, "k", "c1", &json!({}), Expect::Version(1)).await;
    assert_eq!(conflict(patched), 2);
    let missing = document::patch(&client, "k", "c2", &json!({}), Expect::Anything).await;
    assert!(
        matches!(missing, Err(DocumentError::NotThere(_))),
        "{missing:?}"
    );
    let missing = document::delete(&client, "k", "c2", Expect::Anything).await;
    assert!(
        matches!(missing, Err(DocumentError::NotThere(_))),
        "{missing:?}"
    );
    assert_eq!(events(&client, "c1").await.len(), 2);
    let sessions = "SELECT count(*) FROM lanekeeper.session";
    let sessions: i64 = client.query_one(sessions, &[]).await.unwrap().get(0);
    assert_eq!(
        sessions, 1,
        "a document that was not written leaves no session"
    );
}

#[tokio::test]
async fn a_rolled_back_change_leaves_neither_document_nor_event_nor_gap() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let transaction = client.transaction().await.unwrap();
    put(&transaction, "c1", "1", Expect::Absent).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(
        document::get::<i32>(&client, "k", "c1").await.unwrap(),
        None
    );
    let mut transaction = client.transaction().await.unwrap();
    put(&transaction, "c1", "1", Expect::Absent).await.unwrap();
    let savepoint = transaction.savepoint("a").await.unwrap();
    put(&savepoint, "c1", "2", Expect::Version(1))
        .await
        .unwrap();
    savepoint.rollback().await.unwrap();
    let written = put(&transaction, "c1", "3", Expect::Version(1))
        .await
        .unwrap();
    assert_eq!((written.version, written.seq), (2, 2));
    transaction.commit().await.unwrap();
    let found = document::get::<i32>(&client, "k", "c1")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((found.version, found.body), (2, 3));
}

#[tokio::test]
async fn the_callers_own_event_is_appended_as_it_is_with_the_version_in_its_headers() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let change = Change {
        event_type: Some("CommitmentAdded"),
        event: Some(r#"{"text":"tests pass"}"#),
        headers: Some(r#"{"by":"ci"}"#),
        ..Change::new("k", "c1", Operation::Put("1"))
    };
    document::change(&client, &change).await.unwrap();
    let told = (
        1,
        "CommitmentAdded".to_owned(),
        json!({"text": "tests pass"}),
    );
    assert_eq!(events(&client, "c1").await, [told]);
    let headers = "SELECT headers FROM lanekeeper.event";
    let headers: serde_json::Value = client.query_one(headers, &[]).await.unwrap().get(0);
    assert_eq!(headers, json!({"by": "ci", "document_version": 1}));
    // The usual event under another name.
    let renamed = Change {
        event_type: Some("CommitmentDropped"),
        ..Change::new("k", "c1", Operation::Delete)
    };
    document::change(&client, &renamed).await.unwrap();
    let (_, event_type, payload) = events(&client, "c1").await.pop().unwrap();
    assert_eq!(event_type, "CommitmentDropped");
    assert_eq!(payload, json!({"kind": "k", "id": "c1", "version": 2}));
    // What tells of the change itself cannot be made to lie.
    for arguments in [
        "'1', event_type => 'DocumentDeleted'",
        "'1', event_type => 'DocumentUpdated', event => '{}'",
        "'1', event => '{}'",
        "NULL",
        "'1', -2",
        "'1', event_type => ''",
        "'1', headers => '[]'",
        "'1', event_type => 'own', event => '{}', headers => '7'",
    ] {
        let statement = format!("SELECT lanekeeper.put_document('k', 'c1', {arguments})");
        assert_eq!(refusal(&client, &statement).await, "LK006", "{arguments}");
    }
}

#[tokio::test]
async fn a_body_is_bounded_by_its_stream_whatever_event_tells_of_it() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let limit = "UPDATE lanekeeper.stream SET max_payload_bytes = 2000 WHERE name = 'documents'";
    client.batch_execute(limit).await.unwrap();
    for (arguments, fits) in [
        ("to_jsonb(repeat('x', 1900))", true),
        ("to_jsonb(repeat('x', 1999))", false),
        // Small as jsonb, and large as the text that leaves Postgres.
        ("to_jsonb(1e1999)", false),
        (
            "to_jsonb(repeat('x', 1998)), event_type => 'own', event => '1'",
            true,
        ),
        (
            "to_jsonb(repeat('x', 1999)), event_type => 'own', event => '1'",
            false,
        ),
        (
            "'1', event_type => 'own', event => to_jsonb(repeat('x', 1999))",
            false,
        ),
    ] {
        let statement = format!("SELECT lanekeeper.put_document('k', 'c1', {arguments})");
        if fits {
            client.query(&statement, &[]).await.unwrap();
        } else {
            assert_eq!(refusal(&client, &statement).await, "LK005", "{arguments}");
        }
    }
    // A patch that is small makes a body that is not.
    let small =
        "SELECT lanekeeper.put_document('k', 'c2', jsonb_build_object('a', repeat('x', 1500)))";
    client.query(small, &[]).await.unwrap();
    let grow = "SELECT lanekeeper.patch_document('k', 'c2', jsonb_build_object('b', repeat('x', 900)), event_type => 'own', event => '1')";
    assert_eq!(refusal(&client, grow).await, "LK005");
}

#[tokio::test]
async fn a_closed_document_takes_no_change_until_it_is_reopened() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    put(&client, "c1", "1", Expect::Absent).await.unwrap();
    let close = "SELECT lanekeeper.close_session('documents', 'k/c1', 'archived')";
    client.query(close, &[]).await.unwrap();
    let statement = "SELECT lanekeeper.put_document('k', 'c1', '2')";
    assert_eq!(refusal(&client, statement).await, "LK002");
    let reopen = "SELECT lanekeeper.reopen_session('documents', 'k/c1')";
    client.query(reopen, &[]).await.unwrap();
    let written = put(&client, "c1", "2", Expect::Version(1)).await.unwrap();
    assert_eq!(written.version, 2);
}
