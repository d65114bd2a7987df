//! C5: a session with as many undelivered events as a subscription takes refuses the next one, whoever appends.

use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::append::{AppendError, Fate, NewEvent, enqueue, enqueue_array};
use lanekeeper_postgres::interrupt::{Interrupt, interrupt};
use lanekeeper_postgres::queue_full::QueueFull;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_postgres::{Client, GenericClient, IsolationLevel};

use super::bed::{Bed, LIMIT, Sub};
use super::interrupting::refusal;
use crate::support::wait_until;

const EVENTS: &str = "SELECT count(*) FROM lanekeeper.event";

/// Has every subscription of the stream refuse more than `max_pending` events, as `apply` does.
async fn bound(bed: &Bed, max_pending: i32) {
    bed.client
        .execute(
            "UPDATE lanekeeper.subscription SET max_pending = $1",
            &[&max_pending],
        )
        .await
        .unwrap();
    let bounded = "UPDATE lanekeeper.stream SET bounded = true WHERE name = 'runs'";
    bed.client.batch_execute(bounded).await.unwrap();
}

async fn bounded_bed(max_pending: i32) -> Bed {
    let bed = Bed::new().await;
    bound(&bed, max_pending).await;
    bed
}

async fn append_to(client: &impl GenericClient, session: &str) -> Result<i64, AppendError> {
    let event = NewEvent::new(session, "step", "1");
    enqueue(client, "runs", &event).await.map(|one| one.seq)
}

fn full<T: std::fmt::Debug>(appended: Result<T, AppendError>) -> QueueFull {
    let error = appended.unwrap_err();
    assert_eq!(error.fate(), Fate::SessionFull);
    match error {
        AppendError::QueueFull(full) => full,
        error => panic!("{error:?}"),
    }
}

