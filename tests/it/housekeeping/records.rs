//! Outcomes, histories, dead letters and keys are removed after their time, in bounded steps.

use lanekeeper_engine::WorkerSettings;
use lanekeeper_postgres::maintenance::{Forgotten, Keep, forget_records, forget_sent_messages};
use tokio_postgres::Client;

use crate::engine::bed::{Bed, LIMIT};
use crate::support::wait_until;

const KEEP: Keep = Keep {
    outcome_days: 30,
    history_days: 20,
    dead_letter_days: 10,
    operation_days: 40,
};

async fn forget(client: &Client, limit: i32) -> Forgotten {
    forget_records(client, KEEP, limit).await.unwrap()
}

/// Outcomes of lane 1 from seq `first` on, so many days old.
async fn outcomes(bed: &Bed, first: i64, count: i64, days: i32) {
    bed.client
        .execute(
            "INSERT INTO lanekeeper.outcome (lane_id, seq, kind, settled_at)
             SELECT 1, n, 'dropped', clock_timestamp() - $3::int * interval '1 day'
             FROM generate_series($1::bigint, $1 + $2 - 1) AS n",
            &[&first, &count, &days],
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn each_kind_of_record_goes_after_its_own_time_and_not_before() {
    let bed = Bed::new().await;
    outcomes(&bed, 1, 1, 29).await;
    outcomes(&bed, 2, 1, 31).await;
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.history (lane_id, from_seq, to_seq, attempts, worker_id, settled_at)
             SELECT 1, d, d, 0, 1, clock_timestamp() - d * interval '1 day' FROM generate_series(19, 21, 2) AS d;
             INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts, crashes,
                                          error, died_at, resolution, resolved_at)
             SELECT 1, d, gen_random_uuid(), 'step', '1', clock_timestamp(), 1, 0, 'no',
                    clock_timestamp() - interval '100 days',
                    CASE WHEN d > 0 THEN 'dropped' END,
                    CASE WHEN d > 0 THEN clock_timestamp() - d * interval '1 day' END
             FROM unnest(ARRAY[0, 9, 11]) AS d;
             INSERT INTO lanekeeper.operation (action, seq, done_at)
             SELECT 'retry', d, clock_timestamp() - d * interval '1 day' FROM unnest(ARRAY[41, 39]) AS d",
        )
        .await
        .unwrap();
    let forgotten = forget(&bed.client, 100).await;
    let expected = Forgotten {
        outcomes: 1,
        histories: 1,
        dead_letters: 1,
        operations: 1,
    };
    assert_eq!(forgotten, expected);
    assert_eq!(forget(&bed.client, 100).await, Forgotten::default());
    let left = "SELECT (SELECT sum(seq) FROM lanekeeper.outcome)::bigint * 10000
                     + (SELECT sum(from_seq) FROM lanekeeper.history)::bigint * 100
                     + (SELECT sum(seq) FROM lanekeeper.dead)::bigint";
    assert_eq!(
        bed.count(left).await,
        11_909,
        "one each, and the dead letter that waits for an operator"
    );
    let operations = "SELECT sum(seq)::bigint FROM lanekeeper.operation";
    assert_eq!(bed.count(operations).await, 39);
}

#[tokio::test]
async fn an_outcome_stays_as_long_as_its_event() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    bed.client
        .batch_execute(
            "SELECT lanekeeper.create_event_partition(current_date - 50);
             UPDATE lanekeeper.event SET day = current_date - 50;
             UPDATE lanekeeper.progress SET cursor = 1",
        )
        .await
        .unwrap();
    bed.days_moved().await;
    outcomes(&bed, 1, 1, 50).await;
    let state = "SELECT count(*) FROM lanekeeper.message WHERE state = 'dropped'";
    assert_eq!(bed.count(state).await, 1);
    assert_eq!(forget(&bed.client, 100).await, Forgotten::default());
    assert_eq!(bed.count(state).await, 1);
    wait_until(LIMIT, "its day goes", async || {
        bed.count("SELECT partitions_dropped FROM lanekeeper.maintain_log(7, 30)")
            .await
            == 1
    })
    .await;
    assert_eq!(forget(&bed.client, 100).await.outcomes, 1);
}

#[tokio::test]
async fn a_turn_is_bounded_and_one_process_is_at_it() {
    let bed = Bed::new().await;
    outcomes(&bed, 1, 25, 100).await;
    let turn = forget(&bed.client, 10).await;
    assert!(turn.outcomes == 10 && turn.reached(10));
    let other = bed.db.connect().await;
    other
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(lanekeeper.maintenance_lock(2))")
        .await
        .unwrap();
    assert_eq!(forget(&bed.client, 10).await, Forgotten::default());
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(forget(&bed.client, 10).await.outcomes, 10);
    let last = forget(&bed.client, 10).await;
    assert!(last.outcomes == 5 && !last.reached(10));
}

#[tokio::test]
async fn messages_that_were_sent_are_forgotten_by_age_in_bounded_turns() {
    let bed = Bed::new().await;
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.sent_message (subscription_id, session_id, chat, key, part, reference, sent_at)
             SELECT 1, 1, 'chat', 'k' || n, 0, 'm', clock_timestamp() - (n - 0.5) * interval '1 day'
             FROM generate_series(1, 40) AS n",
        )
        .await
        .unwrap();
    for forgotten in [7, 3, 0] {
        let turn = forget_sent_messages(&bed.client, 30, 7).await.unwrap();
        assert_eq!(turn, forgotten);
    }
    let left = "SELECT count(*) FROM lanekeeper.sent_message";
    assert_eq!(bed.count(left).await, 30);
}

/// It used to forget ten thousand keys every ten minutes, and so fell behind 17 hook calls a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_forgets_everything_that_is_old_in_one_round() {
    let bed = Bed::new().await;
    outcomes(&bed, 1, 12_000, 100).await;
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.dedupe (stream_id, key, session_id, seq, message_id, created_at)
             SELECT 1, 'k' || n, 1, n, gen_random_uuid(), clock_timestamp() - interval '31 days'
             FROM generate_series(1, 25000) AS n",
        )
        .await
        .unwrap();
    let worker = bed.worker_with(WorkerSettings::default()).await;
    wait_until(LIMIT, "nothing old is left", async || {
        bed.count(
            "SELECT (SELECT count(*) FROM lanekeeper.dedupe) + (SELECT count(*) FROM lanekeeper.outcome)",
        )
        .await
            == 0
    })
    .await;
    worker.stop().await;
}
