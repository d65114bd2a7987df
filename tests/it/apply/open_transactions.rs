//! I13: an apply while producers' transactions are open: neither sees what the other has not
//! committed, and still no event waits for ever.

use lanekeeper_postgres::maintenance::{Turn, change_pending, finish_changes};
use lanekeeper_postgres::subscription::{Applied, add_lanes};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::{apply, enqueue, number};
use crate::engine::bed::{Bed, LIMIT};
use crate::support::{TestDb, wait_until};

/// Lanes with an event to deliver, no token, and nobody who holds them.
const FORGOTTEN: &str = "SELECT count(*) FROM lanekeeper.lane_status AS s
    WHERE s.head_seq IS NOT NULL AND s.state = 'ready'
      AND NOT EXISTS (SELECT FROM lanekeeper.ready AS r WHERE r.lane_id = s.lane_id)";

const NEW_SESSIONS_LANES: &str = "SELECT count(*) FROM lanekeeper.lane AS l
    JOIN lanekeeper.session AS s USING (session_id) WHERE s.name LIKE 'new%'";

const EVERYTHING: &str = "start = \"earliest\"";

/// Sessions in one turn of these tests.
const SESSIONS: i32 = 100;

fn subscription(rest: &str) -> String {
    format!(
        "[subscription.audit]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"https://example.com/\"\n{rest}"
    )
}

async fn set(operator: &mut Client, rest: &str) -> Applied {
    apply(operator, &subscription(rest), false, false).await
}

/// What `lanekeeper apply` does after its commit.
async fn backfill(operator: &Client, applied: &Applied) {
    for backfill in &applied.backfills {
        let mut after = Some(0);
        while let Some(session) = after {
            after = add_lanes(operator, backfill.subscription_id, session, 100)
                .await
                .unwrap();
        }
    }
}

async fn append(producer: &Client, session: &str) {
    producer
        .query(
            "SELECT lanekeeper.enqueue('runs', $1, 'b', '{}')",
            &[&session],
        )
        .await
        .unwrap();
}

async fn turn(client: &Client) -> Turn {
    finish_changes(client, SESSIONS).await.unwrap()
}

/// Turns until nothing is unfinished: other tests of the server may hold its horizon for a while.
async fn finish(client: &Client) {
    wait_until(LIMIT, "every change is finished", async || {
        turn(client).await.unfinished == 0
    })
    .await;
    assert!(!change_pending(client).await.unwrap().changes);
}

/// More turns than a change takes that nothing holds up.
async fn stays_unfinished(client: &Client) {
    for _ in 0..8 {
        assert!(
            turn(client).await.unfinished > 0,
            "finished while what it waits for is open"
        );
    }
}

#[tokio::test]
async fn a_wider_filter_reaches_the_events_of_a_session_that_was_not_committed_yet() {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    set(&mut operator, "events = [\"a\"]").await;
    finish(&operator).await;
    producer.batch_execute("BEGIN").await.unwrap();
    append(&producer, "new").await;
    set(&mut operator, "events = [\"a\", \"b\"]").await;
    stays_unfinished(&operator).await;
    producer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(number(&operator, FORGOTTEN).await, 1);
    // The next event finds the lane busy, with nobody there.
    append(&producer, "new").await;
    finish(&operator).await;
    assert_eq!(number(&operator, FORGOTTEN).await, 0);
}

#[tokio::test]
async fn a_subscription_from_the_earliest_event_gets_the_lane_of_a_session_that_was_not_committed_yet()
 {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    enqueue(&operator, "old", "x").await;
    producer.batch_execute("BEGIN").await.unwrap();
    append(&producer, "new").await;
    let applied = set(&mut operator, EVERYTHING).await;
    backfill(&operator, &applied).await;
    stays_unfinished(&operator).await;
    producer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(number(&operator, NEW_SESSIONS_LANES).await, 0);
    finish(&operator).await;
    assert_eq!(number(&operator, NEW_SESSIONS_LANES).await, 1);
    assert_eq!(number(&operator, FORGOTTEN).await, 0);
}

#[tokio::test]
async fn a_subscription_that_comes_back_gets_the_events_of_a_session_that_was_not_committed_yet() {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    set(&mut operator, "events = [\"a\"]").await;
    producer.batch_execute("BEGIN").await.unwrap();
    // The lane is there, and idle; then the subscription is away when its event comes.
    append(&producer, "new").await;
    apply(&mut operator, "", true, false).await;
    producer
        .batch_execute("SELECT lanekeeper.enqueue('runs', 'new', 'a', '{}')")
        .await
        .unwrap();
    set(&mut operator, "events = [\"a\"]").await;
    producer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(number(&operator, FORGOTTEN).await, 1);
    finish(&operator).await;
    assert_eq!(number(&operator, FORGOTTEN).await, 0);
}

