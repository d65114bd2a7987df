//! The recent partitions of the log, and those before them: no read misses an event in either (I1, I13), and a read
//! that needs only recent events does not pay for the others (I9).

use jiff::civil::Date;
use lanekeeper_engine::WorkerSettings;
use lanekeeper_postgres::claim::ScanStart;
use lanekeeper_postgres::fetch::{self, FetchedEvent, Position};
use lanekeeper_postgres::maintenance::move_recent;
use lanekeeper_postgres::settle::{Operation, Settled};

use super::connection::Connection;
use crate::engine::bed::{Bed, enqueue};

/// Days of the log.
const DAYS: i32 = 40;

/// A log of many days, in which session s1 has an event of each of these days before today.
async fn old_log(days_ago: &[i32]) -> Bed {
    let bed = Bed::new().await;
    for _ in days_ago {
        bed.enqueue("s1", "step").await;
    }
    bed.client
        .batch_execute(&format!(
            "SELECT lanekeeper.create_event_partition(current_date - d) FROM generate_series(1, {DAYS}) AS d;
             UPDATE lanekeeper.event SET day = current_date - ('{{{}}}'::int[])[seq];
             UPDATE lanekeeper.progress SET cursor_day = '2000-01-01'",
            days_ago.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
        ))
        .await
        .unwrap();
    bed.days_moved().await;
    bed
}

/// As if nobody had kept house for so many days.
async fn begins(bed: &Bed, days_ago: i32) {
    bed.client
        .batch_execute(&format!(
            "DO $$ DECLARE v_since date := current_date - {days_ago}; BEGIN
                 EXECUTE format('CREATE OR REPLACE VIEW lanekeeper.recent_since AS SELECT %L::date AS since', v_since);
                 EXECUTE format('CREATE OR REPLACE VIEW lanekeeper.recent_event AS
                     SELECT e.session_id, e.seq, e.day, e.priority, e.size, e.created_at, e.message_id, e.event_type,
                            e.payload, e.headers
                     FROM lanekeeper.event AS e WHERE e.day >= %L::date', v_since);
             END $$"
        ))
        .await
        .unwrap();
}

fn seqs(batch: &[FetchedEvent]) -> Vec<i64> {
    batch.iter().map(|event| event.seq).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_many_days_is_delivered_in_order() {
    let days: Vec<i32> = (0..20).rev().collect();
    let bed = old_log(&days).await;
    // In groups of three, so that the lane settles between the days and goes on.
    let worker = bed
        .worker_with(WorkerSettings {
            batch: 3,
            ..WorkerSettings::default()
        })
        .await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], (1..=20).collect::<Vec<i64>>());
    worker.stop().await;
}

#[tokio::test]
async fn a_lane_is_not_idle_while_it_has_events_from_before_the_recent_part() {
    let bed = old_log(&[30, 20]).await;
    let mut holder = Connection::open(&bed).await;
    let held = holder.claim(ScanStart::START, 1).await.lanes;
    let settled = holder.pass_one(&held[0], Operation::Finish).await;
    assert_eq!(settled, [Settled::More]);
}

#[tokio::test]
async fn a_fetch_sees_what_is_before_the_recent_part_also_when_that_moves() {
    let bed = old_log(&[30, 20, 3]).await;
    bed.enqueue("s2", "step").await;
    begins(&bed, 35).await;
    let client = bed.db.connect().await;
    let fetch = fetch::prepare(&client).await.unwrap();
    let today: Date = client
        .query_one("SELECT current_date", &[])
        .await
        .unwrap()
        .get(0);
    let at = |session_id, days_ago: i32| Position {
        session_id,
        cursor: 0,
        cursor_day: today.checked_sub(jiff::Span::new().days(days_ago)).unwrap(),
        subscription_id: 1,
    };
    for since in [35, 10, 1, 35] {
        begins(&bed, 35).await;
        let knows_less = fetch::prepare(&client).await.unwrap();
        begins(&bed, since).await;
        let positions = [at(1, 30), at(2, 0)];
        let batches = fetch::fetch(&client, &fetch, &positions, 10, 4096)
            .await
            .unwrap();
        assert_eq!(seqs(&batches[0]), [1, 2, 3], "since {since} days");
        assert_eq!(seqs(&batches[1]), [1], "since {since} days");
        // Of which the recent part may have nothing: that is no answer either.
        let batches = fetch::fetch(&client, &knows_less, &positions[..1], 10, 4096)
            .await
            .unwrap();
        assert_eq!(seqs(&batches[0]), [1, 2, 3], "since {since} days");
        // Older than what it knows of, between that and what is true, and recent.
        let positions = [at(1, 40), at(1, 12), at(2, 0)];
        let batches = fetch::fetch(&client, &knows_less, &positions, 10, 4096)
            .await
            .unwrap();
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1, 1]);
    }
}

