//! A document's events are a session: they are delivered in order, and a filter chooses by their types.

use lanekeeper_postgres::document::{self, Change, Expect, Operation};
use serde_json::json;

use super::put;
use crate::engine::bed::{Bed, Sub};

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_each_document_are_delivered_in_the_order_of_its_versions() {
    let bed = Bed::bare().await;
    bed.subscribe(&Sub {
        stream: "documents",
        ..Sub::default()
    })
    .await;
    bed.subscribe(&Sub {
        name: "own",
        stream: "documents",
        events: Some(vec!["Own"]),
        ..Sub::default()
    })
    .await;
    let worker = bed.worker().await;
    for version in 1..=10 {
        for id in ["a", "b", "c"] {
            let written = put(
                &bed.client,
                id,
                &version.to_string(),
                Expect::Version(version - 1).or_absent(),
            )
            .await;
            assert_eq!(written.unwrap().version, version);
        }
    }
    // New sessions of one call get their lanes too.
    let documents =
        json!([{"kind": "k", "id": "d", "body": 1}, {"kind": "k", "id": "a", "delete": true}]);
    document::put_many(&bed.client, &documents.to_string(), None)
        .await
        .unwrap();
    let own = Change {
        event_type: Some("Own"),
        ..Change::new("k", "d", Operation::Put("2"))
    };
    document::change(&bed.client, &own).await.unwrap();
    bed.drained().await;
    worker.stop().await;
    let accepted = bed.accepted();
    assert_eq!(accepted["k/a"], (1..=11).collect::<Vec<_>>());
    assert_eq!(accepted["k/b"], (1..=10).collect::<Vec<_>>());
    // Once for each subscription that wants it.
    assert_eq!(accepted["k/d"].len(), 3, "{accepted:?}");
}

/// For loops over versions: the first one expects nothing there.
trait OrAbsent {
    fn or_absent(self) -> Self;
}

impl OrAbsent for Expect {
    fn or_absent(self) -> Self {
        match self {
            Self::Version(0) => Self::Absent,
            other => other,
        }
    }
}
