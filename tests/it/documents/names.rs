//! Whatever a document is called, the call has one answer, and no two names are one document.

use lanekeeper_postgres::document::{self, Change, Expect, Operation};

use super::{put, refusal};
use crate::support::TestDb;

#[tokio::test]
async fn odd_names_are_kept_as_they_are_or_refused_with_a_reason() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let long = "ü".repeat(200);
    let ids = [
        "a",
        "/",
        "a/b/../c",
        "%2F",
        "Zoë 🦀",
        "a\n\t\u{1b}[2J",
        "'; --",
        &long,
    ];
    for (at, id) in ids.into_iter().enumerate() {
        let written = put(&client, id, &at.to_string(), Expect::Absent).await;
        assert_eq!(written.unwrap().version, 1, "{id:?}");
    }
    for (at, id) in ids.into_iter().enumerate() {
        let found = document::get::<usize>(&client, "k", id).await.unwrap();
        assert_eq!(found.unwrap().body, at, "{id:?}");
    }
    let mut sorted = ids.to_vec();
    sorted.sort_by_key(|id| id.as_bytes());
    let listed = document::list(&client, "k", None, 100).await.unwrap();
    let listed: Vec<&str> = listed.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(listed, sorted, "by bytes");
    for kind in ["K", " ", "Zoë 🦀", "a.b-c"] {
        let change = Change::new(kind, "a", Operation::Put("1"));
        document::change(&client, &change).await.unwrap();
    }
    for arguments in [
        "'', 'a'",
        "'a/b', 'c'",
        "repeat('k', 101), 'a'",
        "'k', ''",
        "'k', repeat('x', 401)",
        "'k', repeat('x', 1024)",
        "NULL, 'a'",
        "'k', NULL",
    ] {
        for change in [
            "put_document({}, '1')",
            "patch_document({}, '1')",
            "delete_document({})",
        ] {
            let call = change.replace("{}", arguments);
            let statement = format!("SELECT lanekeeper.{call}");
            assert_eq!(refusal(&client, &statement).await, "LK006", "{call}");
        }
    }
    // "a" and "b/c" are one name, of the kind without the slash.
    put(&client, "b/c", "1", Expect::Absent).await.unwrap();
    let other = document::get::<i32>(&client, "k/b", "c").await.unwrap();
    assert_eq!(other, None);
    assert_eq!(
        document::history(&client, "k/b", "c", None, 10)
            .await
            .unwrap(),
        []
    );
}
