//! Retention: days leave the log, and the events of streams with `keep_events` stay, so every state can still be folded.

use std::time::Duration;

use lanekeeper::aggregate::{self, AggregateError, Loaded};
use tokio_postgres::Client;

use super::{Basket, Order, STREAM, append, bed, count};
use crate::support::wait_until;

const LIMIT: Duration = Duration::from_secs(30);

/// Makes what is in the log so many days old.
async fn age(client: &Client, days: i32) {
    let moved = format!(
        "SELECT lanekeeper.create_event_partition(current_date - {days});
         UPDATE lanekeeper.event SET day = current_date - {days} WHERE day = current_date;
         UPDATE lanekeeper.aggregate_snapshot SET day = current_date - {days} WHERE day = current_date;
         UPDATE lanekeeper.session AS s SET newest_day = (
             SELECT max(e.day) FROM lanekeeper.event AS e WHERE e.session_id = s.session_id)"
    );
    client.batch_execute(&moved).await.unwrap();
}

async fn dropped(client: &Client, days: i64) {
    let mut gone = 0;
    wait_until(LIMIT, "the days are dropped", async || {
        gone += count(
            client,
            "SELECT partitions_dropped FROM lanekeeper.maintain_log(7, 30)",
        )
        .await;
        gone == days
    })
    .await;
}

/// The state behind each event.
async fn states(client: &Client, events: i64) -> Vec<Loaded<Basket>> {
    let mut states = Vec::new();
    for seq in 0..=events {
        states.push(aggregate::load_at(client, STREAM, "b", seq).await.unwrap());
    }
    states
}

#[tokio::test]
async fn after_days_of_the_log_were_dropped_the_state_at_every_seq_is_what_it_was() {
    let (_db, mut client) = bed().await;
    aggregate::run::<Basket>(&mut client, STREAM, "b", &Order::AddEach(15), 1)
        .await
        .unwrap();
    append(&client, "small", 2).await;
    age(&client, 9).await;
    append(&client, "b", 6).await;
    age(&client, 8).await;
    append(&client, "b", 3).await;
    let before = states(&client, 24).await;
    dropped(&client, 2).await;
    let left = "SELECT count(*) FROM lanekeeper.event";
    assert_eq!(count(&client, left).await, 3, "the log did go");
    assert_eq!(states(&client, 24).await, before);
    client
        .execute("DELETE FROM lanekeeper.aggregate_snapshot", &[])
        .await
        .unwrap();
    assert_eq!(
        states(&client, 24).await,
        before,
        "snapshots are not what it rests on"
    );
    let small = aggregate::load::<Basket>(&client, STREAM, "small")
        .await
        .unwrap();
    assert_eq!(
        (small.version, small.state.items),
        (2, 2),
        "one without a snapshot, of a day that is gone"
    );
    let next = aggregate::run::<Basket>(&mut client, STREAM, "b", &Order::Pay, 1)
        .await
        .unwrap();
    assert_eq!((next.version, next.state.items), (25, 24));
    assert_eq!(
        aggregate::take_snapshots::<Basket>(&client, STREAM, "b")
            .await
            .unwrap(),
        2
    );
}

#[tokio::test]
async fn the_events_of_other_streams_go_and_a_fold_that_needs_them_says_so() {
    let (_db, client) = bed().await;
    append(&client, "b", 4).await;
    client
        .batch_execute("UPDATE lanekeeper.stream SET keep_events = false WHERE name = 'baskets'")
        .await
        .unwrap();
    age(&client, 9).await;
    append(&client, "b", 1).await;
    dropped(&client, 1).await;
    assert_eq!(
        count(&client, "SELECT count(*) FROM lanekeeper.kept_event").await,
        0
    );
    for at in [None, Some(5), Some(2)] {
        let key = (STREAM, "b");
        let folded = match at {
            None => aggregate::load::<Basket>(&client, key.0, key.1).await,
            Some(seq) => aggregate::load_at::<Basket>(&client, key.0, key.1, seq).await,
        };
        let refused = folded.unwrap_err();
        assert!(
            matches!(refused, AggregateError::Incomplete { needed: 1, .. }),
            "{at:?}: {refused}"
        );
    }
    // Where nothing at all is left, it is no new session either.
    age(&client, 9).await;
    dropped(&client, 1).await;
    let refused = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap_err();
    assert!(
        matches!(refused, AggregateError::Incomplete { needed: 1, .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn a_day_stays_until_every_snapshot_of_a_transaction_sees_the_copies() {
    let (db, client) = bed().await;
    append(&client, "b", 4).await;
    age(&client, 9).await;
    let keeps = |keeps: bool| {
        format!("UPDATE lanekeeper.stream SET keep_events = {keeps} WHERE name = 'baskets'")
    };
    let gone = "SELECT partitions_dropped FROM lanekeeper.maintain_log(7, 30)";
    // The tails of its sessions are there before, and seen by everybody.
    client.batch_execute(&keeps(false)).await.unwrap();
    assert_eq!(count(&client, gone).await, 0);
    client.batch_execute(&keeps(true)).await.unwrap();
    let reader = db.connect().await;
    let seen = "SELECT lanekeeper.seen_by_every_snapshot(d.xact)::int::bigint FROM lanekeeper.expiring_day AS d";
    wait_until(LIMIT, "a snapshot sees the tails, from before the copies", async || {
        let anew = "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lanekeeper.stream";
        reader.batch_execute(anew).await.unwrap();
        count(&client, seen).await == 1
    })
    .await;
    for _ in 0..3 {
        assert_eq!(count(&client, gone).await, 0);
    }
    assert_eq!(
        count(&client, "SELECT count(*) FROM lanekeeper.kept_event").await,
        4
    );
    // In both places: each is folded once.
    let now = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!((now.version, now.state.items), (4, 4));
    let then = aggregate::load::<Basket>(&reader, STREAM, "b")
        .await
        .unwrap();
    assert_eq!(then, now);
    reader.batch_execute("COMMIT").await.unwrap();
    dropped(&client, 1).await;
    let now = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!(now.version, 4);
}