#[tokio::test]
async fn a_prepared_transaction_is_waited_for() {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    let prepared = format!("house_{}", std::process::id());
    producer
        .batch_execute("SET lanekeeper.notify = off; BEGIN")
        .await
        .unwrap();
    append(&producer, "new").await;
    producer
        .batch_execute(&format!("PREPARE TRANSACTION '{prepared}'"))
        .await
        .unwrap();
    drop(producer);
    set(&mut operator, EVERYTHING).await;
    stays_unfinished(&operator).await;
    operator
        .batch_execute(&format!("COMMIT PREPARED '{prepared}'"))
        .await
        .unwrap();
    finish(&operator).await;
    assert_eq!(number(&operator, NEW_SESSIONS_LANES).await, 1);
}

/// It has written nothing yet when the apply commits: no transaction id tells of it.
#[tokio::test]
async fn a_snapshot_from_before_the_apply_is_waited_for_whatever_it_writes_and_when() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let db = TestDb::new().await;
        let (mut operator, producer) = (db.connect().await, db.connect().await);
        producer
            .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1"))
            .await
            .unwrap();
        set(&mut operator, EVERYTHING).await;
        stays_unfinished(&operator).await;
        append(&producer, "new").await;
        stays_unfinished(&operator).await;
        producer.batch_execute("COMMIT").await.unwrap();
        finish(&operator).await;
        assert_eq!(number(&operator, NEW_SESSIONS_LANES).await, 1, "{level}");
        assert_eq!(number(&operator, FORGOTTEN).await, 0, "{level}");
    }
}

/// The lane was added, its event delivered and the lane idle before the producer, who sees none of
/// this, appends.
#[tokio::test]
async fn a_lane_that_a_producers_snapshot_misses_is_woken_when_that_producer_is_done() {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    append(&operator, "s").await;
    producer
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    let applied = set(&mut operator, EVERYTHING).await;
    backfill(&operator, &applied).await;
    operator
        .batch_execute(
            "DELETE FROM lanekeeper.ready; UPDATE lanekeeper.progress SET cursor = 1, version = 1",
        )
        .await
        .unwrap();
    append(&producer, "s").await;
    producer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(number(&operator, FORGOTTEN).await, 1);
    finish(&operator).await;
    assert_eq!(number(&operator, FORGOTTEN).await, 0);
}

/// The horizon is held by something that has nothing to do with it: a dump, a forgotten prepared
/// transaction.
#[tokio::test]
async fn an_event_does_not_wait_for_a_transaction_that_is_not_its_own() {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    let dump = db.connect().await;
    dump.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    producer.batch_execute("BEGIN").await.unwrap();
    append(&producer, "new").await;
    set(&mut operator, EVERYTHING).await;
    producer.batch_execute("COMMIT").await.unwrap();
    wait_until(
        LIMIT,
        "a walk before the last one adds the lane",
        async || {
            assert!(turn(&operator).await.unfinished > 0);
            number(&operator, NEW_SESSIONS_LANES).await == 1
        },
    )
    .await;
    dump.batch_execute("COMMIT").await.unwrap();
    finish(&operator).await;
}

#[tokio::test]
async fn maintenance_reaches_every_session_in_bounded_rounds() {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    let many = "SELECT lanekeeper.enqueue_many($1, (
        SELECT jsonb_agg(jsonb_build_object('session', 'new' || n, 'event_type', 'b', 'payload', n))
        FROM generate_series(1, 350) AS n))";
    // Those of another stream are passed.
    operator.query(many, &[&"inbound"]).await.unwrap();
    producer.batch_execute("BEGIN").await.unwrap();
    producer.query(many, &[&"runs"]).await.unwrap();
    set(&mut operator, EVERYTHING).await;
    producer.batch_execute("COMMIT").await.unwrap();
    let mut walked = 0;
    wait_until(LIMIT, "every change is finished", async || {
        let turn = turn(&operator).await;
        assert!(turn.sessions_walked <= i64::from(SESSIONS));
        assert!(turn.lanes_woken <= i64::from(SESSIONS));
        walked += turn.sessions_walked;
        turn.unfinished == 0
    })
    .await;
    assert!(walked >= 700, "{walked} sessions");
    assert_eq!(number(&operator, NEW_SESSIONS_LANES).await, 350);
    assert_eq!(number(&operator, FORGOTTEN).await, 0);
}

