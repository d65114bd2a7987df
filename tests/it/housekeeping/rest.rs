//! Sessions without events in the log lose their lanes, but never their last seq or an event (I1, I13).

use lanekeeper_engine::WorkerSettings;
use lanekeeper_postgres::maintenance::{Rest, expire_sessions};
use lanekeeper_subscription::SubscriptionFile;
use tokio_postgres::Client;

use crate::engine::bed::{Bed, LIMIT, Sub, enqueue};
use crate::support::wait_until;

const LANES: &str = "SELECT count(*) FROM lanekeeper.lane";
const LEAVING: &str = "SELECT count(*) FROM lanekeeper.expiring_session";

/// Two events of each session were delivered long ago and are gone from the log; the second
/// subscription starts at the earliest event.
async fn silent(sessions: &[&str]) -> Bed {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "all",
        ..Sub::default()
    })
    .await;
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.subscription SET start_from = 'earliest' WHERE name = 'all'",
        )
        .await
        .unwrap();
    for session in sessions {
        for _ in 0..2 {
            bed.enqueue(session, "step").await;
        }
    }
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    // Its housekeeping may be at its last turn.
    let others = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid()";
    wait_until(LIMIT, "the worker's connections are gone", async || {
        bed.count(others).await == 0
    })
    .await;
    age(&bed).await;
    bed
}

async fn age(bed: &Bed) {
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.session_tail SELECT session_id, max(seq) FROM lanekeeper.event GROUP BY 1;
             DELETE FROM lanekeeper.event;
             UPDATE lanekeeper.progress SET changed_at = changed_at - interval '31 days';
             UPDATE lanekeeper.session SET created_at = created_at - interval '31 days'",
        )
        .await
        .unwrap();
}

async fn turn(client: &Client) -> Rest {
    expire_sessions(client, 30, 100).await.unwrap()
}

/// Marks what may rest, whenever the last round was.
async fn mark(bed: &Bed) -> i64 {
    bed.client
        .batch_execute("UPDATE lanekeeper.session_round SET begun_at = '-infinity'")
        .await
        .unwrap();
    turn(&bed.client).await.marked
}

/// Turns until no session is about to lose its lanes; how many did.
async fn rest(bed: &Bed) -> i64 {
    let mut rested = 0;
    wait_until(LIMIT, "those that were marked are done", async || {
        rested += turn(&bed.client).await.rested;
        bed.count(LEAVING).await == 0
    })
    .await;
    rested
}

/// The next events come through, by both subscriptions, under the next numbers.
async fn goes_on(bed: &Bed, session: &str, seqs: &[i64]) {
    let before = bed.accepted().get(session).map_or(0, Vec::len);
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    let mut came = bed.accepted()[session][before..].to_vec();
    came.sort_unstable();
    let expected: Vec<i64> = seqs.iter().flat_map(|seq| [*seq; 2]).collect();
    assert_eq!(came, expected, "{session}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_session_loses_its_lanes_and_goes_on_where_it_was() {
    let bed = silent(&["s1"]).await;
    assert_eq!(mark(&bed).await, 1);
    assert_eq!(rest(&bed).await, 1);
    assert_eq!(
        bed.count("SELECT (SELECT count(*) FROM lanekeeper.lane) + (SELECT count(*) FROM lanekeeper.progress)")
            .await,
        0
    );
    assert_eq!(mark(&bed).await, 0, "it rests already");
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    goes_on(&bed, "s1", &[3]).await;
    assert_eq!(bed.enqueue("s1", "step").await, 4);
    goes_on(&bed, "s1", &[4]).await;
}

/// A subscription from the earliest event, added when the log was gone already: its lane went idle behind
/// the session's last number, with nobody to notice the next event.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_idle_behind_a_log_that_is_gone_gets_the_next_event() {
    let bed = silent(&["s1", "s2"]).await;
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.progress SET cursor = 0, cursor_day = '2000-01-01' WHERE lane_id IN (
                 SELECT l.lane_id FROM lanekeeper.lane AS l JOIN lanekeeper.subscription AS s USING (subscription_id)
                 WHERE s.name = 'all')",
        )
        .await
        .unwrap();
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    bed.client
        .batch_execute(
            r#"SELECT lanekeeper.enqueue_many('runs', '[{"session": "s2", "event_type": "step", "payload": 3}]')"#,
        )
        .await
        .unwrap();
    goes_on(&bed, "s1", &[3]).await;
    let mut came = bed.accepted()["s2"].clone();
    came.sort_unstable();
    assert_eq!(came, [1, 1, 2, 2, 3, 3]);
}

