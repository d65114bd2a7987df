//! The limits on what a worker holds at once, over all its lane connections.

use std::time::Duration;

use lanekeeper_engine::{WorkerSettings, lanes_each};

use super::bed::{Bed, LIMIT};
use crate::support::wait_until;

/// The most deliveries that run at once while `rounds` loads of 40 sessions come to one worker with
/// several lane connections, which all wake at the same moment.
async fn most_at_once(bed: &Bed, settings: WorkerSettings) -> usize {
    let worker = bed.worker_with(settings).await;
    let mut most = 0;
    for round in 1..=10_i64 {
        bed.fake.hold_all();
        bed.enqueue_bulk(40, 1).await;
        wait_until(LIMIT, "a delivery runs", async || {
            bed.fake.seen().running > 0
        })
        .await;
        // Whatever else is going to be claimed has been by then.
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(bed.fake.seen().running);
        bed.fake.release_all();
        wait_until(LIMIT, "the round is over", async || {
            bed.fake.seen().accepted().len() == 40 * round as usize
        })
        .await;
        bed.drained().await;
    }
    worker.stop().await;
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_delivers_no_more_lanes_of_a_subscription_at_once_than_its_concurrency() {
    let bed = Bed::new().await;
    let strictly_one = "UPDATE lanekeeper.subscription SET concurrency = 1";
    bed.client.batch_execute(strictly_one).await.unwrap();
    let settings = WorkerSettings {
        lane_connections: 4,
        ..WorkerSettings::default()
    };
    assert_eq!(most_at_once(&bed, settings).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_holds_no_more_lanes_at_once_than_max_lanes() {
    let bed = Bed::new().await;
    let settings = WorkerSettings {
        lane_connections: 4,
        max_lanes: Some(4),
        ..WorkerSettings::default()
    };
    assert_eq!(most_at_once(&bed, settings).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_holds_its_part_of_the_lock_table_and_more_when_others_have_ended() {
    const OTHERS: i32 = 200;
    const SESSIONS: i64 = 400;
    let bed = Bed::new().await;
    bed.client
        .batch_execute("UPDATE lanekeeper.subscription SET concurrency = 10000")
        .await
        .unwrap();
    let others = "INSERT INTO lanekeeper.worker (worker_id, version, beat_at, started_at, host, pid, release, state)
                  SELECT -n, 1, clock_timestamp() + interval '1 hour', now(), 'elsewhere', n, '0', 'running'
                  FROM generate_series(1, $1) AS n";
    bed.client.execute(others, &[&OTHERS]).await.unwrap();
    let entries = "SELECT current_setting('max_locks_per_transaction')::bigint * (current_setting('max_connections')::bigint
                          + current_setting('max_prepared_transactions')::bigint)";
    let entries = bed.count(entries).await as u64;
    let part = lanes_each(entries, OTHERS as u32 + 1);
    assert!(
        (part as i64) < SESSIONS,
        "a server of {entries} locks is no test"
    );

    bed.fake.hold_all();
    bed.enqueue_bulk(SESSIONS, 1).await;
    let worker = bed
        .worker_with(WorkerSettings {
            heartbeat: Duration::from_millis(100),
            ..WorkerSettings::default()
        })
        .await;
    let running = || bed.fake.seen().running;
    // Other databases of this server may have workers, and a part, too.
    wait_until(LIMIT, "its part is held", async || running() > 0).await;
    // Several heartbeats, which come every half second at the most, and whatever was going to be claimed beyond it.
    for _ in 0..25 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(running() <= part, "{} of {part}", running());
    }

    let gone = "DELETE FROM lanekeeper.worker WHERE host = 'elsewhere'";
    bed.client.batch_execute(gone).await.unwrap();
    wait_until(LIMIT, "the rest is held too", async || {
        running() as i64 == SESSIONS
    })
    .await;
    bed.fake.release_all();
    bed.drained().await;
    worker.stop().await;
    bed.assert_exact(SESSIONS as usize, 1);
}
