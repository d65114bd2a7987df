//! Sixteen writers of one document, at each isolation level: every conflict is reported, nothing is lost, and versions have
//! no gaps.

use std::time::Duration;

use futures_util::future::join_all;
use lanekeeper_postgres::document::{self, DocumentError, Expect};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_postgres::{Client, IsolationLevel};

use crate::support::TestDb;

const WRITERS: usize = 16;
const CHANGES: usize = 12;

#[derive(Default, Debug)]
struct Told {
    conflicts: usize,
    serialization_failures: usize,
}

/// Adds one to the document's number, as often as it is to, and repeats what was refused.
async fn count_up(mut client: Client, level: IsolationLevel, writer: usize) -> Told {
    let mut told = Told::default();
    let mut done = 0;
    while done < CHANGES {
        let transaction = client.build_transaction().isolation_level(level);
        let transaction = transaction.start().await.unwrap();
        let found = document::get::<Value>(&transaction, "k", "c1")
            .await
            .unwrap();
        let (n, expect) = match &found {
            Some(found) => (
                found.body["n"].as_i64().unwrap(),
                Expect::Version(found.version),
            ),
            None => (0, Expect::Absent),
        };
        let body = json!({"n": n + 1, "writer": writer});
        match document::put(&transaction, "k", "c1", &body, expect).await {
            Ok(_) => {
                if transaction.commit().await.is_ok() {
                    done += 1;
                } else {
                    told.serialization_failures += 1;
                }
            }
            Err(DocumentError::Conflict { version, .. }) => {
                let seen = found.map_or(0, |found| found.version);
                assert!(version > seen, "{version} is newer than {seen}");
                told.conflicts += 1;
            }
            Err(DocumentError::Append(lanekeeper_postgres::append::AppendError::Store(error))) => {
                assert_eq!(error.sqlstate(), Some("40001"), "{error:?}");
                assert!(!matches!(level, IsolationLevel::ReadCommitted));
                told.serialization_failures += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    told
}

async fn race(level: IsolationLevel) -> Told {
    let db = TestDb::new().await;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let counting = count_up(db.connect().await, level, writer);
        writers.push(tokio::spawn(counting));
    }
    let all = timeout(Duration::from_secs(120), join_all(writers)).await;
    let told = all.expect("no writer waits for ever");
    let mut sum = Told::default();
    for one in told {
        let one = one.unwrap();
        sum.conflicts += one.conflicts;
        sum.serialization_failures += one.serialization_failures;
    }
    let client = db.connect().await;
    let all = i64::try_from(WRITERS * CHANGES).unwrap();
    let rows = client
        .query(
            "SELECT v.version, v.seq, (v.body ->> 'n')::bigint, e.payload::jsonb -> 'body' = v.body, e.message_id = v.message_id,
                    v.changed_at > lag(v.changed_at) OVER (ORDER BY v.version)
             FROM lanekeeper.document_version AS v JOIN lanekeeper.event AS e USING (session_id, seq) ORDER BY v.version",
            &[],
        )
        .await
        .unwrap();
    for (row, expected) in rows.iter().zip(1..) {
        assert_eq!(row.get::<_, i64>(0), expected, "no gap");
        assert_eq!(
            row.get::<_, i64>(1),
            expected,
            "an event each, in its order"
        );
        assert_eq!(row.get::<_, i64>(2), expected, "nothing is lost");
        assert!(row.get::<_, bool>(3) && row.get::<_, bool>(4));
        assert_ne!(row.get::<_, Option<bool>>(5), Some(false), "instants grow");
    }
    assert_eq!(i64::try_from(rows.len()), Ok(all));
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_writers_of_one_document_lose_nothing_at_read_committed() {
    let told = race(IsolationLevel::ReadCommitted).await;
    assert!(
        told.conflicts > 0 && told.serialization_failures == 0,
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_writers_of_one_document_lose_nothing_at_repeatable_read() {
    let told = race(IsolationLevel::RepeatableRead).await;
    assert!(told.serialization_failures > 0, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_writers_of_one_document_lose_nothing_at_serializable() {
    let told = race(IsolationLevel::Serializable).await;
    assert!(told.serialization_failures > 0, "{told:?}");
}

/// Its snapshot is from before the version that the caller was told elsewhere: that is no conflict of the caller's.
#[tokio::test]
async fn a_snapshot_that_is_older_than_the_version_is_a_serialization_failure_and_no_conflict() {
    let db = TestDb::new().await;
    let (writer, mut stale) = (db.connect().await, db.connect().await);
    document::put(&writer, "k", "c1", &1, Expect::Absent)
        .await
        .unwrap();
    let transaction = stale
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead);
    let transaction = transaction.start().await.unwrap();
    let found = document::get::<i32>(&transaction, "k", "c1").await.unwrap();
    assert_eq!(found.unwrap().version, 1);
    document::put(&writer, "k", "c1", &2, Expect::Version(1))
        .await
        .unwrap();
    let late = document::put(&transaction, "k", "c1", &3, Expect::Version(2)).await;
    let Err(DocumentError::Append(lanekeeper_postgres::append::AppendError::Store(error))) = late
    else {
        panic!("{late:?}");
    };
    assert_eq!(error.sqlstate(), Some("40001"));
}