/// An array of events, each a session and more fields.
fn array(events: &[(&str, Value)]) -> String {
    let events: Vec<Value> = events
        .iter()
        .map(|(session, more)| {
            let mut event =
                serde_json::json!({"session": session, "event_type": "step", "payload": 1});
            event
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().cloned().unwrap_or_default());
            event
        })
        .collect();
    Value::from(events).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_session_refuses_the_next_event_until_some_are_delivered() {
    let bed = bounded_bed(2).await;
    let keyed = NewEvent {
        dedupe_key: Some("k"),
        ..NewEvent::new("s1", "step", "1")
    };
    let client = &bed.client;
    enqueue(client, "runs", &keyed).await.unwrap();
    append_to(client, "s1").await.unwrap();
    let refused = full(append_to(client, "s1").await);
    let said = &refused.refusal;
    for told in [
        "'s1'",
        "'runs'",
        "2 events",
        "'out'",
        "nothing was enqueued",
    ] {
        assert!(said.message.contains(told), "{said:?}");
    }
    assert!(
        said.hint.as_deref().unwrap().contains("lane list"),
        "{said:?}"
    );
    assert_eq!(refused.subscription.as_deref(), Some("out"));
    assert!(refused.retry_after.is_some());
    assert_eq!(
        append_to(client, "s2").await.unwrap(),
        1,
        "others have room"
    );
    let again = enqueue(client, "runs", &keyed).await.unwrap();
    assert_eq!(
        (again.seq, again.duplicate),
        (1, true),
        "a repeated call hears what came of the first"
    );
    let new_key = NewEvent {
        dedupe_key: Some("new"),
        ..keyed
    };
    full(enqueue(client, "runs", &new_key).await);
    assert_eq!(bed.count(EVENTS).await, 3);

    let worker = bed.worker().await;
    bed.drained().await;
    let stored = enqueue(client, "runs", &new_key).await.unwrap();
    assert_eq!(
        (stored.seq, stored.duplicate),
        (3, false),
        "the refusal used up no key"
    );
    bed.drained().await;
    worker.stop().await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_producers_at_once_never_leave_more_than_ten_events() {
    let bed = bounded_bed(10).await;
    let mut producers = JoinSet::new();
    for _ in 0..16 {
        let client = bed.db.connect().await;
        producers.spawn(async move {
            let mut stored = 0;
            for _ in 0..4 {
                match append_to(&client, "s1").await {
                    Ok(_) => stored += 1,
                    refused => drop(full(refused)),
                }
            }
            stored
        });
    }
    let stored: Vec<i64> = producers.join_all().await;
    assert_eq!(stored.iter().sum::<i64>(), 10);
    assert_eq!(bed.count(EVENTS).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_worker_delivers_there_are_never_more_than_ten_undelivered_events() {
    let bed = bounded_bed(10).await;
    let worker = bed.worker().await;
    let mut producers = JoinSet::new();
    for _ in 0..8 {
        let client = bed.db.connect().await;
        producers.spawn(async move {
            for _ in 0..30 {
                if let Err(error) = append_to(&client, "s1").await {
                    full::<i64>(Err(error));
                }
            }
        });
    }
    let behind = "SELECT coalesce(max(behind), 0) FROM lanekeeper.lane_status";
    let mut most = 0;
    while !producers.is_empty() {
        most = most.max(bed.count(behind).await);
        while producers.try_join_next().is_some() {}
    }
    assert!(most <= 10, "{most}");
    bed.drained().await;
    worker.stop().await;
    let events = bed.count(EVENTS).await;
    assert_eq!(bed.accepted()["s1"], (1..=events).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_rolled_back_append_leaves_its_room_to_the_next_producer() {
    let mut bed = bounded_bed(1).await;
    let other = bed.db.connect().await;
    let open = bed.client.transaction().await.unwrap();
    append_to(&open, "s1").await.unwrap();
    full(append_to(&open, "s1").await);
    open.rollback().await.unwrap();
    assert_eq!(append_to(&other, "s1").await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_waits_for_an_open_transaction_counts_what_that_left() {
    for commits in [true, false] {
        let mut bed = bounded_bed(1).await;
        let (other, watcher) = (bed.db.connect().await, bed.db.connect().await);
        append_to(&other, "s2").await.unwrap();
        let open = bed.client.transaction().await.unwrap();
        append_to(&open, "s1").await.unwrap();
        let waiting = tokio::spawn(async move { append_to(&other, "s1").await });
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype IN ('advisory', 'transactionid') AND NOT granted
                     AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
        wait_until(LIMIT, "it waits", async || {
            watcher
                .query_one(waits, &[])
                .await
                .unwrap()
                .get::<_, i64>(0)
                == 1
        })
        .await;
        if commits {
            open.commit().await.unwrap();
            full(waiting.await.unwrap());
        } else {
            open.rollback().await.unwrap();
            assert_eq!(waiting.await.unwrap().unwrap(), 1);
        }
    }
}

#[tokio::test]
async fn the_stricter_isolation_levels_are_refused_as_well() {
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let mut bed = bounded_bed(2).await;
        append_to(&bed.client, "s1").await.unwrap();
        let start = bed.client.build_transaction().isolation_level(level);
        let open = start.start().await.unwrap();
        append_to(&open, "s1").await.unwrap();
        full(append_to(&open, "s1").await);
    }
}

#[tokio::test]
async fn a_bulk_call_is_all_or_nothing_and_names_the_first_event_that_does_not_fit() {
    let bed = bounded_bed(2).await;
    append_to(&bed.client, "s1").await.unwrap();
    let none = Value::Null;
    let key = |key: &str| serde_json::json!({"dedupe_key": key});
    let plain = array(&[
        ("s2", none.clone()),
        ("s1", none.clone()),
        ("s2", none.clone()),
        ("s1", none.clone()),
        ("s2", none.clone()),
    ]);
    let named = array(&[
        ("s2", key("a")),
        ("s1", key("b")),
        ("s2", none.clone()),
        ("s1", key("c")),
        ("s2", none),
    ]);
    for events in [plain, named] {
        let refused = full(enqueue_array(&bed.client, "runs", &events).await);
        let said = &refused.refusal.message;
        assert!(
            said.starts_with("event 4 of the array does not fit") && said.contains("'s1'"),
            "{said}"
        );
        assert_eq!(refused.subscription.as_deref(), Some("out"));
        assert_eq!(bed.count(EVENTS).await, 1);
    }
    let fits = array(&[("s1", key("b")), ("s2", key("a"))]);
    enqueue_array(&bed.client, "runs", &fits).await.unwrap();
    // These two are there already, so they need no room.
    enqueue_array(&bed.client, "runs", &fits).await.unwrap();
    let new = array(&[
        ("s3", Value::Null),
        ("s3", Value::Null),
        ("s3", Value::Null),
    ]);
    let refused = full(enqueue_array(&bed.client, "runs", &new).await);
    assert!(
        refused.refusal.message.starts_with("event 3 "),
        "of a new session"
    );
}

#[tokio::test]
async fn events_that_a_filter_leaves_out_take_no_room() {
    let bed = Bed::with(&Sub {
        events: Some(vec!["step"]),
        ..Sub::default()
    })
    .await;
    bound(&bed, 2).await;
    for _ in 0..5 {
        bed.enqueue("s1", "other").await;
    }
    bed.enqueue("s1", "step").await;
    for _ in 0..100 {
        bed.enqueue("s1", "other").await;
    }
    // Far beyond what is counted one by one, they count.
    full(append_to(&bed.client, "s1").await);
    assert_eq!(bed.enqueue("s1", "other").await, 107);
    let near = Bed::with(&Sub {
        events: Some(vec!["step"]),
        ..Sub::default()
    })
    .await;
    bound(&near, 2).await;
    for event_type in ["other", "step", "other", "other", "step"] {
        near.enqueue("s1", event_type).await;
    }
    let refused = full(append_to(&near.client, "s1").await);
    assert!(refused.refusal.message.contains("2 events"), "{refused:?}");
}

#[tokio::test]
async fn the_slowest_lane_counts_and_a_removed_subscription_does_not() {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "slow",
        ..Sub::default()
    })
    .await;
    bound(&bed, 3).await;
    bed.client
        .batch_execute("UPDATE lanekeeper.subscription SET max_pending = 1 WHERE name = 'slow'")
        .await
        .unwrap();
    append_to(&bed.client, "s1").await.unwrap();
    let refused = full(append_to(&bed.client, "s1").await);
    assert_eq!(refused.subscription.as_deref(), Some("slow"));
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.subscription SET paused_at = now(), pause_reason = 'x' WHERE name = 'slow'",
        )
        .await
        .unwrap();
    let refused = full(append_to(&bed.client, "s1").await);
    assert_eq!(
        refused.retry_after, None,
        "nothing is delivered before it is resumed"
    );
    assert!(refused.refusal.hint.unwrap().contains("resume"));
    bed.client
        .batch_execute("UPDATE lanekeeper.subscription SET removed_at = now() WHERE name = 'slow'")
        .await
        .unwrap();
    append_to(&bed.client, "s1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_when_the_head_is_tried_again() {
    let mut bed = Bed::with(&Sub {
        schedule_ms: vec![3_600_000],
        ..Sub::default()
    })
    .await;
    bed.fake = lanekeeper_adapters::fake::Fake::answering(|_| Verdict::retry("no"));
    bound(&bed, 1).await;
    append_to(&bed.client, "s1").await.unwrap();
    let worker = bed.worker().await;
    let waits = "SELECT count(*) FROM lanekeeper.progress WHERE retry_at IS NOT NULL";
    wait_until(LIMIT, "the head waits", async || {
        bed.count(waits).await == 1
    })
    .await;
    worker.stop().await;
    let after = full(append_to(&bed.client, "s1").await)
        .retry_after
        .unwrap();
    assert!(after.as_secs() > 3_000, "{after:?}");
}

/// The functions of ours that an append calls, by name.
async fn called(client: &mut Client) -> Vec<String> {
    let open = client.transaction().await.unwrap();
    open.batch_execute("SET LOCAL track_functions = 'all'")
        .await
        .unwrap();
    let append = "SELECT lanekeeper.enqueue('runs', 's1', 'step', '1')";
    open.batch_execute(append).await.unwrap();
    let calls = "SELECT funcname FROM pg_stat_xact_user_functions WHERE schemaname = 'lanekeeper' ORDER BY 1";
    let rows = open.query(calls, &[]).await.unwrap();
    open.commit().await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn streams_without_a_bound_call_nothing_for_it() {
    let mut bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    let without = called(&mut bed.client).await;
    let of_bound = |name: &String| name.contains("full") || name.contains("pending");
    assert!(without.contains(&"enqueue".to_owned()), "{without:?}");
    assert!(!without.iter().any(of_bound), "{without:?}");
    bound(&bed, 100).await;
    let with = called(&mut bed.client).await;
    let more: Vec<_> = with.iter().filter(|name| !without.contains(name)).collect();
    assert_eq!(
        more,
        ["full_lanes", "refuse_full"],
        "and those that have one, little"
    );
}

/// The setting by which an interrupt is let in, with a value that somebody made up.
const FORGED: &str = "SET lanekeeper.interrupting = 'x'";

#[tokio::test]
async fn an_interrupt_enters_a_full_session_and_what_it_appends_again_does_not_exceed_the_bound() {
    let bed = bounded_bed(3).await;
    for _ in 0..3 {
        append_to(&bed.client, "s1").await.unwrap();
    }
    bed.client.batch_execute(FORGED).await.unwrap();
    full(append_to(&bed.client, "s1").await);
    let event = NewEvent::new("s1", "stop", "1");
    let again = Interrupt {
        keep_waiting: true,
        cancel_running: true,
    };
    let refused = interrupt(&bed.client, "runs", &event, again).await;
    full(refused);
    assert_eq!(bed.count(EVENTS).await, 3, "nothing was appended");
    let done = interrupt(&bed.client, "runs", &event, Interrupt::default()).await;
    assert_eq!(done.unwrap().superseded, 3);
    // The session has room for two more, of which the interrupt's own transaction gets no more than others.
    bed.client.batch_execute("BEGIN").await.unwrap();
    append_to(&bed.client, "s1").await.unwrap();
    append_to(&bed.client, "s1").await.unwrap();
    let done = interrupt(&bed.client, "runs", &event, Interrupt::default()).await;
    assert_eq!(done.unwrap().superseded, 3);
    for _ in 0..2 {
        append_to(&bed.client, "s1").await.unwrap();
    }
    full(append_to(&bed.client, "s1").await);
    bed.client.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn an_interrupt_that_would_be_dropped_for_what_it_appends_again_is_refused() {
    let bed = bounded_bed(2).await;
    let policy = "UPDATE lanekeeper.subscription SET on_full = 'drop_oldest'";
    bed.client.batch_execute(policy).await.unwrap();
    for _ in 0..2 {
        append_to(&bed.client, "s1").await.unwrap();
    }
    let again = "SELECT lanekeeper.interrupt('runs', 's1', 'stop', '1', keep_waiting => true)";
    assert_eq!(refusal(&bed.client, again).await, "LK006");
    assert_eq!(bed.count(EVENTS).await, 2);
}
