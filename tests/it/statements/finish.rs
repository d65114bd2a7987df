//! A settlement in which all lanes go idle, and a claim that first releases the lanes that its connection held (I2, I5,
//! I13).

use lanekeeper_postgres::claim::{ClaimedLane, ReadyEntry, ScanStart};
use lanekeeper_postgres::settle::{Operation, Settled, Settlement};

use super::connection::{Connection, ids, settlement};
use crate::engine::bed::Bed;

/// Its one event was accepted.
fn finished(lane: &ClaimedLane) -> (Settlement, ReadyEntry) {
    let settlement = Settlement {
        changed: true,
        cursor: lane.cursor + 1,
        ..settlement(lane, Operation::Finish)
    };
    (settlement, lane.entry)
}

async fn claimed(lanes: i64) -> (Bed, Connection, Vec<ClaimedLane>) {
    let bed = Bed::new().await;
    bed.enqueue_bulk(lanes, 1).await;
    let mut connection = Connection::open(&bed).await;
    let mut claimed = connection.claim(ScanStart::START, 100).await.lanes;
    assert_eq!(claimed.len(), usize::try_from(lanes).unwrap());
    claimed.sort_unstable_by_key(|lane| lane.session_id);
    (bed, connection, claimed)
}

async fn cursors(bed: &Bed) -> Vec<i64> {
    bed.client
        .query_one(
            "SELECT array_agg(p.cursor ORDER BY l.session_id)
             FROM lanekeeper.progress AS p JOIN lanekeeper.lane AS l ON l.lane_id = p.lane_id",
            &[],
        )
        .await
        .unwrap()
        .get(0)
}

async fn entries(bed: &Bed) -> Vec<i64> {
    bed.client
        .query_one(
            "SELECT array_agg(lane_id ORDER BY lane_id) FROM lanekeeper.ready",
            &[],
        )
        .await
        .unwrap()
        .get(0)
}

#[tokio::test]
async fn a_stale_version_at_the_right_ctid_settles_nothing() {
    let (bed, connection, lanes) = claimed(2).await;
    let (stale, entry) = finished(&lanes[0]);
    let stale = Settlement {
        version: stale.version + 1,
        ..stale
    };
    let group = [(stale, entry), finished(&lanes[1])];
    let settled = connection.settle(&group).await;
    assert_eq!(settled, [Settled::Lost, Settled::Idle]);
    assert_eq!(cursors(&bed).await, [0, 1]);
    assert_eq!(entries(&bed).await, [lanes[0].lane_id]);
}

/// Whatever its neighbours in the group come to, and also where more is to be said of one of them.
#[tokio::test]
async fn each_lane_of_a_group_comes_to_its_own() {
    for history_from in [None, Some(1)] {
        comes_to_its_own(history_from).await;
    }
}

async fn comes_to_its_own(history_from: Option<i64>) {
    let (bed, connection, lanes) = claimed(6).await;
    bed.enqueue("s2", "step").await;
    let mut producer = bed.db.connect().await;
    let open = producer.transaction().await.unwrap();
    let append = "SELECT lanekeeper.enqueue('runs', $1, 'step', '{}')";
    for session in ["s3", "s4"] {
        open.execute(append, &[&session]).await.unwrap();
    }
    bed.client
        .batch_execute(&format!(
            "UPDATE lanekeeper.progress SET version = version + 16 WHERE lane_id = {};
             UPDATE lanekeeper.progress SET changed_at = clock_timestamp() WHERE lane_id IN ({}, {})",
            lanes[4].lane_id, lanes[3].lane_id, lanes[5].lane_id
        ))
        .await
        .unwrap();
    let mut group: Vec<_> = lanes.iter().map(finished).collect();
    group[0].0.history_from = history_from;
    let settled = connection.settle(&group).await;
    // The last of them and the fourth are no longer where they were when they were claimed.
    let expected = [
        Settled::Idle,
        Settled::More,
        Settled::Busy,
        Settled::Busy,
        Settled::Lost,
        Settled::Idle,
    ];
    assert_eq!(settled, expected);
    assert_eq!(cursors(&bed).await, [1, 1, 1, 1, 0, 1]);
    let mut kept: Vec<i64> = lanes[1..5].iter().map(|lane| lane.lane_id).collect();
    kept.sort_unstable();
    assert_eq!(entries(&bed).await, kept);
}

#[tokio::test]
async fn a_lane_that_went_idle_in_a_group_is_claimed_again_with_its_next_event() {
    let (bed, mut connection, lanes) = claimed(3).await;
    let group: Vec<_> = lanes.iter().map(finished).collect();
    let settled = connection.settle(&group).await;
    assert_eq!(settled, [Settled::Idle; 3]);
    bed.enqueue("s2", "step").await;
    assert_eq!(entries(&bed).await, [lanes[1].lane_id]);
    let again = connection
        .claim_anew(ScanStart::START, 100, &ids(&lanes), &[1])
        .await
        .lanes;
    assert_eq!(ids(&again), [lanes[1].lane_id]);
    assert_eq!((again[0].cursor, again[0].version), (1, 1));
}

#[tokio::test]
async fn a_claim_lets_go_of_lanes_before_it_takes_others() {
    let (bed, mut connection, lanes) = claimed(3).await;
    let mut other = Connection::open(&bed).await;
    assert!(other.claim(ScanStart::START, 100).await.lanes.is_empty());
    let released = [lanes[0].lane_id, lanes[1].lane_id];
    let again = connection
        .claim_anew(ScanStart::START, 1, &released, &[1])
        .await;
    assert_eq!(ids(&again.lanes), [lanes[0].lane_id]);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.claim").await,
        1,
        "the first is forgotten"
    );
    let taken = other.claim(ScanStart::START, 100).await;
    assert_eq!(ids(&taken.lanes), [lanes[1].lane_id]);
}
