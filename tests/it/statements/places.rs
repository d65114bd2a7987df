//! Progress is found by ctid. The ctid in a ready entry is a hint: if another row has it, the key decides (I2, I5,
//! I13).

use lanekeeper_postgres::claim::{ClaimedLane, ScanStart};
use lanekeeper_postgres::settle::{Operation, Settled};

use super::connection::{Connection, ids, settlement};
use crate::engine::bed::Bed;

/// Lanes with one event each, and a connection to claim them.
async fn lanes(count: i64) -> (Bed, Connection) {
    let bed = Bed::new().await;
    bed.enqueue_bulk(count, 1).await;
    let connection = Connection::open(&bed).await;
    (bed, connection)
}

async fn claim_all(connection: &mut Connection, count: usize) -> Vec<ClaimedLane> {
    let claimed = connection.claim(ScanStart::START, 100).await;
    assert_eq!(claimed.lanes.len(), count);
    assert!(claimed.locked_twice.is_empty());
    claimed.lanes
}

/// Lanes of which the claim told what the table says.
async fn told_rightly(bed: &Bed, lanes: &[ClaimedLane]) {
    for lane in lanes {
        let row = bed
            .client
            .query_one(
                "SELECT version + step, cursor, ctid = $2 FROM lanekeeper.progress WHERE lane_id = $1",
                &[&lane.lane_id, &lane.progress_ctid],
            )
            .await
            .unwrap();
        assert_eq!(lane.version, row.get::<_, i64>(0));
        assert_eq!(lane.cursor, row.get::<_, i64>(1));
        assert!(row.get::<_, bool>(2), "its place");
    }
}

/// Rows of progress that were read through their index, by everybody.
async fn looked_up(bed: &Bed) -> i64 {
    bed.client
        .batch_execute("SELECT pg_stat_clear_snapshot()")
        .await
        .unwrap();
    bed.count(
        "SELECT idx_scan FROM pg_stat_all_indexes
         WHERE schemaname = 'lanekeeper' AND indexrelname = 'progress_pkey'",
    )
    .await
}

/// Has the connection's counts known, and those of the bed.
async fn counted(connection: &Connection) {
    connection
        .client
        .batch_execute("SELECT pg_stat_force_next_flush()")
        .await
        .unwrap();
}

#[tokio::test]
async fn claims_and_settlements_find_progress_without_its_index() {
    let (bed, mut connection) = lanes(20).await;
    let claim_and_finish = async |connection: &mut Connection| {
        let held = claim_all(connection, 20).await;
        assert_eq!(connection.finish(&held).await, vec![Settled::Idle; 20]);
    };
    // Before PostgreSQL 15 nobody can say when counts are to be seen.
    if bed
        .count("SELECT current_setting('server_version_num')::bigint")
        .await
        >= 150_000
    {
        counted(&connection).await;
        let before = looked_up(&bed).await;
        claim_and_finish(&mut connection).await;
        counted(&connection).await;
        assert_eq!(looked_up(&bed).await, before);
    } else {
        claim_and_finish(&mut connection).await;
    }
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 0);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.progress WHERE cursor = 1")
            .await,
        20
    );
}

/// Every row is elsewhere, and where it was is another's or none.
async fn moved(bed: &Bed, change: &str) {
    let change = format!("UPDATE lanekeeper.progress SET {change}");
    for statement in [&change, "VACUUM FULL lanekeeper.progress"] {
        bed.client.batch_execute(statement).await.unwrap();
    }
}

#[tokio::test]
async fn progress_that_was_moved_is_found_by_its_key() {
    let (bed, mut connection) = lanes(20).await;
    moved(&bed, "attempts = 1 WHERE lane_id % 2 = 0").await;
    let held = claim_all(&mut connection, 20).await;
    told_rightly(&bed, &held).await;
    assert!(
        held.iter()
            .all(|lane| (lane.attempts == 1) == (lane.lane_id % 2 == 0))
    );

    moved(&bed, "attempts = 0 WHERE lane_id % 3 = 0").await;
    assert_eq!(connection.finish(&held).await, vec![Settled::Idle; 20]);
    assert_eq!(
        bed.count(
            "SELECT count(*) FROM lanekeeper.progress WHERE cursor = 1 AND version + step = 1"
        )
        .await,
        20
    );
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 0);
}

