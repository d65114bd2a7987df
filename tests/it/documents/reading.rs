//! A document's body at every version and instant, its history, and lists by the page.

use jiff::{SignedDuration, Timestamp};
use lanekeeper_postgres::document::{self, At, Expect};
use serde_json::value::RawValue;

use super::{put, refusal};
use crate::support::TestDb;

#[tokio::test]
async fn a_body_is_found_at_each_of_its_versions_and_instants() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for body in ["1", "2"] {
        put(&client, "c1", body, Expect::Anything).await.unwrap();
    }
    document::delete(&client, "k", "c1", Expect::Anything)
        .await
        .unwrap();
    put(&client, "c1", "null", Expect::Absent).await.unwrap();
    let history = document::history(&client, "k", "c1", None, 100)
        .await
        .unwrap();
    let told: Vec<_> = history
        .iter()
        .map(|past| {
            (
                past.version,
                past.deleted,
                past.seq,
                past.event_type.as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (4, false, 4, "DocumentCreated"),
            (3, true, 3, "DocumentDeleted"),
            (2, false, 2, "DocumentUpdated"),
            (1, false, 1, "DocumentCreated"),
        ]
    );
    let bodies = [Some("1"), Some("2"), None, Some("null")];
    for (past, body) in history.iter().rev().zip(bodies) {
        for at in [At::Version(past.version), At::Instant(past.changed_at)] {
            let found = document::get_at(&client, "k", "c1", at)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(
                (found.version, found.body.as_deref()),
                (past.version, body),
                "{at:?}"
            );
            assert_eq!(found.message_id, past.message_id);
        }
    }
    // Between two versions the earlier one counts.
    for (past, next) in history.iter().rev().zip(history.iter().rev().skip(1)) {
        let before_next = next.changed_at - SignedDuration::from_micros(1);
        let found = document::get_at(&client, "k", "c1", At::Instant(before_next))
            .await
            .unwrap();
        assert_eq!(found.unwrap().version, past.version);
    }
    let none = [
        At::Version(5),
        At::Version(0),
        At::Version(-1),
        At::Instant(Timestamp::UNIX_EPOCH),
    ];
    for at in none {
        assert_eq!(
            document::get_at(&client, "k", "c1", at).await.unwrap(),
            None,
            "{at:?}"
        );
    }
    let now = document::get::<Box<RawValue>>(&client, "k", "c1")
        .await
        .unwrap();
    assert_eq!(now.unwrap().body.get(), "null");
    let both = "SELECT lanekeeper.get_document('k', 'c1', 1, now())";
    assert_eq!(refusal(&client, both).await, "LK006");
}

#[tokio::test]
async fn a_deleted_document_is_not_there_and_its_history_is() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    put(&client, "c1", "1", Expect::Absent).await.unwrap();
    document::delete(&client, "k", "c1", Expect::Anything)
        .await
        .unwrap();
    assert_eq!(
        document::get::<i32>(&client, "k", "c1").await.unwrap(),
        None
    );
    assert_eq!(document::list(&client, "k", None, 10).await.unwrap(), []);
    let before = document::get_at(&client, "k", "c1", At::Version(1))
        .await
        .unwrap();
    assert_eq!(before.unwrap().body.as_deref(), Some("1"));
    let views: i64 = client
        .query_one("SELECT count(*) FROM lanekeeper.current_document", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(views, 0);
}

#[tokio::test]
async fn pages_meet_everything_once_while_documents_come_and_go() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for n in 0..25 {
        put(&client, &format!("d{n:02}"), "{}", Expect::Absent)
            .await
            .unwrap();
    }
    let mut seen = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = document::list(&client, "k", after.as_deref(), 10)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        seen.extend(page.into_iter().map(|one| one.id));
        // Behind the page, and before it.
        document::delete(&client, "k", after.as_deref().unwrap(), Expect::Anything)
            .await
            .unwrap();
        put(&client, &format!("a{}", seen.len()), "{}", Expect::Absent)
            .await
            .unwrap();
    }
    let expected: Vec<String> = (0..25).map(|n| format!("d{n:02}")).collect();
    assert_eq!(seen, expected);
    for n in 0..12 {
        put(&client, "h", &n.to_string(), Expect::Anything)
            .await
            .unwrap();
    }
    let page = |before| document::history(&client, "k", "h", before, 5);
    let mut versions = Vec::new();
    let mut before = None;
    while let Some(last) = page(before).await.unwrap().last().map(|last| last.version) {
        versions.extend(page(before).await.unwrap().iter().map(|past| past.version));
        before = Some(last);
    }
    assert_eq!(versions, (1..=12).rev().collect::<Vec<_>>());
    for rows in ["0", "-1", "1001"] {
        for call in [
            "list_documents('k', NULL",
            "document_history('k', 'h', NULL",
        ] {
            let statement = format!("SELECT lanekeeper.{call}, {rows})");
            assert_eq!(refusal(&client, &statement).await, "LK006", "{statement}");
        }
    }
}
