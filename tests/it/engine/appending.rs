//! I1, A4, A7: commit order without gaps, at every isolation level, from any number of producers.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::bed::{Bed, LIMIT, enqueue};
use crate::support::wait_until;

async fn seqs(bed: &Bed, session: &str) -> Vec<i64> {
    bed.client
        .query(
            "SELECT e.seq FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id)
             WHERE s.name = $1 ORDER BY e.seq",
            &[&session],
        )
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_producers_that_commit_in_reverse_order_leave_no_gap_and_lose_nothing() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    let (one, two) = (bed.db.connect().await, bed.db.connect().await);
    one.batch_execute("BEGIN").await.unwrap();
    two.batch_execute("BEGIN").await.unwrap();
    // Different sessions first, so that the calls interleave; then the same one.
    assert_eq!(enqueue(&one, "a", "first").await, 1);
    assert_eq!(enqueue(&two, "b", "first").await, 1);
    let waiting = tokio::spawn(async move {
        let seq = enqueue(&two, "a", "second").await;
        two.batch_execute("COMMIT").await.unwrap();
        seq
    });
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%enqueue%'";
    wait_until(
        LIMIT,
        "the second producer waits for the first",
        async || bed.count(waits).await == 1,
    )
    .await;
    one.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(
        waiting.await.unwrap(),
        1,
        "what was rolled back leaves no gap"
    );
    bed.drained().await;
    assert_eq!(seqs(&bed, "a").await, [1]);
    assert_eq!(bed.accepted()["a"], [1]);
    assert_eq!(bed.accepted()["b"], [1]);
    worker.stop().await;
}

/// The session is there already, so that nothing but its append lock keeps them apart.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_waits_for_another_of_the_same_session() {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    let bulk = "SELECT seq FROM lanekeeper.enqueue_many('runs',
                    '[{\"session\": \"s1\", \"event_type\": \"step\", \"payload\": 1}]')";
    let single = "SELECT seq FROM lanekeeper.enqueue('runs', 's1', 'step', '1')";
    let mut newest = 1;
    for (call, end) in [
        (single, "COMMIT"),
        (single, "ROLLBACK"),
        (bulk, "COMMIT"),
        (bulk, "ROLLBACK"),
    ] {
        let (first, second) = (bed.db.connect().await, bed.db.connect().await);
        first.batch_execute("BEGIN").await.unwrap();
        let row = first.query_one(call, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), newest + 1);
        let waiting = tokio::spawn(async move {
            let row = second.query_one(call, &[]).await;
            row.map(|row| row.get::<_, i64>(0))
        });
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        wait_until(LIMIT, "the second waits for the first", async || {
            bed.count(waits).await == 1
        })
        .await;
        first.batch_execute(end).await.unwrap();
        newest += if end == "COMMIT" { 2 } else { 1 };
        assert_eq!(waiting.await.unwrap().unwrap(), newest, "{call}: {end}");
    }
    assert_eq!(seqs(&bed, "s1").await, (1..=newest).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_producer_transaction_delays_only_the_new_events_of_its_session() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    bed.enqueue("busy", "before").await;
    bed.drained().await;
    let open = bed.db.connect().await;
    open.batch_execute("BEGIN").await.unwrap();
    enqueue(&open, "busy", "uncommitted").await;
    bed.enqueue_bulk(20, 5).await;
    wait_until(LIMIT, "everything else is delivered", async || {
        bed.accepted().values().map(Vec::len).sum::<usize>() == 101
    })
    .await;
    open.batch_execute("COMMIT").await.unwrap();
    bed.drained().await;
    assert_eq!(bed.accepted()["busy"], [1, 2]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_under_an_open_append_does_not_spin() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    bed.enqueue("busy", "one").await;
    let open = bed.db.connect().await;
    open.batch_execute("BEGIN").await.unwrap();
    enqueue(&open, "busy", "uncommitted").await;
    wait_until(LIMIT, "the first event is settled", async || {
        bed.count("SELECT max(cursor) FROM lanekeeper.progress")
            .await
            == 1
    })
    .await;
    let version = "SELECT coalesce(max(id), 0) FROM lanekeeper.ready";
    let (before, since) = (bed.count(version).await, Instant::now());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let entries = bed.count(version).await - before;
    let took = since.elapsed();
    // One every 250 ms, and a few more quickly after one another to begin with. A loaded machine's two seconds are longer.
    let allowed = 8 + i64::try_from(took.as_millis()).unwrap() / 250;
    assert!(entries <= allowed, "{entries} entries written in {took:?}");
    open.batch_execute("COMMIT").await.unwrap();
    bed.drained().await;
    assert_eq!(bed.accepted()["busy"], [1, 2]);
    worker.stop().await;
}

async fn begin(client: &Client, level: &str) {
    client
        .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}"))
        .await
        .unwrap();
    // Takes the snapshot.
    client
        .query_one("SELECT count(*) FROM lanekeeper.event", &[])
        .await
        .unwrap();
}

