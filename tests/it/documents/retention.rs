//! What goes with the log and what does not: a document stays as it is for ever, its superseded versions go with their age,
//! and its numbers go on.

use lanekeeper_postgres::document::{self, At, Expect};
use lanekeeper_postgres::maintenance::forget_document_versions;
use tokio_postgres::Client;

use super::put;
use crate::engine::bed::{Bed, LIMIT};
use crate::support::{TestDb, wait_until};

/// Makes the versions so many days older, as they would be by then; the round sees them anew.
async fn age(client: &Client, id: &str, days: i32) {
    client
        .execute(
            "UPDATE lanekeeper.document_version AS v SET changed_at = v.changed_at - $2::int * interval '1 day'
             FROM lanekeeper.session AS s WHERE s.session_id = v.session_id AND s.name = 'k/' || $1",
            &[&id, &days],
        )
        .await
        .unwrap();
}

async fn versions(client: &Client, id: &str) -> Vec<i64> {
    let history = document::history(client, "k", id, None, 100).await.unwrap();
    history.iter().map(|past| past.version).collect()
}

#[tokio::test]
async fn a_document_outlives_the_days_of_its_events_and_its_versions_and_seqs_go_on() {
    let bed = Bed::bare().await;
    let client = &bed.client;
    for body in ["1", "2"] {
        put(client, "c1", body, Expect::Anything).await.unwrap();
    }
    client
        .batch_execute(
            "SELECT lanekeeper.create_event_partition(current_date - 9);
             UPDATE lanekeeper.event SET day = current_date - 9",
        )
        .await
        .unwrap();
    bed.days_moved().await;
    wait_until(LIMIT, "the day is dropped", async || {
        bed.count("SELECT partitions_dropped FROM lanekeeper.maintain_log(7, 30)")
            .await
            == 1
    })
    .await;
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.event").await, 0);
    let found = document::get::<i32>(client, "k", "c1")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((found.version, found.body, found.seq), (2, 2, 2));
    let first = document::get_at(client, "k", "c1", At::Version(1))
        .await
        .unwrap();
    assert_eq!(
        first.unwrap().body.as_deref(),
        Some("1"),
        "its own retention counts"
    );
    let next = put(client, "c1", "3", Expect::Version(2)).await.unwrap();
    assert_eq!((next.version, next.seq), (3, 3));
}

#[tokio::test]
async fn a_version_goes_when_it_was_superseded_long_ago_and_the_newest_never() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for body in ["1", "2", "3"] {
        put(&client, "old", body, Expect::Anything).await.unwrap();
    }
    put(&client, "still", "1", Expect::Absent).await.unwrap();
    put(&client, "deleted", "1", Expect::Absent).await.unwrap();
    document::delete(&client, "k", "deleted", Expect::Anything)
        .await
        .unwrap();
    for id in ["old", "still", "deleted"] {
        age(&client, id, 40).await;
    }
    // Old itself, and superseded only now.
    put(&client, "old", "4", Expect::Version(3)).await.unwrap();
    let forty_days_ago = document::history(&client, "k", "old", None, 10)
        .await
        .unwrap()[1]
        .changed_at;
    assert_eq!(forget_document_versions(&client, 30, 4).await.unwrap(), 4);
    assert_eq!(forget_document_versions(&client, 30, 4).await.unwrap(), 2);
    assert_eq!(
        forget_document_versions(&client, 30, 4).await.unwrap(),
        0,
        "each is looked at once"
    );
    assert_eq!(versions(&client, "old").await, [4, 3]);
    assert_eq!(versions(&client, "still").await, [1]);
    assert_eq!(versions(&client, "deleted").await, [2]);
    // What was valid within the retention is still known for each instant of it.
    let then = document::get_at(&client, "k", "old", At::Instant(forty_days_ago))
        .await
        .unwrap();
    assert_eq!(then.unwrap().body.as_deref(), Some("3"));
    assert_eq!(
        document::get_at(&client, "k", "old", At::Version(2))
            .await
            .unwrap(),
        None
    );
    // Later, it goes too, without another change of the others.
    age(&client, "old", 40).await;
    client
        .batch_execute(
            "UPDATE lanekeeper.document_round SET changed_at = now() - interval '41 days'",
        )
        .await
        .unwrap();
    forget_document_versions(&client, 30, 100).await.unwrap();
    assert_eq!(versions(&client, "old").await, [4]);
    let again = put(&client, "deleted", "1", Expect::Absent).await.unwrap();
    assert_eq!(
        again.version, 3,
        "numbers go on behind a deletion, however old"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_forgets_superseded_versions_by_itself() {
    let bed = Bed::bare().await;
    let client = &bed.client;
    for body in ["1", "2", "3"] {
        put(client, "c1", body, Expect::Anything).await.unwrap();
    }
    age(client, "c1", 31).await;
    let worker = bed.worker().await;
    wait_until(LIMIT, "only the newest is left", async || {
        versions(client, "c1").await == [3]
    })
    .await;
    worker.stop().await;
}