#[tokio::test]
async fn two_applies_in_a_row_and_a_removal_leave_nothing_unfinished() {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    set(&mut operator, "events = [\"a\"]").await;
    producer.batch_execute("BEGIN").await.unwrap();
    append(&producer, "new").await;
    set(&mut operator, "events = [\"a\", \"c\"]").await;
    set(&mut operator, "events = [\"a\", \"b\"]").await;
    producer.batch_execute("COMMIT").await.unwrap();
    finish(&operator).await;
    assert_eq!(number(&operator, FORGOTTEN).await, 0);
    operator
        .batch_execute("DELETE FROM lanekeeper.ready")
        .await
        .unwrap();

    set(&mut operator, "events = [\"b\"]").await;
    apply(&mut operator, "", true, false).await;
    operator
        .batch_execute("DELETE FROM lanekeeper.ready")
        .await
        .unwrap();
    finish(&operator).await;
    let tokens = "SELECT count(*) FROM lanekeeper.ready";
    assert_eq!(number(&operator, tokens).await, 0, "it is removed");
}

#[tokio::test]
async fn what_no_producer_looks_at_leaves_nothing_to_finish() {
    let db = TestDb::new().await;
    let mut operator = db.connect().await;
    set(&mut operator, "").await;
    finish(&operator).await;
    set(&mut operator, "timeout = \"20s\"").await;
    apply(&mut operator, "", true, false).await;
    assert!(!change_pending(&operator).await.unwrap().changes);
}

/// It used to wait, with the append locks of up to two hundred other sessions.
#[tokio::test]
async fn adding_lanes_waits_for_no_producer_and_leaves_its_session_to_housekeeping() {
    let db = TestDb::new().await;
    let (mut operator, producer) = (db.connect().await, db.connect().await);
    for session in ["a", "new", "z"] {
        append(&operator, session).await;
    }
    producer.batch_execute("BEGIN").await.unwrap();
    append(&producer, "new").await;
    let applied = set(&mut operator, EVERYTHING).await;
    operator
        .batch_execute("SET lock_timeout = '2s'; DELETE FROM lanekeeper.stream_change")
        .await
        .unwrap();
    backfill(&operator, &applied).await;
    let lanes = "SELECT count(*) FROM lanekeeper.lane";
    assert_eq!(number(&operator, lanes).await, 2);
    assert!(change_pending(&operator).await.unwrap().changes);
    // Rolled back: what it appended is no reason for the next append to add the lane.
    producer.batch_execute("ROLLBACK").await.unwrap();
    finish(&operator).await;
    assert_eq!(number(&operator, lanes).await, 3);
    assert_eq!(number(&operator, FORGOTTEN).await, 0);
}