#[tokio::test]
async fn a_session_that_comes_back_goes_on_where_it_was() {
    let bed = old_log(&[30, 20]).await;
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    let newest = "SELECT current_date - newest_day FROM lanekeeper.session";
    let days: i32 = bed.client.query_one(newest, &[]).await.unwrap().get(0);
    assert_eq!(days, 0);
    // One that nobody wrote a day down for, as before the column was there.
    bed.client
        .batch_execute(
            "DELETE FROM lanekeeper.event WHERE seq = 3;
             UPDATE lanekeeper.session SET newest_day = NULL",
        )
        .await
        .unwrap();
    assert_eq!(bed.enqueue("s1", "step").await, 3);
    let days: i32 = bed.client.query_one(newest, &[]).await.unwrap().get(0);
    assert_eq!(days, 0);
}

#[tokio::test]
async fn an_idle_lane_of_long_ago_is_claimed_from_the_day_of_its_new_event() {
    for bulk in [false, true] {
        let bed = old_log(&[30, 20]).await;
        bed.client
            .batch_execute(
                "DELETE FROM lanekeeper.ready;
                 UPDATE lanekeeper.progress SET cursor = 2, cursor_day = current_date - 20",
            )
            .await
            .unwrap();
        if bulk {
            let events = r#"[{"session": "s1", "event_type": "step", "payload": 1}]"#;
            bed.client
                .execute(
                    &format!("SELECT lanekeeper.enqueue_many('runs', '{events}')"),
                    &[],
                )
                .await
                .unwrap();
        } else {
            bed.enqueue("s1", "step").await;
        }
        let mut holder = Connection::open(&bed).await;
        let held = holder.claim(ScanStart::START, 1).await.lanes;
        let days: i32 = bed
            .client
            .query_one("SELECT current_date - $1::date", &[&held[0].cursor_day])
            .await
            .unwrap()
            .get(0);
        assert_eq!(days, 0, "bulk: {bulk}");
    }
}

/// The lane is behind: a day in the entry would have it pass the events of the days before.
#[tokio::test]
async fn a_lane_with_an_old_backlog_is_claimed_from_its_own_day() {
    let bed = old_log(&[30, 20]).await;
    bed.client
        .query_one(
            "SELECT seq FROM lanekeeper.enqueue('runs', 's1', 'step', '1', priority => 5::smallint)",
            &[],
        )
        .await
        .unwrap();
    let mut holder = Connection::open(&bed).await;
    let held = holder.claim(ScanStart::START, 1).await.lanes;
    assert_eq!(held[0].entry.priority, 5);
    assert_eq!(held[0].cursor_day, Date::new(2000, 1, 1).unwrap());
}

#[tokio::test]
async fn the_recent_part_moves_where_nobody_is_in_the_way_and_waits_for_nobody() {
    let bed = Bed::new().await;
    // Moved by the migration, which may have been yesterday's.
    move_recent(&bed.client).await.unwrap();
    assert!(!move_recent(&bed.client).await.unwrap());
    for days_ago in [5, -3] {
        begins(&bed, days_ago).await;
        let producer = bed.db.connect().await;
        producer.batch_execute("BEGIN").await.unwrap();
        enqueue(&producer, "s1", "step").await;
        assert!(
            !move_recent(&bed.client).await.unwrap(),
            "a producer has read it"
        );
        producer.batch_execute("COMMIT").await.unwrap();
        assert!(move_recent(&bed.client).await.unwrap());
        let since = "SELECT (current_date - since)::bigint FROM lanekeeper.recent_since";
        assert_eq!(bed.count(since).await, 1);
    }
}

