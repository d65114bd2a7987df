//! A lane's version and step in one number: a settlement compares it (I5), and it keeps lookups short while a snapshot
//! is held (I9).

use lanekeeper_postgres::claim::{ClaimedLane, ScanStart};
use lanekeeper_postgres::settle::{Operation, Settled};
use lanekeeper_postgres::worker;

use super::connection::Connection;
use super::plans::Observed;
use super::snapshot::{hold, pages};
use crate::engine::bed::{Bed, LIMIT, enqueue};
use crate::support::wait_until;

/// One lane with as many events, claimed.
async fn claimed(events: i64) -> (Bed, Connection, ClaimedLane) {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, events).await;
    let mut connection = Connection::open(&bed).await;
    let lane = connection.claim(ScanStart::START, 1).await.lanes.remove(0);
    (bed, connection, lane)
}

/// Settles so many events, one by one.
async fn pass(connection: &Connection, lane: &mut ClaimedLane, events: i64) {
    for _ in 0..events {
        let settled = connection.pass_one(lane, Operation::Keep).await;
        assert_eq!(settled, [Settled::Done], "at {}", lane.version);
        lane.cursor += 1;
        lane.version += 1;
    }
}

async fn number(bed: &Bed) -> i64 {
    bed.count("SELECT (version + step)::bigint FROM lanekeeper.progress")
        .await
}

#[tokio::test]
async fn a_held_snapshot_leaves_a_lookup_fifteen_dead_steps_at_the_most() {
    let (bed, connection, mut lane) = claimed(1_300).await;
    let mut holder = bed.db.connect().await;
    let _held = hold(&mut holder).await;
    // So many rows have one key at the most; no vacuum takes any of them away.
    let version = "SELECT version FROM lanekeeper.progress";
    let (mut most, mut before) = (0, 0);
    for _ in 0..50 {
        pass(&connection, &mut lane, 1).await;
        let now = bed.count(version).await;
        most = if now == before { most + 1 } else { 1 };
        assert!(most <= 16, "{most} rows of one key");
        before = now;
    }
    assert_eq!(before, 48, "a key for each sixteen settlements");
    assert_eq!(number(&bed).await, 50);

    // They are spread over a dozen pages and more by then, of which a look-up reads those of one key.
    pass(&connection, &mut lane, 1_150).await;
    let pages = bed
        .count("SELECT pg_relation_size('lanekeeper.progress') / 8192")
        .await;
    assert!(pages >= 12, "{pages} pages");
    let read = pages_read(&bed, lane.lane_id).await;
    assert!(read <= 8, "{read} of {pages} pages");
}

/// A redelivered dead letter is entered where its lane's progress is, whose number the settlement has just written.
#[tokio::test]
async fn settling_a_requeued_dead_letter_reads_no_dead_version_of_its_lane() {
    let (bed, connection, mut lane) = claimed(3_100).await;
    let mut holder = bed.db.connect().await;
    let _held = hold(&mut holder).await;
    pass(&connection, &mut lane, 3_000).await;
    let settled = format!(
        "SELECT lanekeeper.settle_requeued('{{{}}}', '{{{}}}', '{{true}}', '{{1}}', '{{redelivered}}', '{{0}}',
             '{{NULL}}', '{{0}}', '{{0}}')",
        lane.lane_id,
        number(&bed).await - 1
    );
    // Once for what is read with the plans.
    pages_of(&bed, &settled).await;
    let read = pages_of(&bed, &settled).await;
    // Of all its versions it would be more than 50.
    assert!(read <= 35, "{read} pages");
}

/// Pages of index and table that a look-up of a lane's progress reads.
async fn pages_read(bed: &Bed, lane_id: i64) -> i64 {
    let look_up = format!(
        "SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = {lane_id}
         ORDER BY p.version DESC LIMIT 1"
    );
    pages_of(bed, &look_up).await
}

/// Pages that a statement reads, each as often as it does.
async fn pages_of(bed: &Bed, statement: &str) -> i64 {
    bed.client
        .batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        .await
        .unwrap();
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}");
    let row = bed.client.query_one(&explain, &[]).await.unwrap();
    pages(&row.get(0))
}