/// The usual reason to remove a subscription is that it fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_in_retry_of_a_removed_subscription_keeps_no_session_from_its_rest() {
    let bed = silent(&["s1"]).await;
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.subscription SET removed_at = clock_timestamp() WHERE name = 'all';
             UPDATE lanekeeper.progress SET retry_at = clock_timestamp() - interval '1 day' WHERE lane_id IN (
                 SELECT l.lane_id FROM lanekeeper.lane AS l JOIN lanekeeper.subscription AS s USING (subscription_id)
                 WHERE s.name = 'all')",
        )
        .await
        .unwrap();
    assert_eq!(mark(&bed).await, 1);
    assert_eq!(rest(&bed).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_calls_and_repeatable_read_bring_lanes_back_too() {
    let bed = silent(&["s1", "s2"]).await;
    assert_eq!(mark(&bed).await, 2);
    assert_eq!(rest(&bed).await, 2);
    bed.enqueue_bulk(1, 2).await;
    bed.client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    bed.enqueue("s2", "step").await;
    bed.client.batch_execute("COMMIT").await.unwrap();
    goes_on(&bed, "s2", &[3]).await;
    assert_eq!(bed.accepted()["s1"].len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_anything_left_keeps_its_lanes() {
    let reasons = [
        ("an event", "SELECT lanekeeper.enqueue('runs', 's1', 'step', '{}')"),
        ("an operator", "UPDATE lanekeeper.progress SET parked_at = now()"),
        ("a retry", "UPDATE lanekeeper.progress SET retry_at = now()"),
        ("a recent settlement", "UPDATE lanekeeper.progress SET changed_at = now() - interval '29 days'"),
        (
            "a dead letter",
            "INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts, crashes, error)
             VALUES (1, 1, gen_random_uuid(), 'step', '1', now(), 1, 0, 'no')",
        ),
        ("an outcome", "INSERT INTO lanekeeper.outcome (lane_id, seq, kind) VALUES (1, 1, 'dropped')"),
        (
            "a history",
            "INSERT INTO lanekeeper.history (lane_id, from_seq, to_seq, attempts, worker_id) VALUES (1, 1, 1, 0, 1)",
        ),
    ];
    let bed = silent(&["s1"]).await;
    for (reason, statement) in reasons {
        // Before it is marked, and between the mark and the removal.
        bed.client
            .batch_execute(&format!("BEGIN; {statement}"))
            .await
            .unwrap();
        assert_eq!(mark(&bed).await, 0, "{reason}");
        bed.client.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(mark(&bed).await, 1, "{reason}");
        bed.client
            .batch_execute(&format!("BEGIN; {statement}"))
            .await
            .unwrap();
        assert_eq!(rest(&bed).await, 0, "{reason}");
        assert_eq!(bed.count(LANES).await, 2, "{reason}");
        bed.client.batch_execute("ROLLBACK").await.unwrap();
        bed.client
            .batch_execute("DELETE FROM lanekeeper.expiring_session")
            .await
            .unwrap();
    }
}

/// A snapshot that misses the mark appends as if nothing had happened: it is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_from_before_the_mark_keeps_the_lanes() {
    let bed = silent(&["s1"]).await;
    let stale = bed.db.connect().await;
    stale
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    assert_eq!(mark(&bed).await, 1);
    for _ in 0..4 {
        assert_eq!(turn(&bed.client).await.rested, 0);
    }
    assert_eq!(enqueue(&stale, "s1", "step").await, 3);
    stale.batch_execute("COMMIT").await.unwrap();
    assert_eq!(rest(&bed).await, 0);
    goes_on(&bed, "s1", &[3]).await;
}

/// One that sees the mark and not the removal is refused, and may try again.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_from_between_the_mark_and_the_removal_is_refused() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let bed = silent(&["s1"]).await;
        assert_eq!(mark(&bed).await, 1);
        let stale = bed.db.connect().await;
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT 1");
        // One that is taken while something older is open elsewhere on the server is waited for.
        let newer = "SELECT pg_snapshot_xmin(pg_current_snapshot()) > (SELECT max(xact::text)::xid8 FROM lanekeeper.expiring_session)";
        wait_until(LIMIT, "a snapshot that nothing older is in", async || {
            stale
                .batch_execute(&format!("ROLLBACK; {begin}"))
                .await
                .unwrap();
            stale.query_one(newer, &[]).await.unwrap().get(0)
        })
        .await;
        assert_eq!(rest(&bed).await, 1);
        let call = "SELECT seq FROM lanekeeper.enqueue('runs', 's1', 'step', '{}')";
        let refused = stale.query_one(call, &[]).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "40001", "{level}");
        stale.batch_execute("ROLLBACK").await.unwrap();
        stale.batch_execute(&begin).await.unwrap();
        assert_eq!(enqueue(&stale, "s1", "step").await, 3, "{level}");
        stale.batch_execute("COMMIT").await.unwrap();
        goes_on(&bed, "s1", &[3]).await;
    }
}