/// The last walk meets a producer that began after the apply: whether it commits is not known.
#[tokio::test]
async fn a_session_whose_append_lock_a_producer_holds_is_scanned_again() {
    let db = TestDb::new().await;
    let mut operator = db.connect().await;
    append(&operator, "new").await;
    set(&mut operator, EVERYTHING).await;
    let holder = db.connect().await;
    holder
        .batch_execute(
            "SELECT pg_advisory_lock(lanekeeper.append_lock(session_id)) FROM lanekeeper.session",
        )
        .await
        .unwrap();
    stays_unfinished(&operator).await;
    let last = "SELECT count(*) FROM lanekeeper.stream_change WHERE stage = 'last' AND passed_over";
    wait_until(LIMIT, "the last walk passed it over", async || {
        assert!(turn(&operator).await.unfinished > 0);
        number(&operator, last).await == 1
    })
    .await;
    drop(holder);
    finish(&operator).await;
    assert_eq!(number(&operator, NEW_SESSIONS_LANES).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_delivers_it_without_another_event() {
    let bed = Bed::bare().await;
    let (mut operator, producer) = (bed.db.connect().await, bed.db.connect().await);
    set(&mut operator, "events = [\"a\"]").await;
    let worker = bed.worker().await;
    producer.batch_execute("BEGIN").await.unwrap();
    append(&producer, "new").await;
    set(&mut operator, "events = [\"a\", \"b\"]").await;
    producer.batch_execute("COMMIT").await.unwrap();
    wait_until(LIMIT, "the event arrives", async || {
        bed.accepted().get("new").is_some_and(|seqs| *seqs == [1])
    })
    .await;
    bed.drained().await;
    wait_until(LIMIT, "the worker finishes the change", async || {
        !change_pending(&bed.client).await.unwrap().changes
    })
    .await;
    worker.stop().await;
}

async fn holds(client: &Client, function: &str, xact: &str) -> bool {
    let call = format!("SELECT lanekeeper.{function}($1::text::xid8)");
    client.query_one(&call, &[&xact]).await.unwrap().get(0)
}

async fn wrote(client: &Client) -> String {
    client
        .query_one("SELECT pg_current_xact_id()::text", &[])
        .await
        .unwrap()
        .get(0)
}

#[tokio::test]
async fn a_transaction_is_seen_by_every_snapshot_when_all_older_ones_are_gone() {
    let db = TestDb::new().await;
    let (client, other) = (db.connect().await, db.connect().await);
    let seen = async |xact: &str| holds(&client, "seen_by_every_snapshot", xact).await;
    for older in [
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1",
        "BEGIN; DECLARE c CURSOR FOR SELECT generate_series(1, 3); FETCH c",
    ] {
        other.batch_execute(older).await.unwrap();
        let xact = wrote(&client).await;
        for _ in 0..3 {
            assert!(!seen(&xact).await, "{older}");
        }
        other.batch_execute("ROLLBACK").await.unwrap();
        assert!(seen(&xact).await, "{older}");
    }
    // The statement of a producer that waits for a lock, and has not written yet.
    let lock = db.connect().await;
    lock.batch_execute("SELECT pg_advisory_lock(1)")
        .await
        .unwrap();
    let waiting = tokio::spawn(async move {
        other
            .batch_execute("SELECT pg_advisory_lock(1)")
            .await
            .unwrap();
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    wait_until(LIMIT, "it waits", async || {
        number(&client, waits).await == 1
    })
    .await;
    let xact = wrote(&client).await;
    assert!(!seen(&xact).await);
    lock.batch_execute("SELECT pg_advisory_unlock(1)")
        .await
        .unwrap();
    waiting.await.unwrap();
    wait_until(LIMIT, "its statement is over", async || seen(&xact).await).await;
    // From a dump of another server: nothing of that is open here.
    assert!(seen("9000000000000000000").await);
}

#[tokio::test]
async fn what_was_written_before_a_transaction_is_over_when_it_is_committed_and_not_when_prepared()
{
    let db = TestDb::new().await;
    let (client, other) = (db.connect().await, db.connect().await);
    let over = async |xact: &str| holds(&client, "over_before", xact).await;
    let name = format!("house_over_{}", std::process::id());
    other
        .batch_execute("BEGIN; SELECT pg_current_xact_id()")
        .await
        .unwrap();
    let xact = wrote(&client).await;
    assert!(!over(&xact).await);
    other
        .batch_execute(&format!("PREPARE TRANSACTION '{name}'"))
        .await
        .unwrap();
    assert!(!over(&xact).await);
    other
        .batch_execute(&format!("COMMIT PREPARED '{name}'"))
        .await
        .unwrap();
    assert!(over(&xact).await);
    // What begins later is not waited for.
    other
        .batch_execute("BEGIN; SELECT pg_current_xact_id()")
        .await
        .unwrap();
    assert!(over(&xact).await);
    assert!(over("9000000000000000000").await);
}

/// The number of a transaction may have wrapped around: its low half is read as the nearest.
#[tokio::test]
async fn the_number_of_a_transaction_is_the_nearest_with_its_low_half() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for (low, next, full) in [
        ("7", 10_i64, 7_i64),
        ("12", 10, 12),
        ("4294967290", 4_294_967_300, 4_294_967_290),
        ("5", 4_294_967_300, 4_294_967_301),
        ("3", 4_294_967_300, 4_294_967_299),
    ] {
        let found: i64 = client
            .query_one(
                "SELECT lanekeeper.xact_number($1::text::xid, $2)",
                &[&low, &next],
            )
            .await
            .unwrap()
            .get(0);
        assert_eq!(found, full, "{low} near {next}");
    }
}

#[tokio::test]
async fn a_producer_may_not_touch_changes() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let role = format!("lanekeeper_test_house_{}", std::process::id());
    client
        .batch_execute(&format!(
            "DROP ROLE IF EXISTS {role}; CREATE ROLE {role}; GRANT USAGE ON SCHEMA lanekeeper TO {role}; SET ROLE {role}"
        ))
        .await
        .unwrap();
    for call in [
        "SELECT lanekeeper.finish_changes(1)",
        "SELECT lanekeeper.forget_records(1, 1, 1, 1, 1)",
        "SELECT lanekeeper.drop_event_partition('2000-01-01')",
        "DELETE FROM lanekeeper.stream_change",
    ] {
        let error = client.batch_execute(call).await.unwrap_err();
        assert_eq!(
            error.code(),
            Some(&SqlState::INSUFFICIENT_PRIVILEGE),
            "{call}"
        );
    }
    client
        .batch_execute(&format!(
            "RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}"
        ))
        .await
        .unwrap();
}
