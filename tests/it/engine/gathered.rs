//! Appends of many callers in one transaction: the result of one call does not depend on the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lanekeeper_postgres::append::{AppendError, Enqueued, NewEvent};
use lanekeeper_postgres::appender::{Appender, AppenderError};
use lanekeeper_postgres::{Database, pool};
use tokio::time::timeout;

use super::bed::{Bed, LIMIT, enqueue};
use crate::support::wait_until;

/// Of the pool, as a worker has it for requests.
const CONNECTIONS: usize = 4;

fn appender(bed: &Bed) -> Arc<Appender> {
    let database: Database = bed.db.url().parse().unwrap();
    let pool = pool::build(&database, CONNECTIONS, Duration::from_secs(2)).unwrap();
    Arc::new(Appender::new(pool, database))
}

async fn append(
    appender: &Appender,
    session: &str,
    payload: &str,
) -> Result<Enqueued, AppenderError> {
    let event = NewEvent::new(session, "step", payload);
    let appended = appender.append("runs", &[event]).await?;
    assert_eq!(appended.len(), 1);
    Ok(appended[0])
}

/// In how many transactions the events were appended: what is of one has one xmin.
const TRANSACTIONS: &str = "SELECT count(DISTINCT xmin::text) FROM lanekeeper.event";

/// Backends that wait for a session.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Backends in whose appends [`slow_appends`] sleeps.
const ASLEEP: &str = "SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event = 'PgSleep'";

