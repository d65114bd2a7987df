//! The crashes that survivors charge after workers died.

use lanekeeper_postgres::claim::{ClaimedLane, ScanStart};
use lanekeeper_postgres::settle::{Operation, Settled};
use lanekeeper_postgres::{settle, worker};

use super::connection::{Connection, settlement};
use crate::engine::bed::{Bed, LIMIT};
use crate::support::wait_until;

const CHARGED: &str = "SELECT max(crashes)::bigint FROM lanekeeper.progress";

/// A poison event can kill worker after worker before the first of them is charged for: whoever is next
/// finds the lanes free at once. Its neighbours would come to the number that exhausts an event.
#[tokio::test]
async fn any_number_of_deaths_among_others_makes_a_head_suspected_poison_and_no_more() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(2, 1).await;
    for _ in 0..8 {
        let mut dying = Connection::open(&bed).await;
        wait_until(LIMIT, "the locks are free", async || {
            dying.claim(ScanStart::START, 2).await.lanes.len() == 2
        })
        .await;
    }
    let survivor = Connection::open(&bed).await;
    let own = worker::new_worker_id(&survivor.client).await.unwrap();
    let no_claims = "SELECT count(*) FROM lanekeeper.claim";
    wait_until(LIMIT, "all are taken over", async || {
        worker::take_over(&survivor.client, own, 30_000, &[])
            .await
            .unwrap();
        bed.count(no_claims).await == 0
    })
    .await;
    assert_eq!(bed.count(CHARGED).await, 2);

    // From there on it is delivered alone, and another death is its own.
    let mut alone = Connection::open(&bed).await;
    let lanes = alone.claim(ScanStart::START, 2).await.lanes;
    let suspect = (lanes[0].lane_id, lanes[0].version, lanes[0].crashes);
    settle::record_suspected_poison(&alone.client, alone.connection_id, 100, suspect)
        .await
        .unwrap();
    drop(alone);
    wait_until(LIMIT, "it is taken over", async || {
        worker::take_over(&survivor.client, own, 30_000, &[])
            .await
            .unwrap();
        bed.count(no_claims).await == 0
    })
    .await;
    assert_eq!(bed.count(CHARGED).await, 3);
    let beyond = "SELECT count(DISTINCT lane_id) FROM lanekeeper.progress WHERE crashes = 3";
    assert_eq!(bed.count(beyond).await, 1);
}

/// Of a connection that is gone as soon as the server has noticed.
async fn lose(bed: &Bed, connection: Connection) {
    let id = connection.connection_id;
    drop(connection);
    let alive = format!(
        "SELECT count(*) FROM lanekeeper.lane_connection AS c
         JOIN pg_stat_activity AS a ON a.pid = c.backend_pid AND a.backend_start = c.backend_start
         WHERE c.connection_id = {id}"
    );
    wait_until(LIMIT, "the server has noticed", async || {
        bed.count(&alive).await == 0
    })
    .await;
}

/// The one lane that is due, of which a holder died, and who has claimed it since. Nobody has taken over yet.
async fn taken_up_after_a_death(bed: &Bed) -> (Connection, Vec<ClaimedLane>) {
    let mut dying = Connection::open(bed).await;
    assert_eq!(dying.claim(ScanStart::START, 1).await.lanes.len(), 1);
    lose(bed, dying).await;
    let mut successor = Connection::open(bed).await;
    let held = successor.claim(ScanStart::START, 1).await.lanes;
    (successor, held)
}

#[tokio::test]
async fn a_worker_that_lives_wakes_its_own_lanes_and_charges_nothing() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 1).await;
    let mut lost = Connection::open(&bed).await;
    let own = lost.worker_id;
    assert_eq!(lost.claim(ScanStart::START, 1).await.lanes.len(), 1);
    lose(&bed, lost).await;
    let taken = worker::take_over(&bed.client, own, 30_000, &[])
        .await
        .unwrap();
    assert_eq!((taken[0].lanes, taken[0].charged), (1, 0));
    assert_eq!(bed.count(CHARGED).await, 0);
}