#[tokio::test]
async fn a_ctid_that_has_another_lanes_progress_says_nothing_of_this_lane() {
    let (bed, mut connection) = lanes(2).await;
    // Each points to the other, of which one has come further.
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.progress SET cursor = 1, version = 16 WHERE lane_id = 1;
             UPDATE lanekeeper.ready AS r SET progress_ctid = p.ctid
             FROM lanekeeper.progress AS p WHERE p.lane_id <> r.lane_id",
        )
        .await
        .unwrap();
    let mut held = claim_all(&mut connection, 2).await;
    told_rightly(&bed, &held).await;
    let ctids = [held[1].progress_ctid, held[0].progress_ctid];
    for (lane, ctid) in held.iter_mut().zip(ctids) {
        lane.progress_ctid = ctid;
    }
    assert_eq!(connection.finish(&held).await, vec![Settled::Idle; 2]);
    assert_eq!(
        bed.count("SELECT sum(cursor)::bigint FROM lanekeeper.progress")
            .await,
        1 + 2,
        "each came one further"
    );
}

#[tokio::test]
async fn of_a_group_only_the_lanes_that_another_holder_settled_are_lost() {
    let (bed, mut connection) = lanes(10).await;
    let held = claim_all(&mut connection, 10).await;
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.progress SET version = version + 16 WHERE lane_id IN (3, 7)",
        )
        .await
        .unwrap();
    let settled = connection.finish(&held).await;
    for (lane, settled) in held.iter().zip(settled) {
        let expected = match lane.lane_id {
            3 | 7 => Settled::Lost,
            _ => Settled::Idle,
        };
        assert_eq!(settled, expected, "lane {}", lane.lane_id);
    }
    let left = "SELECT count(*) FROM lanekeeper.ready WHERE lane_id IN (3, 7)";
    assert_eq!(bed.count(left).await, 2, "their entries stay");
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 2);
}

#[tokio::test]
async fn a_ready_entry_at_the_ctid_of_a_deleted_one_stays() {
    let (bed, mut connection) = lanes(10).await;
    let held = claim_all(&mut connection, 10).await;
    // Their entries go, and others come to where they were.
    bed.client
        .batch_execute(
            "CREATE TABLE places AS SELECT ctid AS place FROM lanekeeper.ready;
             DELETE FROM lanekeeper.ready",
        )
        .await
        .unwrap();
    bed.client
        .batch_execute("VACUUM (INDEX_CLEANUP ON) lanekeeper.ready")
        .await
        .unwrap();
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
             SELECT 1, 0, clock_timestamp(), g FROM generate_series(1, 10) AS g",
        )
        .await
        .unwrap();
    let same = "SELECT count(*) FROM lanekeeper.ready AS r JOIN places AS p ON p.place = r.ctid";
    assert_eq!(bed.count(same).await, 10, "places are used again");
    assert_eq!(connection.finish(&held).await, vec![Settled::Idle; 10]);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 10);
}

#[tokio::test]
async fn a_retry_says_where_its_progress_is_now() {
    let (bed, mut connection) = lanes(5).await;
    let held = claim_all(&mut connection, 5).await;
    let retries: Vec<_> = held
        .iter()
        .map(|lane| {
            let mut settlement = settlement(lane, Operation::Retry);
            settlement.changed = true;
            settlement.attempts = 1;
            (settlement, lane.entry)
        })
        .collect();
    assert_eq!(connection.settle(&retries).await, vec![Settled::Done; 5]);
    connection.unlock(&ids(&held)).await;
    let rightly = "SELECT count(*) FROM lanekeeper.ready AS r
        JOIN lanekeeper.progress AS p ON p.lane_id = r.lane_id AND p.ctid = r.progress_ctid";
    assert_eq!(bed.count(rightly).await, 5);
    let again = claim_all(&mut connection, 5).await;
    assert!(again.iter().all(|lane| lane.attempts == 1));
    told_rightly(&bed, &again).await;
}

