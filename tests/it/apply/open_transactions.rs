//! I13: an apply while a producer's transaction with a new session is open: neither sees what the
//! other has not committed, and still no event waits for ever.

use super::{apply, enqueue, number};
use crate::support::TestDb;

/// Lanes with an event to deliver, no token, and nobody who holds them.
const FORGOTTEN: &str = "SELECT count(*) FROM lanekeeper.lane_status AS s
    WHERE s.head_seq IS NOT NULL AND s.state = 'ready'
      AND NOT EXISTS (SELECT FROM lanekeeper.ready AS r WHERE r.lane_id = s.lane_id)";

fn subscription(rest: &str) -> String {
    format!(
        "[subscription.audit]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"https://example.com/\"\n{rest}"
    )
}

#[tokio::test]
async fn a_wider_filter_reaches_the_events_of_a_session_that_was_not_committed_yet() {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    apply(
        &mut operator,
        &subscription("events = [\"a\"]"),
        false,
        false,
    )
    .await;
    producer.batch_execute("BEGIN").await.unwrap();
    producer
        .query("SELECT lanekeeper.enqueue('runs', 'new', 'b', '{}')", &[])
        .await
        .unwrap();
    apply(
        &mut operator,
        &subscription("events = [\"a\", \"b\"]"),
        false,
        false,
    )
    .await;
    producer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(number(&operator, FORGOTTEN).await, 0);
    // The next event finds the lane busy, with nobody there.
    producer
        .query("SELECT lanekeeper.enqueue('runs', 'new', 'b', '{}')", &[])
        .await
        .unwrap();
    assert_eq!(number(&operator, FORGOTTEN).await, 0);
}

#[tokio::test]
async fn a_subscription_from_the_earliest_event_gets_the_lane_of_a_session_that_was_not_committed_yet()
 {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    enqueue(&operator, "old", "x").await;
    producer.batch_execute("BEGIN").await.unwrap();
    producer
        .query("SELECT lanekeeper.enqueue('runs', 'new', 'b', '{}')", &[])
        .await
        .unwrap();
    let applied = apply(
        &mut operator,
        &subscription("start = \"earliest\""),
        false,
        false,
    )
    .await;
    for backfill in applied.backfills {
        let mut after = Some(0);
        while let Some(session) = after {
            after = lanekeeper::store::subscription::add_lanes(
                &operator,
                backfill.subscription_id,
                session,
                100,
            )
            .await
            .unwrap();
        }
    }
    producer.batch_execute("COMMIT").await.unwrap();
    let lanes =
        "SELECT count(*) FROM lanekeeper.lane AS l JOIN lanekeeper.session AS s USING (session_id)
                 WHERE s.name = 'new'";
    assert_eq!(number(&operator, lanes).await, 1);
}