/// A peer has ended its connections. It has its liveness lock: the process is there, and may go on.
#[tokio::test]
async fn a_frozen_workers_lanes_are_woken_and_nothing_is_charged() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 1).await;
    let mut frozen = Connection::open(&bed).await;
    let worker_id = frozen.worker_id;
    let control = bed.db.connect().await;
    let is_held = worker::hold_liveness(&control, worker_id, LIMIT).await;
    assert!(is_held.unwrap());
    let identity = worker::Identity {
        worker_id,
        host: "node-a".to_owned(),
        pid: 42,
    };
    worker::heartbeat(&control, &identity, false).await.unwrap();
    let silent = "UPDATE lanekeeper.worker SET beat_at = now() - interval '1 hour'";
    bed.client.batch_execute(silent).await.unwrap();
    assert_eq!(frozen.claim(ScanStart::START, 1).await.lanes.len(), 1);
    lose(&bed, frozen).await;
    let survivor = worker::new_worker_id(&bed.client).await.unwrap();
    let taken = worker::take_over(&bed.client, survivor, 30_000, &[])
        .await
        .unwrap();
    assert_eq!(taken[0].worker_id, worker_id);
    assert_eq!((taken[0].lanes, taken[0].charged), (1, 0));
    assert_eq!(bed.count(CHARGED).await, 0);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.claim").await, 0);
}

/// The server may get to a dying worker's last takeover when that worker's connections are gone. It is no evidence that
/// the worker lived when it lost them: its death would not be counted, and a poison event would kill one more.
#[tokio::test]
async fn the_last_takeover_of_a_dying_worker_does_not_hide_its_death() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 1).await;
    let mut dying = Connection::open(&bed).await;
    let (worker_id, live) = (dying.worker_id, [dying.connection_id]);
    assert_eq!(dying.claim(ScanStart::START, 1).await.lanes.len(), 1);
    lose(&bed, dying).await;
    let taken = worker::take_over(&bed.client, worker_id, 30_000, &live);
    assert!(taken.await.unwrap().is_empty());
    let survivor = worker::new_worker_id(&bed.client).await.unwrap();
    let taken = worker::take_over(&bed.client, survivor, 30_000, &[]);
    let taken = taken.await.unwrap();
    assert_eq!((taken[0].lanes, taken[0].charged), (1, 1));
    assert_eq!(bed.count(CHARGED).await, 1);
}

/// The next holder of a dead worker's lane finds that it must wait, and gives it back as it was. Were that a settlement
/// like others, the death would never be charged, and an event that kills its workers would go on for ever.
#[tokio::test]
async fn a_lane_that_was_given_back_as_it_was_is_charged_for_the_death_before() {
    for operation in [Operation::Retry, Operation::Yield] {
        let bed = Bed::new().await;
        bed.enqueue_bulk(1, 1).await;
        let (successor, held) = taken_up_after_a_death(&bed).await;
        let given_back = (settlement(&held[0], operation), held[0].entry);
        assert_eq!(successor.settle(&[given_back]).await, [Settled::Done]);
        successor.unlock(&[held[0].lane_id]).await;
        let survivor = worker::new_worker_id(&bed.client).await.unwrap();
        worker::take_over(&bed.client, survivor, 30_000, &[])
            .await
            .unwrap();
        assert_eq!(bed.count(CHARGED).await, 1, "{operation:?}");
    }
}

/// Tokens stay when a lane is claimed: a dead worker's may be claimed before anybody has taken over.
#[tokio::test]
async fn a_lane_that_was_claimed_before_the_takeover_is_its_holders() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 1).await;
    let (successor, held) = taken_up_after_a_death(&bed).await;
    let survivor = worker::new_worker_id(&bed.client).await.unwrap();
    worker::take_over(&bed.client, survivor, 30_000, &[])
        .await
        .unwrap();
    assert_eq!(bed.count(CHARGED).await, 0);
    let settled = successor.pass_one(&held[0], Operation::Finish).await;
    assert_eq!(settled, [Settled::Idle]);
    successor.unlock(&[held[0].lane_id]).await;
    // Its charge is off the record, with its claim.
    worker::take_over(&bed.client, survivor, 30_000, &[])
        .await
        .unwrap();
    assert_eq!(bed.count(CHARGED).await, 0);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.claim").await, 0);
}
