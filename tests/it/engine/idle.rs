//! I13: a lane goes idle while an append commits. No event waits for ever, and no ready entry is left over.

use std::time::Duration;

use lanekeeper_postgres::claim::{self, RouteScan, ScanStart};
use lanekeeper_postgres::settle::{self, Operation, Settled, Settlement};
use lanekeeper_postgres::{lane_connection, worker};

use super::bed::{Bed, Sub, enqueue};
use crate::statements::connection::settlement;

/// Many producers, few sessions, lanes that go idle all the time: each append races a settlement.
async fn race(isolation: &str) {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "second",
        ..Sub::default()
    })
    .await;
    let workers = [bed.worker().await, bed.worker().await];
    let producers: Vec<_> = (0..4)
        .map(|producer: u64| {
            let url = bed.db.url().to_owned();
            let isolation = isolation.to_owned();
            tokio::spawn(async move {
                let client = crate::support::connect(&url).await;
                client
                    .batch_execute(&format!(
                        "SET default_transaction_isolation = '{isolation}'"
                    ))
                    .await
                    .unwrap();
                let mut sent = 0;
                for round in 0..60_u64 {
                    let session = format!("s{}", (round * 7 + producer) % 3);
                    let call = "SELECT seq FROM lanekeeper.enqueue('runs', $1, 'step', '{}')";
                    match client.query_one(call, &[&session]).await {
                        Ok(_) => sent += 1,
                        Err(error) => {
                            assert_eq!(error.code().unwrap().code(), "40001", "{error:?}");
                        }
                    }
                    tokio::time::sleep(Duration::from_millis((round * 13 + producer * 5) % 11))
                        .await;
                }
                sent
            })
        })
        .collect();
    let mut sent = 0;
    for producer in producers {
        sent += producer.await.unwrap();
    }
    bed.drained().await;
    let count = bed.count("SELECT count(*) FROM lanekeeper.event").await;
    assert_eq!(count, sent);
    assert_eq!(
        bed.fake.seen().accepted().len(),
        usize::try_from(sent).unwrap() * 2
    );
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_event_and_no_ready_entry_is_left_when_lanes_go_idle_under_appends() {
    race("read committed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_when_the_producers_run_at_repeatable_read() {
    race("repeatable read").await;
}

/// The interleaving itself: the holder has delivered everything and would go idle, while a
/// producer has appended and not committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_does_not_go_idle_while_an_append_is_uncommitted() {
    let bed = Bed::new().await;
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue("s1", "one").await;
    crate::support::wait_until(super::bed::LIMIT, "it is being delivered", async || {
        bed.fake.seen().running == 1
    })
    .await;
    let open = bed.db.connect().await;
    open.batch_execute("BEGIN").await.unwrap();
    enqueue(&open, "s1", "two").await;
    bed.fake.release("s1");
    crate::support::wait_until(super::bed::LIMIT, "the first is settled", async || {
        bed.count("SELECT max(cursor) FROM lanekeeper.progress")
            .await
            == 1
    })
    .await;
    assert!(
        bed.count("SELECT count(*) FROM lanekeeper.ready").await >= 1,
        "the producer saw a busy lane and wrote no entry: the holder's must stay"
    );
    open.batch_execute("COMMIT").await.unwrap();
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_event_does_not_wait_for_an_append_that_is_open() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    let database = bed.db.url().parse().unwrap();
    let client = lane_connection::open(&database, "lanes")
        .await
        .unwrap()
        .client;
    let worker_id = worker::new_worker_id(&client).await.unwrap();
    let connection_id = worker::open_lane_connection(&client, worker_id)
        .await
        .unwrap();
    let claiming = claim::prepare(&client).await.unwrap();
    let settling = settle::prepare(&client).await.unwrap();
    let scan = RouteScan {
        route: 1,
        room: 1,
        start: ScanStart::START,
    };
    let claim = claim::Claim {
        connection_id,
        claim_id: 1,
        scans: &[scan],
        limit: 1,
        held: &[],
        released: &[],
        finished: &[],
    };
    let claimed = claim::claim(&client, &claiming, claim).await;
    let lane = claimed.unwrap().lanes.remove(0);
    let finish = async |version, cursor| {
        let settlement = Settlement {
            version,
            changed: true,
            cursor,
            ..settlement(&lane, Operation::Finish)
        };
        let lanes = [(settlement, lane.entry)];
        settle::settle(&client, &settling, worker_id, &lanes)
            .await
            .unwrap()
    };
    bed.enqueue("s1", "step").await;
    let mut producer = bed.db.connect().await;
    let open = producer.transaction().await.unwrap();
    let append = "SELECT lanekeeper.enqueue('runs', 's1', 'step', '{}')";
    open.execute(append, &[]).await.unwrap();
    assert_eq!(
        finish(0, 1).await,
        [Settled::More],
        "the second is committed"
    );
    assert_eq!(finish(1, 2).await, [Settled::Busy], "the third may be");
    open.rollback().await.unwrap();
    assert_eq!(finish(2, 2).await, [Settled::Idle]);
}