/// The clock was ahead when the session got its newest event, and is right again.
#[tokio::test]
async fn the_day_of_a_sessions_events_never_goes_back() {
    for bulk in [false, true] {
        let bed = old_log(&[0]).await;
        bed.client
            .batch_execute(
                "SELECT lanekeeper.create_event_partition(current_date + 3);
                 UPDATE lanekeeper.event SET day = current_date + 3",
            )
            .await
            .unwrap();
        bed.days_moved().await;
        begins(&bed, -4).await;
        if bulk {
            let events = r#"[{"session": "s1", "event_type": "step", "payload": 1}]"#;
            bed.client
                .execute(
                    &format!("SELECT lanekeeper.enqueue_many('runs', '{events}')"),
                    &[],
                )
                .await
                .unwrap();
        } else {
            bed.enqueue("s1", "step").await;
        }
        let days = "SELECT count(*) FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id)
                    WHERE e.day = current_date + 3 AND s.newest_day = e.day";
        assert_eq!(bed.count(days).await, 2, "bulk: {bulk}");
        let worker = bed.worker().await;
        bed.drained().await;
        assert_eq!(bed.accepted()["s1"], [1, 2], "bulk: {bulk}");
        worker.stop().await;
    }
}

/// Partitions of days before the recent part that this transaction has locked. Tomorrow's exists from 23:00 UTC on
/// and may be locked like today's.
const LOCKED: &str = "SELECT count(*) FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
    WHERE l.pid = pg_backend_pid() AND c.relname LIKE 'event\\_%' AND c.relkind = 'r'
      AND c.relname < (SELECT 'event_' || to_char(since, 'YYYYMMDD') FROM lanekeeper.recent_since)";

#[tokio::test]
async fn appends_settlements_and_fetches_lock_no_partition_of_the_past() {
    let bed = old_log(&[20, 0]).await;
    let mut holder = Connection::open(&bed).await;
    let fetch = fetch::prepare(&holder.client).await.unwrap();
    for round in 0..8 {
        // The first rounds make the plans.
        let session = format!("s{}", round % 2 + 2);
        holder.client.batch_execute("BEGIN").await.unwrap();
        enqueue(&holder.client, &session, "step").await;
        let locked: i64 = holder.client.query_one(LOCKED, &[]).await.unwrap().get(0);
        assert_eq!(locked, 0, "an append locks partitions of the past");
        holder.client.batch_execute("COMMIT; BEGIN").await.unwrap();
        let events = format!(r#"[{{"session": "{session}", "event_type": "step", "payload": 1}}]"#);
        holder
            .client
            .execute(
                &format!("SELECT lanekeeper.enqueue_many('runs', '{events}')"),
                &[],
            )
            .await
            .unwrap();
        let locked: i64 = holder.client.query_one(LOCKED, &[]).await.unwrap().get(0);
        assert_eq!(locked, 0, "a bulk append locks partitions of the past");
        holder.client.batch_execute("COMMIT").await.unwrap();

        let held = holder.claim(ScanStart::START, 10).await.lanes;
        let lanes: Vec<_> = held
            .into_iter()
            .filter(|lane| *lane.session == session)
            .collect();
        let position = Position {
            session_id: lanes[0].session_id,
            cursor: lanes[0].cursor,
            cursor_day: lanes[0].cursor_day,
            subscription_id: 1,
        };
        holder.client.batch_execute("BEGIN").await.unwrap();
        let batches = fetch::fetch(&holder.client, &fetch, &[position], 10, 4096)
            .await
            .unwrap();
        assert_eq!(batches[0].len(), 2);
        let locked: i64 = holder.client.query_one(LOCKED, &[]).await.unwrap().get(0);
        assert_eq!(locked, 0, "a fetch locks partitions of the past");
        holder.client.batch_execute("COMMIT; BEGIN").await.unwrap();
        let mut lane = lanes[0].clone();
        lane.cursor += 1;
        let settled = holder.pass_one(&lane, Operation::Finish).await;
        assert_eq!(settled, [Settled::Idle]);
        let locked: i64 = holder.client.query_one(LOCKED, &[]).await.unwrap().get(0);
        assert_eq!(locked, 0, "a settlement locks partitions of the past");
        holder.client.batch_execute("COMMIT").await.unwrap();
        let unlock: Vec<i64> = lanes.iter().map(|lane| lane.lane_id).collect();
        holder.unlock(&unlock).await;
    }
}
