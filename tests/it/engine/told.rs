//! C10: what becomes of messages is told to the lifecycle feed for subscriptions that ask, and counted for `status`.

use std::iter;

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::inspect;
use lanekeeper_postgres::message_count::MessageCount;
use lanekeeper_postgres::sent;
use serde_json::{Value, json};
use uuid::Uuid;

use super::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

/// A subscription of the feed, so that there is one to tell. It is paused: the tests read the log.
async fn listen(bed: &Bed) {
    bed.subscribe(&Sub {
        name: "feed",
        stream: "lifecycle",
        ..Sub::default()
    })
    .await;
    set(bed, "paused_at = now(), pause_reason = 'test'", "feed").await;
}

async fn set(bed: &Bed, columns: &str, subscription: &str) {
    let update =
        format!("UPDATE lanekeeper.subscription SET {columns} WHERE name = '{subscription}'");
    bed.client.batch_execute(&update).await.unwrap();
}

const ALL: &str = "lifecycle = '{sent,acked,retried,failed,expired,dropped}'";

/// The feed's events of the session, in order: type and payload.
async fn told(bed: &Bed) -> Vec<(String, Value)> {
    let events = "SELECT e.event_type, e.payload::jsonb FROM lanekeeper.event AS e
                  JOIN lanekeeper.session AS s USING (session_id) JOIN lanekeeper.stream AS t USING (stream_id)
                  WHERE t.name = 'lifecycle' AND s.name = 'session runs/s1' ORDER BY e.seq";
    let rows = bed.client.query(events, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// What was told, each as `TYPE SEQ`.
async fn words(bed: &Bed) -> Vec<String> {
    let told = told(bed).await;
    let word = |(kind, payload): &(String, Value)| {
        format!("{} {}", kind.trim_start_matches("message_"), payload["seq"])
    };
    told.iter().map(word).collect()
}

async fn counts(bed: &Bed) -> MessageCount {
    let all = inspect::status(&bed.client, 10, 100, iter::empty())
        .await
        .unwrap();
    let out = all.into_iter().find(|one| one.subscription == "out");
    out.unwrap().messages
}

#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_messages_is_told_in_their_order_and_counted() {
    let bed = Bed::with(&Sub {
        max_attempts: 2,
        ..Sub::default()
    })
    .await;
    listen(&bed).await;
    set(&bed, &format!("{ALL}, max_age_ms = 1800000"), "out").await;
    let failed = |error: &str| Verdict::retry(error);
    bed.fake.script("s1", 2, [failed("a")]);
    bed.fake.script("s1", 3, [failed("b"), failed("c")]);
    bed.enqueue_bulk(1, 5).await;
    bed.client
        .batch_execute("UPDATE lanekeeper.event SET created_at = created_at - interval '1 h' WHERE seq IN (4, 5)")
        .await
        .unwrap();
    let worker = bed.worker().await;
    // What is left is told, and counted, when the worker stops.
    let out =
        "SELECT count(*) FROM lanekeeper.lane_status WHERE subscription = 'out' AND state = 'idle'";
    wait_until(LIMIT, "all is settled", async || bed.count(out).await == 1).await;
    worker.stop().await;
    let expected = [
        "sent 1",
        "retried 2",
        "sent 2",
        "retried 3",
        "failed 3",
        "expired 4",
    ];
    assert_eq!(words(&bed).await, expected);
    let told = told(&bed).await;
    let (_, retried) = &told[1];
    assert_eq!(retried["error"], json!("a"));
    assert_eq!(
        (&retried["attempt"], &retried["subscription"]),
        (&json!(1), &json!("out"))
    );
    assert!(
        retried["message_id"].is_string() && retried["worker_id"].is_i64(),
        "{retried}"
    );
    assert_eq!(told[4].1["error"], json!("c"));
    assert_eq!(told[5].1["to_seq"], json!(5));
    let expected = MessageCount {
        sent: 2,
        retried: 2,
        failed: 1,
        expired: 2,
        ..MessageCount::default()
    };
    assert_eq!(counts(&bed).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_message_is_told_when_it_was_sent_and_when_it_was_acknowledged() {
    let mut bed = Bed::new().await;
    bed.fake = Fake::answering(|_| Verdict::Sent);
    listen(&bed).await;
    set(
        &bed,
        &format!("{ALL}, ack = 'required', ack_timeout_ms = 500"),
        "out",
    )
    .await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 1).await;
    wait_until(LIMIT, "it is sent again", async || {
        words(&bed).await == ["sent 1", "retried 1", "sent 1"]
    })
    .await;
    set(&bed, "ack_timeout_ms = 3600000", "out").await;
    let find = "SELECT message_id FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id)
                WHERE s.name = 's1'";
    let id: Uuid = bed.client.query_one(find, &[]).await.unwrap().get(0);
    sent::ack_many(&bed.client, &[id], None, None)
        .await
        .unwrap();
    wait_until(LIMIT, "it is acknowledged", async || {
        words(&bed)
            .await
            .last()
            .is_some_and(|last| last == "acked 1")
    })
    .await;
    worker.stop().await;
    assert_eq!(counts(&bed).await.acked, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_a_subscription_asks_for_is_told_and_the_figures_are_counted_all_the_same() {
    let bed = Bed::new().await;
    listen(&bed).await;
    set(&bed, "lifecycle = '{retried}'", "out").await;
    bed.fake.script("s1", 1, [Verdict::retry("a")]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(2, 2).await;
    let out =
        "SELECT count(*) FROM lanekeeper.lane_status WHERE subscription = 'out' AND state = 'idle'";
    wait_until(LIMIT, "all is settled", async || bed.count(out).await == 2).await;
    worker.stop().await;
    assert_eq!(words(&bed).await, ["retried 1"]);
    assert_eq!(counts(&bed).await.sent, 4);
}

/// A closed session of the feed refuses what is told there; other sessions are told of, and deliveries go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_refuses_holds_up_nothing() {
    let bed = Bed::new().await;
    listen(&bed).await;
    set(&bed, ALL, "out").await;
    bed.client
        .batch_execute(
            "SELECT lanekeeper.enqueue('lifecycle', 'session runs/s2', 'x', '1');
             SELECT lanekeeper.close_session('lifecycle', 'session runs/s2')",
        )
        .await
        .unwrap();
    let worker = bed.worker().await;
    bed.enqueue_bulk(2, 3).await;
    wait_until(LIMIT, "the open one is told of", async || {
        words(&bed).await == ["sent 1", "sent 2", "sent 3"]
    })
    .await;
    worker.stop().await;
    bed.assert_exact(2, 3);
}