/// Appends of events of the type `slow` take so long.
async fn slow_appends(bed: &Bed, seconds: u32) {
    let trigger = format!(
        "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_catalog.pg_sleep({seconds}); RETURN NEW; END';
         CREATE TRIGGER slow BEFORE INSERT ON lanekeeper.event FOR EACH ROW
             WHEN (NEW.event_type = 'slow') EXECUTE FUNCTION public.slow()"
    );
    bed.client.batch_execute(&trigger).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_transactions_are_under_way_goes_together_with_the_next() {
    let bed = Bed::new().await;
    let appender = appender(&bed);
    slow_appends(&bed, 2).await;
    let slow = ["slow", "slow too"].map(|session| {
        let appender = Arc::clone(&appender);
        tokio::spawn(async move {
            let event = NewEvent::new(session, "slow", "1");
            appender.append("runs", &[event]).await
        })
    });
    let asleep = format!("SELECT count(*) FROM ({ASLEEP}) AS s");
    wait_until(LIMIT, "both are under way", async || {
        bed.count(&asleep).await == 2
    })
    .await;
    let calls = (0..40).map(|number| {
        let appender = Arc::clone(&appender);
        tokio::spawn(async move { append(&appender, &format!("s{number}"), "1").await })
    });
    for call in join_all(calls).await {
        assert_eq!(call.unwrap().unwrap().seq, 1);
    }
    for call in slow {
        assert_eq!(call.await.unwrap().unwrap().len(), 1);
    }
    let transactions = format!("{TRANSACTIONS} WHERE event_type = 'step'");
    assert!(bed.count(&transactions).await <= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_many_callers_append_at_once_is_there_once_and_delivered_in_order() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    let appender = appender(&bed);
    // Each caller has its place in three sessions that all share, and awaits each answer.
    let callers = (0..32).map(|caller| {
        let appender = Arc::clone(&appender);
        tokio::spawn(async move {
            let mut seqs: BTreeMap<String, Vec<i64>> = BTreeMap::new();
            for number in 0..12 {
                let session = format!("s{}", (caller + number) % 3);
                let payload = format!("[{caller},{number}]");
                let appended = append(&appender, &session, &payload).await.unwrap();
                assert!(!appended.duplicate);
                seqs.entry(session).or_default().push(appended.seq);
            }
            seqs
        })
    });
    let mut all: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for seqs in join_all(callers).await {
        for (session, seqs) in seqs.unwrap() {
            assert!(
                seqs.is_sorted(),
                "a caller's later call comes later: {seqs:?}"
            );
            all.entry(session).or_default().extend(seqs);
        }
    }
    for seqs in all.values_mut() {
        seqs.sort_unstable();
        assert_eq!(
            *seqs,
            (1..=128).collect::<Vec<_>>(),
            "each answer is of another event"
        );
    }
    bed.drained().await;
    for session in ["s0", "s1", "s2"] {
        assert_eq!(bed.accepted()[session], (1..=128).collect::<Vec<_>>());
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_refuses_nobody_elses_call() {
    let bed = Bed::new().await;
    let appender = appender(&bed);
    let calls = (0..40).map(|number| {
        let appender = Arc::clone(&appender);
        tokio::spawn(async move {
            let session = format!("s{number}");
            let stream = if number == 7 { "nowhere" } else { "runs" };
            let payload = if number == 11 { r#""\u0000""# } else { "1" };
            let events = [
                NewEvent::new(&session, "step", "0"),
                // All or none: the first of the call goes with the second.
                NewEvent::new(&session, "step", payload),
            ];
            (number, appender.append(stream, &events).await)
        })
    });
    for call in join_all(calls).await {
        let (number, appended) = call.unwrap();
        match (number, appended) {
            (7, Err(AppenderError::Append(error))) => {
                assert!(matches!(*error, AppendError::UnknownStream(_)), "{error:?}");
            }
            (11, Err(AppenderError::Append(error))) => {
                assert!(matches!(*error, AppendError::NulCharacter(_)), "{error:?}");
            }
            (7 | 11, other) => panic!("call {number}: {other:?}"),
            (_, appended) => {
                let seqs: Vec<i64> = appended.unwrap().iter().map(|one| one.seq).collect();
                assert_eq!(seqs, [1, 2], "call {number}");
            }
        }
    }
    let events = bed.count("SELECT count(*) FROM lanekeeper.event").await;
    assert_eq!(events, 38 * 2, "of what was refused nothing is there");
}

/// Without the bound on the wait the whole group, and with it the next ones, would wait for somebody's open transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_somebody_keeps_open_holds_up_only_its_own_calls() {
    let bed = Bed::new().await;
    let appender = appender(&bed);
    let somebody = bed.db.connect().await;
    somebody.batch_execute("BEGIN").await.unwrap();
    assert_eq!(enqueue(&somebody, "kept", "step").await, 1);
    assert_eq!(enqueue(&somebody, "kept too", "step").await, 1);

    let spawn = |session: String| {
        let appender = Arc::clone(&appender);
        tokio::spawn(async move { append(&appender, &session, "1").await })
    };
    let kept: Vec<_> = ["kept", "kept too", "kept", "kept"]
        .map(|session| spawn(session.to_owned()))
        .into();
    for round in 0..3 {
        let others = (0..30).map(|number| spawn(format!("free {number}")));
        for other in join_all(others).await {
            assert_eq!(other.unwrap().unwrap().seq, round + 1);
        }
    }
    assert!(kept.iter().all(|call| !call.is_finished()));
    assert_eq!(bed.count(WAITING).await, 2, "a connection for each session");

    somebody.batch_execute("ROLLBACK").await.unwrap();
    let mut seqs = Vec::new();
    for call in kept {
        seqs.push(timeout(LIMIT, call).await.unwrap().unwrap().unwrap().seq);
    }
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 1, 2, 3]);
}

/// Two processes create the same sessions at once, in groups that are as different as they come.
#[tokio::test(flavor = "multi_thread")]
async fn two_appenders_that_create_the_same_sessions_both_get_through() {
    let bed = Bed::new().await;
    let appenders = [appender(&bed), appender(&bed)];
    let calls = (0..400).map(|number: usize| {
        let appender = Arc::clone(&appenders[number % 2]);
        // One goes up, the other down.
        let session = if number.is_multiple_of(2) {
            number / 2
        } else {
            199 - number / 2
        };
        tokio::spawn(async move { append(&appender, &format!("s{session:03}"), "1").await })
    });
    for call in join_all(calls).await {
        call.unwrap().unwrap();
    }
    let sessions = "SELECT count(*) FROM (
        SELECT FROM lanekeeper.event GROUP BY session_id HAVING count(*) = 2 AND max(seq) = 2) AS s";
    assert_eq!(bed.count(sessions).await, 200);
}

/// They did not, once: whoever came while one waited went alone too, and kept the next one from going together.
#[tokio::test(flavor = "multi_thread")]
async fn what_waited_for_a_session_goes_together_when_it_is_free() {
    let bed = Bed::new().await;
    let appender = appender(&bed);
    let somebody = bed.db.connect().await;
    somebody.batch_execute("BEGIN").await.unwrap();
    assert_eq!(enqueue(&somebody, "hot", "step").await, 1);
    let calls: Vec<_> = (0..60)
        .map(|_| {
            let appender = Arc::clone(&appender);
            tokio::spawn(async move { append(&appender, "hot", "1").await })
        })
        .collect();
    // Long enough for all of them to have found it held.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(bed.count(WAITING).await, 1, "one waits for it");
    somebody.batch_execute("COMMIT").await.unwrap();
    let mut seqs = Vec::new();
    for call in calls {
        seqs.push(call.await.unwrap().unwrap().seq);
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (2..=61).collect::<Vec<_>>());
    assert!(bed.count(TRANSACTIONS).await < 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_under_a_group_leaves_each_call_told_so_and_the_next_ones_served() {
    let bed = Bed::new().await;
    let appender = appender(&bed);
    slow_appends(&bed, 20).await;
    let calls: Vec<_> = (0..20)
        .map(|number| {
            let appender = Arc::clone(&appender);
            tokio::spawn(async move {
                let session = format!("s{number}");
                let event = NewEvent::new(&session, "slow", "1");
                appender.append("runs", &[event]).await
            })
        })
        .collect();
    let ended = format!("SELECT count(pg_terminate_backend(pid)) FROM ({ASLEEP}) AS s");
    // Flight after flight: those that were gathered meanwhile take off when these are over.
    wait_until(LIMIT, "all calls are answered", async || {
        bed.client.execute(&ended, &[]).await.unwrap();
        calls.iter().all(tokio::task::JoinHandle::is_finished)
    })
    .await;
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(error.is_outcome_unknown(), "{error:?}");
    }
    assert_eq!(append(&appender, "s0", "1").await.unwrap().seq, 1);
}

/// The bound on the wait is of the group's transaction and not of the connection, on which others wait as long as they may.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_goes_alone_waits_as_long_as_its_connection_says() {
    let bed = Bed::new().await;
    let mut database: Database = bed.db.url().parse().unwrap();
    database = database.with(|driver| {
        driver.options("-c lock_timeout=1500ms");
    });
    // One connection for all: whatever a flight leaves on it, the call finds.
    let pool = pool::build(&database, 1, Duration::from_secs(2)).unwrap();
    let appender = Appender::new(pool, database);
    let somebody = bed.db.connect().await;
    somebody.batch_execute("BEGIN").await.unwrap();
    assert_eq!(enqueue(&somebody, "kept", "step").await, 1);
    let started_at = std::time::Instant::now();
    let refused = append(&appender, "kept", "1").await.unwrap_err();
    assert!(
        started_at.elapsed() >= Duration::from_millis(1_500),
        "{:?}",
        started_at.elapsed()
    );
    let AppenderError::Append(error) = refused else {
        panic!("{refused:?}")
    };
    let AppendError::Store(error) = &*error else {
        panic!("{error:?}")
    };
    assert_eq!(error.sqlstate(), Some("55P03"));
}

/// More than a group takes: it goes by the bulk call, and is all or none like any other.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_call_is_appended_in_its_order() {
    let bed = Bed::new().await;
    let appender = appender(&bed);
    let payloads: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let events: Vec<_> = payloads
        .iter()
        .map(|payload| NewEvent::new("s", "step", payload))
        .collect();
    let appended = appender.append("runs", &events).await.unwrap();
    let seqs: Vec<i64> = appended.iter().map(|one| one.seq).collect();
    assert_eq!(seqs, (1..=100).collect::<Vec<_>>());
    let in_order = "SELECT count(*) FROM lanekeeper.event WHERE payload = (seq - 1)::text";
    assert_eq!(bed.count(in_order).await, 100);
}