/// It has read the session before the removal commits, and waits for its lock.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_waits_for_the_removal_gets_lanes() {
    let bed = silent(&["s1"]).await;
    assert_eq!(mark(&bed).await, 1);
    bed.client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(turn(&bed.client).await.rested, 1);
    let producer = bed.db.connect().await;
    let appended = tokio::spawn(async move { enqueue(&producer, "s1", "step").await });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    wait_until(LIMIT, "the producer waits", async || {
        bed.count(waits).await == 1
    })
    .await;
    bed.client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(appended.await.unwrap(), 3);
    goes_on(&bed, "s1", &[3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_somebody_holds_is_left_for_the_next_round() {
    let bed = silent(&["s1"]).await;
    let other = bed.db.connect().await;
    for lock in [
        "SELECT pg_advisory_lock(lanekeeper.append_lock(session_id)) FROM lanekeeper.session",
        "SELECT pg_advisory_lock(lanekeeper.lane_lock(max(lane_id))) FROM lanekeeper.lane",
    ] {
        assert_eq!(mark(&bed).await, 1, "{lock}");
        other.batch_execute(lock).await.unwrap();
        assert_eq!(rest(&bed).await, 0, "{lock}");
        other
            .batch_execute("SELECT pg_advisory_unlock_all()")
            .await
            .unwrap();
    }
    // An apply gives tokens to lanes that it saw.
    assert_eq!(mark(&bed).await, 1);
    other
        .batch_execute("SELECT pg_advisory_lock(lanekeeper.apply_lock())")
        .await
        .unwrap();
    for _ in 0..3 {
        assert_eq!(turn(&bed.client).await.rested, 0);
    }
    assert_eq!(bed.count(LANES).await, 2);
    drop(other);
    // A spare token that an apply left would be claimed, and its lane not found.
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
             SELECT route, 0, clock_timestamp() + interval '1 hour', lane_id FROM lanekeeper.lane",
        )
        .await
        .unwrap();
    wait_until(LIMIT, "its lanes go", async || {
        turn(&bed.client).await;
        bed.count(LANES).await == 0
    })
    .await;
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_leaves_sessions_at_rest_alone() {
    let bed = silent(&["s1"]).await;
    assert_eq!(mark(&bed).await, 1);
    assert_eq!(rest(&bed).await, 1);
    let file = "[subscription.more]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"https://example.com/\"\nstart = \"earliest\"";
    let file = SubscriptionFile::parse(file, "test.toml").unwrap();
    let mut operator = bed.db.connect().await;
    let applied = lanekeeper_postgres::subscription::apply(&mut operator, false, |current| {
        file.plan(current, false)
    })
    .await
    .unwrap();
    assert!(applied.backfills.is_empty());
    let worker = bed.worker().await;
    wait_until(LIMIT, "the change is finished", async || {
        bed.count("SELECT count(*) FROM lanekeeper.stream_change")
            .await
            == 0
    })
    .await;
    worker.stop().await;
    assert_eq!(bed.count(LANES).await, 0);
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    assert_eq!(bed.count(LANES).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_puts_sessions_to_rest_a_round_at_a_time() {
    let names: Vec<String> = (0..120).map(|n| format!("s{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bed = silent(&names).await;
    assert_eq!(bed.count(LANES).await, 240);
    // The previous round was at the start of the worker that delivered.
    bed.client
        .batch_execute("UPDATE lanekeeper.session_round SET begun_at = '-infinity'")
        .await
        .unwrap();
    let worker = bed.worker_with(WorkerSettings::default()).await;
    wait_until(LIMIT, "all lanes are gone", async || {
        bed.count(LANES).await == 0
    })
    .await;
    bed.enqueue("s7", "step").await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s7"].len(), 6);
    worker.stop().await;
}