async fn try_enqueue(client: &Client, session: &str) -> Result<i64, SqlState> {
    client
        .query_one(
            "SELECT seq FROM lanekeeper.enqueue('runs', $1, 'step', '{}')",
            &[&session],
        )
        .await
        .map(|row| row.get(0))
        .map_err(|error| error.code().cloned().unwrap())
}

#[tokio::test]
async fn a_stale_snapshot_is_a_serialization_failure_and_never_a_gap_or_a_duplicate() {
    let bed = Bed::new().await;
    bed.enqueue("old", "step").await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for session in ["old", "new", "newer"] {
            let name = format!("{session} {level}");
            if session == "old" {
                bed.enqueue(&name, "step").await;
            }
            let stale = bed.db.connect().await;
            begin(&stale, level).await;
            bed.enqueue(&name, "step").await;
            let refused = try_enqueue(&stale, &name).await.unwrap_err();
            assert_eq!(refused, SqlState::T_R_SERIALIZATION_FAILURE, "{name}");
            stale.batch_execute("ROLLBACK").await.unwrap();
            // Tried again, as such a failure asks for.
            begin(&stale, level).await;
            try_enqueue(&stale, &name).await.unwrap();
            try_enqueue(&stale, &name).await.unwrap();
            stale.batch_execute("COMMIT").await.unwrap();
            let seqs = seqs(&bed, &name).await;
            assert_eq!(
                seqs,
                (1..=i64::try_from(seqs.len()).unwrap()).collect::<Vec<_>>(),
                "{name}"
            );
        }
    }
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
}

#[tokio::test]
async fn a_stale_snapshot_across_midnight_is_refused_too() {
    let bed = Bed::new().await;
    bed.client
        .batch_execute(
            "SELECT lanekeeper.create_event_partition(current_date - d) FROM generate_series(1, 2) AS d;
             SELECT lanekeeper.enqueue('runs', 's1', 'step', '{}');
             UPDATE lanekeeper.event SET day = current_date - 2",
        )
        .await
        .unwrap();
    bed.days_moved().await;
    let stale = bed.db.connect().await;
    begin(&stale, "REPEATABLE READ").await;
    bed.enqueue("s1", "step").await;
    // The unseen event, moved to the day between: no key of today's conflicts with it.
    bed.client
        .batch_execute("UPDATE lanekeeper.event SET day = current_date - 1 WHERE seq = 2")
        .await
        .unwrap();
    bed.days_moved().await;
    let refused = try_enqueue(&stale, "s1").await.unwrap_err();
    assert_eq!(refused, SqlState::T_R_SERIALIZATION_FAILURE);
}