#[tokio::test]
async fn plans_that_were_made_on_a_few_lanes_are_right_on_many() {
    let (bed, mut connection) = lanes(1).await;
    let claim_and_finish = async |connection: &mut Connection, count: usize| {
        let claimed = connection.claim(ScanStart::START, 1_000).await;
        assert_eq!(claimed.lanes.len(), count);
        told_rightly(&bed, &claimed.lanes).await;
        assert_eq!(
            connection.finish(&claimed.lanes).await,
            vec![Settled::Idle; count]
        );
        connection.unlock(&ids(&claimed.lanes)).await;
    };
    bed.client
        .batch_execute("ANALYZE lanekeeper.progress")
        .await
        .unwrap();
    claim_and_finish(&mut connection, 1).await;
    bed.enqueue_bulk(500, 3).await;
    // Of each something else, and due in another order than their numbers'.
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.progress SET cursor = lane_id % 3, version = 16 * (lane_id % 2) WHERE lane_id > 1;
             UPDATE lanekeeper.ready AS r SET progress_ctid = p.ctid, due_at = r.due_at - r.lane_id * interval '1 s'
             FROM lanekeeper.progress AS p WHERE p.lane_id = r.lane_id",
        )
        .await
        .unwrap();
    let claimed = connection.claim(ScanStart::START, 1_000).await;
    assert_eq!(claimed.lanes.len(), 500);
    told_rightly(&bed, &claimed.lanes).await;
    let settled = connection.finish(&claimed.lanes).await;
    for (lane, settled) in claimed.lanes.iter().zip(settled) {
        let expected = if lane.cursor == 2 || lane.lane_id == 1 && lane.cursor == 3 {
            Settled::Idle
        } else {
            Settled::More
        };
        assert_eq!(
            settled, expected,
            "lane {} at {}",
            lane.lane_id, lane.cursor
        );
    }
    let wrong =
        "SELECT count(*) FROM lanekeeper.progress WHERE lane_id > 1 AND cursor <> lane_id % 3 + 1";
    assert_eq!(bed.count(wrong).await, 0);
}

#[tokio::test]
async fn a_claim_of_known_and_unknown_places_tells_of_each_what_is_its_own() {
    let (bed, mut connection) = lanes(60).await;
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.progress SET version = 16 * lane_id, attempts = lane_id WHERE lane_id % 2 = 0;
             UPDATE lanekeeper.ready SET progress_ctid = NULL WHERE lane_id % 3 = 0;
             DELETE FROM lanekeeper.progress WHERE lane_id % 10 = 0",
        )
        .await
        .unwrap();
    let held = claim_all(&mut connection, 54).await;
    told_rightly(&bed, &held).await;
    for lane in &held {
        let attempts = if lane.lane_id % 2 == 0 {
            lane.lane_id
        } else {
            0
        };
        assert_eq!(i64::from(lane.attempts), attempts, "lane {}", lane.lane_id);
        assert_eq!(lane.session.as_ref(), session_of(&bed, lane.lane_id).await);
    }
    assert_eq!(connection.finish(&held).await, vec![Settled::Idle; 54]);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.ready").await,
        0,
        "those of lanes that are gone went with the claim"
    );
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
        AND pid IN (SELECT backend_pid FROM lanekeeper.lane_connection)";
    assert_eq!(bed.count(locks).await, 54 + 1, "and its own");
}

async fn session_of(bed: &Bed, lane_id: i64) -> String {
    let session =
        "SELECT s.name FROM lanekeeper.session AS s JOIN lanekeeper.lane AS l USING (session_id)
        WHERE l.lane_id = $1";
    bed.client
        .query_one(session, &[&lane_id])
        .await
        .unwrap()
        .get(0)
}