/// A lane has one version to the planner, which counts no dead rows, and then all plans cost the same: when autovacuum
/// had counted, appends took the bitmap of all versions for a minute, until it counted again.
#[tokio::test]
async fn an_append_asks_for_the_newest_version_alone_whatever_the_planner_takes_the_others_to_cost()
{
    let bed = Bed::new().await;
    bed.enqueue_bulk(3, 1).await;
    let producer = Observed::producer(bed.db.url()).await;
    producer
        .client
        .batch_execute("SET enable_indexscan = off; SET jit = off")
        .await
        .unwrap();
    let preferred = "SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = 1";
    producer.client.query(preferred, &[]).await.unwrap();
    assert_eq!(producer.work().bitmap_scans, ["progress"]);

    // An event for a lane that has its entry, one for an idle lane, and the first of a day.
    bed.client
        .batch_execute(
            "SELECT lanekeeper.create_event_partition((now() AT TIME ZONE 'UTC')::date - 1);
             UPDATE lanekeeper.progress SET cursor = 1 WHERE lane_id = 2;
             UPDATE lanekeeper.event SET day = day - 1 WHERE session_id = 3",
        )
        .await
        .unwrap();
    for session in ["s1", "s2", "s3"] {
        enqueue(&producer.client, session, "step").await;
    }
    let many = r#"[{"session": "s1", "event_type": "step", "payload": 1},
                   {"session": "s2", "event_type": "step", "payload": 1}]"#;
    producer
        .client
        .query(
            "SELECT * FROM lanekeeper.enqueue_many('runs', $1::text::jsonb)",
            &[&many],
        )
        .await
        .unwrap();
    let newest = "SELECT n.seq FROM lanekeeper.newest_event(1, '2000-01-01') AS n";
    producer.client.query(newest, &[]).await.unwrap();
    let mut work = producer.work();
    // A session has few lanes, and no dead ones.
    work.bitmap_scans.retain(|relation| relation != "lane");
    assert_eq!(work.bitmap_scans, [""; 0]);
    assert_eq!(work.seq_scans, [""; 0]);
}

/// Whoever reads it without a setting for it, an operator or a view, goes by what a lane costs to the planner.
#[tokio::test]
async fn to_the_planner_a_lane_has_many_versions_however_few_autovacuum_counts() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(100, 1).await;
    bed.client
        .batch_execute("ANALYZE lanekeeper.progress; SET enable_seqscan = off")
        .await
        .unwrap();
    let newest =
        "EXPLAIN (FORMAT JSON) SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = 1
                  ORDER BY p.version DESC LIMIT 1";
    let row = bed.client.query_one(newest, &[]).await.unwrap();
    let scan = &row.get::<_, serde_json::Value>(0)[0]["Plan"]["Plans"][0];
    assert_eq!(scan["Node Type"], "Index Scan");
    assert_eq!(scan["Plan Rows"], 50);
}

#[tokio::test]
async fn no_number_that_was_read_before_settles_anything_again() {
    let (bed, connection, mut lane) = claimed(60).await;
    pass(&connection, &mut lane, 37).await;
    for stale in (0..37).chain(38..80) {
        let at = ClaimedLane {
            version: stale,
            ..lane.clone()
        };
        let settled = connection.pass_one(&at, Operation::Keep).await;
        assert_eq!(settled, [Settled::Lost], "{stale}");
    }
    // An operator's change goes beyond what any settlement before it could have come to.
    connection.unlock(&[lane.lane_id]).await;
    bed.count("SELECT 1::bigint FROM lanekeeper.change_lane((SELECT lane_id FROM lanekeeper.lane), 'retry')")
        .await;
    assert_eq!(number(&bed).await, 48);
    for stale in 0..48 {
        let at = ClaimedLane {
            version: stale,
            ..lane.clone()
        };
        let settled = connection.pass_one(&at, Operation::Keep).await;
        assert_eq!(settled, [Settled::Lost], "{stale}");
    }
}

#[tokio::test]
async fn a_head_is_charged_for_the_worker_that_held_it_and_not_for_one_that_had_passed_others() {
    let (bed, connection, mut lane) = claimed(10).await;
    pass(&connection, &mut lane, 5).await;
    connection.unlock(&[lane.lane_id]).await;
    let survivor = Connection::open(&bed).await;
    let own = worker::new_worker_id(&survivor.client).await.unwrap();
    let crashes = "SELECT crashes::bigint FROM lanekeeper.progress";
    // The second claims in the midst of a version; the third after a charge.
    for (settles, charged) in [(0, 1), (0, 2), (3, 0)] {
        let mut dying = Connection::open(&bed).await;
        let mut lanes = Vec::new();
        wait_until(LIMIT, "the lane is free", async || {
            lanes = dying.claim(ScanStart::START, 1).await.lanes;
            lanes.len() == 1
        })
        .await;
        // What it settled is not charged, and nor is what came after.
        pass(&dying, &mut lanes[0], settles).await;
        drop(dying);
        wait_until(LIMIT, "it is taken over", async || {
            worker::take_over(&survivor.client, own, 30_000, &[])
                .await
                .unwrap();
            let claims = format!(
                "SELECT count(*) FROM lanekeeper.claim WHERE connection_id <> {}",
                connection.connection_id
            );
            bed.count(&claims).await == 0
        })
        .await;
        assert_eq!(bed.count(crashes).await, charged, "{settles} settlements");
    }
}