#[tokio::test]
async fn a_rolled_back_savepoint_leaves_no_gap() {
    let bed = Bed::new().await;
    bed.client.batch_execute("BEGIN").await.unwrap();
    bed.enqueue("s1", "kept").await;
    bed.client.batch_execute("SAVEPOINT a").await.unwrap();
    assert_eq!(bed.enqueue("s1", "gone").await, 2);
    bed.client.batch_execute("ROLLBACK TO a").await.unwrap();
    assert_eq!(bed.enqueue("s1", "kept").await, 2);
    bed.client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(seqs(&bed, "s1").await, [1, 2]);
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_event_whose_savepoint_was_rolled_back_leaves_the_session_usable() {
    let bed = Bed::new().await;
    let other = bed.db.connect().await;
    bed.client
        .batch_execute("BEGIN; SAVEPOINT a")
        .await
        .unwrap();
    bed.enqueue("s1", "gone").await;
    bed.client.batch_execute("ROLLBACK TO a").await.unwrap();
    assert_eq!(
        enqueue(&other, "s1", "step").await,
        1,
        "its lock is free again"
    );
    assert_eq!(bed.enqueue("s1", "step").await, 2);
    bed.client.batch_execute("COMMIT").await.unwrap();
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_calls_that_create_the_same_sessions_in_different_orders_do_not_deadlock() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let url = bed.db.url().to_owned();
            tokio::spawn(async move {
                let client = crate::support::connect(&url).await;
                for round in 0..5 {
                    client
                        .execute(
                            "SELECT lanekeeper.enqueue_many('runs', (
                                 SELECT jsonb_agg(jsonb_build_object('session', 's' || s, 'event_type', 'step', 'payload', 1)
                                                  ORDER BY hashint8(s + $1::bigint))
                                 FROM generate_series($2::bigint, $2::bigint + 99) AS s))",
                            &[&i64::from(producer), &i64::from(round * 50)],
                        )
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.unwrap();
    }
    bed.drained().await;
    let total: usize = bed.accepted().values().map(Vec::len).sum();
    assert_eq!(total, 4 * 5 * 100);
    for (session, seqs) in bed.accepted() {
        assert_eq!(
            seqs,
            (1..=i64::try_from(seqs.len()).unwrap()).collect::<Vec<_>>(),
            "{session}"
        );
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_repeated_dedupe_key_or_message_id_is_skipped_and_says_so() {
    let bed = Bed::new().await;
    let call = "SELECT message_id::text, seq, duplicate FROM lanekeeper.enqueue('runs', $1, 'step', '{}', dedupe_key => $2)";
    let first = bed.client.query_one(call, &[&"s1", &"k"]).await.unwrap();
    let again = bed.client.query_one(call, &[&"s2", &"k"]).await.unwrap();
    assert_eq!(first.get::<_, String>(0), again.get::<_, String>(0));
    assert!(!first.get::<_, bool>(2) && again.get::<_, bool>(2));
    let many = "SELECT array_agg(duplicate), array_agg(seq) FROM lanekeeper.enqueue_many('runs', '[
        {\"session\": \"s3\", \"event_type\": \"step\", \"payload\": 1, \"message_id\": \"019fb3b4-9a94-7481-96a6-971fcaa066da\"},
        {\"session\": \"s3\", \"event_type\": \"step\", \"payload\": 1, \"message_id\": \"019fb3b4-9a94-7481-96a6-971fcaa066da\"},
        {\"session\": \"s3\", \"event_type\": \"step\", \"payload\": 1, \"dedupe_key\": \"k\"},
        {\"session\": \"s3\", \"event_type\": \"step\", \"payload\": 1}]')";
    let row = bed.client.query_one(many, &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<bool>>(0), [false, true, true, false]);
    assert_eq!(row.get::<_, Vec<i64>>(1), [1, 1, 1, 2]);
}

#[tokio::test]
async fn refusals_carry_their_sqlstate_and_enqueue_nothing() {
    let bed = Bed::new().await;
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    for (call, state) in [
        ("SELECT lanekeeper.enqueue('nowhere', 's1', 't', '{}')".to_owned(), "LK003"),
        (format!("SELECT lanekeeper.enqueue('runs', 's1', 't', '{large}')"), "LK005"),
        ("SELECT lanekeeper.enqueue('runs', '', 't', '{}')".to_owned(), "LK006"),
        ("SELECT lanekeeper.enqueue('runs', 's1', 't', NULL)".to_owned(), "LK006"),
        ("SELECT lanekeeper.enqueue('runs', 's1', 't', '{}', headers => '[]')".to_owned(), "LK006"),
        ("SELECT lanekeeper.enqueue('runs', 's1', 't', '{}', priority => 101::smallint)".to_owned(), "LK006"),
        ("SELECT lanekeeper.enqueue_many('runs', '{}')".to_owned(), "LK006"),
        ("SELECT lanekeeper.enqueue_many('runs', '[{\"session\": \"s1\", \"event_type\": \"t\", \"payload\": 1}, {\"event_type\": \"t\"}]')".to_owned(), "LK006"),
        (format!("SELECT lanekeeper.enqueue_many('runs', '[{{\"session\": \"s1\", \"event_type\": \"t\", \"payload\": {large}}}]')"), "LK005"),
    ] {
        let error = bed.client.simple_query(&call).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), state, "{}", &call[..call.len().min(90)]);
    }
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.event").await, 0);
}

#[tokio::test]
async fn a_session_continues_its_numbers_after_its_partition_was_dropped() {
    let bed = Bed::bare().await;
    bed.client
        .batch_execute(
            "SELECT lanekeeper.create_event_partition(current_date - 9);
             SELECT lanekeeper.enqueue('runs', 's1', 'step', '1');
             SELECT lanekeeper.enqueue('runs', 's1', 'step', '2');
             UPDATE lanekeeper.event SET day = current_date - 9",
        )
        .await
        .unwrap();
    bed.days_moved().await;
    wait_until(LIMIT, "the day is dropped", async || {
        bed.count("SELECT partitions_dropped FROM lanekeeper.maintain_log(7, 30)")
            .await
            == 1
    })
    .await;
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.event").await, 0);
    assert_eq!(bed.enqueue("s1", "step").await, 3);
}

#[tokio::test]
async fn a_partition_that_a_lane_still_needs_is_kept() {
    let bed = Bed::new().await;
    bed.client
        .batch_execute(
            "SELECT lanekeeper.create_event_partition(current_date - 9);
             SELECT lanekeeper.enqueue('runs', 's1', 'step', '1');
             UPDATE lanekeeper.event SET day = current_date - 9;
             UPDATE lanekeeper.progress SET cursor_day = current_date - 9",
        )
        .await
        .unwrap();
    bed.days_moved().await;
    let row = bed
        .client
        .query_one(
            "SELECT partitions_dropped, partitions_kept FROM lanekeeper.maintain_log(7, 30)",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (0, 1));
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1]);
    worker.stop().await;
}

#[tokio::test]
async fn a_producer_makes_the_partition_that_nobody_made_ahead() {
    let bed = Bed::new().await;
    let name: String = bed
        .client
        .query_one(
            "SELECT 'event_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    bed.client
        .batch_execute(&format!("DROP TABLE lanekeeper.{name}"))
        .await
        .unwrap();
    assert_eq!(bed.enqueue("s1", "step").await, 1);
    assert_eq!(
        bed.count(&format!("SELECT count(*) FROM lanekeeper.{name}"))
            .await,
        1
    );
}

#[tokio::test]
async fn an_append_of_the_evening_makes_the_next_days_partition_and_never_waits_for_it() {
    let bed = Bed::new().await;
    let ahead = |at: &str| format!("SELECT lanekeeper.create_event_partition_ahead('{at}')");
    let partitions = "SELECT count(*) FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
                      WHERE i.inhparent = 'lanekeeper.event'::regclass AND c.relname LIKE 'event_20%'
                        AND right(c.relname, 4) IN ('0502', '0102')";
    // The transaction that calls it began long before these instants: before the last hour it leaves it to others.
    for at in [
        "2099-05-01 21:59:59Z",
        "2099-05-01 22:59:59Z",
        "2001-01-01 21:59:59Z",
    ] {
        bed.client.batch_execute(&ahead(at)).await.unwrap();
    }
    assert_eq!(bed.count(partitions).await, 0);
    // And after these.
    bed.client
        .batch_execute(&ahead("2001-01-01 22:00:00Z"))
        .await
        .unwrap();
    assert_eq!(bed.count(partitions).await, 1);
    let open = bed.db.connect().await;
    open.batch_execute("BEGIN").await.unwrap();
    open.batch_execute(&ahead("2099-05-01 23:00:00Z"))
        .await
        .unwrap();
    let impatient = format!(
        "SET statement_timeout = '5s'; {}",
        ahead("2099-05-01 23:00:01Z")
    );
    bed.client.batch_execute(&impatient).await.unwrap();
    assert_eq!(bed.enqueue("s1", "step").await, 1);
    open.batch_execute("COMMIT").await.unwrap();
    assert_eq!(bed.count(partitions).await, 2);
}

/// It would keep others from creating it until its transaction ends.
#[tokio::test]
async fn an_append_that_cannot_make_the_next_days_partition_keeps_no_lock_of_it() {
    let bed = Bed::new().await;
    let blocker = bed.db.connect().await;
    blocker
        .batch_execute("BEGIN; LOCK TABLE lanekeeper.event IN SHARE UPDATE EXCLUSIVE MODE")
        .await
        .unwrap();
    bed.client
        .batch_execute(
            "BEGIN; SELECT lanekeeper.create_event_partition_ahead('2099-05-01 23:00:00Z')",
        )
        .await
        .unwrap();
    let free = "SELECT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(1))::int::bigint";
    let other = bed.db.connect().await;
    assert_eq!(
        other.query_one(free, &[]).await.unwrap().get::<_, i64>(0),
        1
    );
    bed.client.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_session_that_goes_on_all_day_makes_the_next_days_partition_too() {
    let bed = Bed::new().await;
    bed.client
        .batch_execute(
            "CREATE TABLE public.called (at timestamptz);
             CREATE OR REPLACE FUNCTION lanekeeper.create_event_partition_ahead(p_now timestamptz) RETURNS void
             LANGUAGE sql AS $$ INSERT INTO public.called VALUES (p_now) $$",
        )
        .await
        .unwrap();
    for _ in 0..130 {
        bed.enqueue("s1", "step").await;
    }
    assert_eq!(
        bed.count("SELECT count(*) FROM public.called").await,
        1 + 2,
        "its first event, the 64th and the 128th"
    );
    bed.enqueue_bulk(1, 1).await;
    // From 22:00 UTC on; before, a bulk call asks for nothing that the function would not do.
    let evening = bed
        .count(
            "SELECT (date_part('hour', clock_timestamp() AT TIME ZONE 'UTC') >= 22)::int::bigint",
        )
        .await;
    assert_eq!(
        bed.count("SELECT count(*) FROM public.called").await,
        3 + evening
    );
}

/// PostgreSQL 16 and newer sort the input of one aggregate for all of a query: the events of a bulk call
/// must not follow.
#[tokio::test]
async fn a_bulk_call_of_mixed_sessions_puts_every_event_into_its_own() {
    let bed = Bed::new().await;
    bed.client
        .batch_execute(
            "SELECT lanekeeper.enqueue_many('runs', (
                 SELECT jsonb_agg(jsonb_build_object('session', 's' || n * 5 % 7, 'event_type', 'step',
                                                     'payload', 's' || n * 5 % 7, 'priority', 0) ORDER BY n)
                 FROM generate_series(1, 200) AS n))",
        )
        .await
        .unwrap();
    let astray =
        "SELECT count(*) FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id)
                  WHERE e.payload::jsonb #>> '{}' <> s.name";
    assert_eq!(bed.count(astray).await, 0);
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.event").await,
        200
    );
}
