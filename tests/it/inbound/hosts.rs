//! E5: lanes of host-bound subscriptions are delivered on the hosts of their sessions (I2, I13).

use std::time::Duration;

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::{Stopped, Worker, WorkerSettings};
use lanekeeper_postgres::host_route::{bind_session, finish_moving};
use tokio_postgres::Client;

use crate::engine::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

/// A bed whose subscription is host-bound.
pub async fn bed() -> Bed {
    let bed = Bed::with(&Sub {
        schedule_ms: vec![3_600_000],
        ..Sub::default()
    })
    .await;
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.subscription SET host_bound = true;
             INSERT INTO lanekeeper.host_route (subscription_id, host)
             SELECT s.subscription_id, h.host FROM lanekeeper.subscription AS s, unnest('{\"\",/}'::text[]) AS h (host)",
        )
        .await
        .unwrap();
    bed
}

/// A worker of this host.
async fn worker(bed: &Bed, fake: &Fake, host: &str) -> Worker {
    let settings = WorkerSettings {
        host_label: host.to_owned(),
        poll_floor: Duration::from_millis(50),
        ..WorkerSettings::default()
    };
    Bed::start(bed.db.url(), fake.clone(), settings).await
}

async fn bind(client: &Client, session: &str, host: Option<&str>) {
    let changed = bind_session(client, "runs", session, host).await.unwrap();
    assert!(changed, "{session} {host:?}");
}

/// Moves until no change is due, as workers do, and says how many lanes that were.
async fn moved(bed: &Bed) -> i64 {
    let mut lanes = 0;
    loop {
        let due = "UPDATE lanekeeper.host_change SET look_at = clock_timestamp()";
        bed.client.execute(due, &[]).await.unwrap();
        let turn = finish_moving(&bed.client, 10).await.unwrap();
        lanes += turn.lanes;
        if turn.lanes == 0 {
            return lanes;
        }
    }
}

async fn host(bed: &Bed, session: &str) -> String {
    let read =
        "SELECT r.host FROM lanekeeper.lane AS l JOIN lanekeeper.session AS s USING (session_id)
                JOIN lanekeeper.host_route AS r USING (route) WHERE s.name = $1";
    bed.client
        .query_one(read, &[&session])
        .await
        .unwrap()
        .get(0)
}

fn accepted(fake: &Fake) -> Vec<(String, i64)> {
    let accepted = fake.seen().accepted();
    accepted
        .into_iter()
        .map(|(session, seq)| (session.to_string(), seq))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_delivers_the_sessions_of_its_host_and_those_without_one() {
    let bed = bed().await;
    for (session, host) in [("s1", "one"), ("s2", "two"), ("s3", "three")] {
        bind(&bed.client, session, Some(host)).await;
    }
    for session in ["s1", "s2", "s3", "s4"] {
        bed.enqueue(session, "step").await;
    }
    let (one, two) = (Fake::new(), Fake::new());
    let workers = [
        worker(&bed, &one, "one").await,
        worker(&bed, &two, "two").await,
    ];
    wait_until(LIMIT, "three are delivered", async || {
        accepted(&one).len() + accepted(&two).len() == 3
    })
    .await;
    let entry = |session: &str| (session.to_owned(), 1);
    let other = |session: &str| accepted(&one).contains(&entry(session));
    assert!(other("s1") && !other("s2") && !other("s3"));
    assert!(accepted(&two).contains(&entry("s2")) && !accepted(&two).contains(&entry("s1")));
    assert_ne!(
        other("s4"),
        accepted(&two).contains(&entry("s4")),
        "by one of them"
    );
    assert_eq!(
        bed.undelivered().await,
        1,
        "that of the host without a worker"
    );
    bind(&bed.client, "s3", Some("two")).await;
    bed.drained().await;
    assert!(accepted(&two).contains(&entry("s3")));
    for worker in workers {
        assert_eq!(worker.stop().await, Stopped::Clean);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_one_slot_neither_route_of_a_worker_waits_for_the_other() {
    let bed = bed().await;
    let one_slot = "UPDATE lanekeeper.subscription SET concurrency = 1";
    bed.client.execute(one_slot, &[]).await.unwrap();
    for session in ["a", "b", "c"] {
        bind(&bed.client, session, Some("one")).await;
    }
    let worker = worker(&bed, &bed.fake, "one").await;
    for seq in 1..=20 {
        for session in ["a", "x", "b", "y", "c", "z"] {
            assert_eq!(bed.enqueue(session, "step").await, seq);
        }
    }
    bed.drained().await;
    bed.assert_exact(6, 20);
    assert_eq!(worker.stop().await, Stopped::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_being_delivered_is_moved_when_its_holder_lets_it_go() {
    let bed = bed().await;
    bind(&bed.client, "s", Some("one")).await;
    bed.enqueue("s", "step").await;
    let (one, two) = (Fake::new(), Fake::new());
    one.hold("s");
    let workers = [
        worker(&bed, &one, "one").await,
        worker(&bed, &two, "two").await,
    ];
    wait_until(LIMIT, "it is being delivered", async || {
        !one.seen().deliveries.is_empty()
    })
    .await;
    bind(&bed.client, "s", Some("two")).await;
    assert_eq!(moved(&bed).await, 0, "while it is held");
    bed.enqueue("s", "step").await;
    assert_eq!(host(&bed, "s").await, "one");
    one.release("s");
    bed.drained().await;
    wait_until(LIMIT, "it is moved", async || {
        host(&bed, "s").await == "two"
    })
    .await;
    bed.enqueue("s", "step").await;
    bed.drained().await;
    let both = [accepted(&one), accepted(&two)].concat();
    let all = (1..=3).map(|seq| ("s".to_owned(), seq)).collect::<Vec<_>>();
    assert_eq!(both, all, "each once, the last on its new host");
    assert!(accepted(&two).contains(&all[2]));
    for worker in workers {
        assert_eq!(worker.stop().await, Stopped::Clean);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_waits_for_its_retry_keeps_its_time_and_its_priority_when_it_is_moved() {
    let bed = bed().await;
    bind(&bed.client, "s", Some("one")).await;
    bed.client
        .execute(
            "SELECT lanekeeper.enqueue('runs', 's', 'step', '1', priority => 7::smallint)",
            &[],
        )
        .await
        .unwrap();
    let one = Fake::answering(|_| Verdict::retry("no"));
    let first = worker(&bed, &one, "one").await;
    let waits = "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'blocked'";
    wait_until(LIMIT, "it waits", async || bed.count(waits).await == 1).await;
    assert_eq!(first.stop().await, Stopped::Clean);
    let entries = "SELECT r.priority, r.due_at::text FROM lanekeeper.ready AS r
                   JOIN lanekeeper.host_route AS h USING (route) WHERE h.host = $1 ORDER BY r.due_at";
    let read = async |host: &str| -> Vec<(i16, String)> {
        let rows = bed.client.query(entries, &[&host]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let before = read("one").await;
    assert_eq!(before.len(), 1);
    bind(&bed.client, "s", Some("two")).await;
    assert_eq!(moved(&bed).await, 1);
    assert_eq!((read("one").await.len(), read("two").await), (0, before));
    // What makes it due goes to the new route.
    let retry = "SELECT lanekeeper.change_lane(lane_id, 'retry') FROM lanekeeper.lane";
    bed.client.execute(retry, &[]).await.unwrap();
    let second = worker(&bed, &bed.fake, "two").await;
    // The entry of its retry stays, as a spare one.
    wait_until(LIMIT, "it is delivered", async || {
        bed.undelivered().await == 0
    })
    .await;
    bed.assert_exact(1, 1);
    assert_eq!(second.stop().await, Stopped::Clean);
}

/// Producers at each isolation level, and somebody who binds the sessions to one host and to the other all the while.
#[tokio::test(flavor = "multi_thread")]
async fn no_event_is_lost_doubled_or_out_of_order_while_sessions_are_bound_to_and_fro() {
    const EVENTS: i64 = 150;
    let bed = bed().await;
    let workers = [
        worker(&bed, &bed.fake, "one").await,
        worker(&bed, &bed.fake, "two").await,
    ];
    let url = bed.db.url().to_owned();
    let mut producers = Vec::new();
    for (at, isolation) in [
        "READ COMMITTED",
        "REPEATABLE READ",
        "SERIALIZABLE",
        "READ COMMITTED",
    ]
    .into_iter()
    .enumerate()
    {
        let url = url.clone();
        producers.push(tokio::spawn(async move {
            let client = crate::support::connect(&url).await;
            let session = format!("s{at}");
            let mut done = 0;
            while done < EVENTS {
                let append = format!(
                    "BEGIN ISOLATION LEVEL {isolation};
                     SELECT count(*) FROM lanekeeper.lane;
                     SELECT lanekeeper.enqueue('runs', '{session}', 'step', '{{}}'); COMMIT"
                );
                match client.batch_execute(&append).await {
                    Ok(()) => done += 1,
                    Err(error) => {
                        assert_eq!(error.code().unwrap().code(), "40001", "{error:?}");
                        client.batch_execute("ROLLBACK").await.unwrap();
                    }
                }
            }
        }));
    }
    let mut turn = 0_usize;
    while producers.iter().any(|producer| !producer.is_finished()) {
        turn += 1;
        let host = ["one", "two"][turn % 2];
        for at in 0..4 {
            let session = format!("s{at}");
            bind_session(&bed.client, "runs", &session, Some(host))
                .await
                .unwrap();
        }
        let due = "UPDATE lanekeeper.host_change SET look_at = clock_timestamp()";
        bed.client.execute(due, &[]).await.unwrap();
        finish_moving(&bed.client, 100).await.unwrap();
    }
    for producer in producers {
        producer.await.unwrap();
    }
    bed.drained().await;
    bed.assert_exact(4, EVENTS);
    for worker in workers {
        assert_eq!(worker.stop().await, Stopped::Clean);
    }
}

#[tokio::test]
async fn whoever_has_a_snapshot_from_before_a_move_makes_no_entry_on_the_old_route() {
    let bed = bed().await;
    bed.enqueue("s", "step").await;
    for statement in [
        "SELECT lanekeeper.enqueue('runs', 's', 'step', '{}')",
        "SELECT lanekeeper.enqueue_many('runs', '[{\"session\":\"s\",\"event_type\":\"step\",\"payload\":1}]')",
        "SELECT lanekeeper.change_lane(lane_id, 'retry') FROM lanekeeper.lane",
    ] {
        let old = bed.db.connect().await;
        old.batch_execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lanekeeper.lane",
        )
        .await
        .unwrap();
        let host = statement.len().to_string();
        bind(&bed.client, "s", Some(&host)).await;
        assert_eq!(moved(&bed).await, 1);
        let refused = old.batch_execute(statement).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "40001", "{statement}");
    }
    // Each moved with what it had.
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 1);
}

/// The session is made with the host that is known then, in a transaction that stays open, while its host changes.
#[tokio::test]
async fn a_session_that_is_made_while_its_host_changes_comes_to_its_host() {
    let bed = bed().await;
    bind(&bed.client, "s", Some("one")).await;
    let producer = bed.db.connect().await;
    producer
        .batch_execute("BEGIN; SELECT lanekeeper.enqueue('runs', 's', 'step', '{}')")
        .await
        .unwrap();
    bind(&bed.client, "s", Some("two")).await;
    for _ in 0..4 {
        assert_eq!(moved(&bed).await, 0);
    }
    let changes = "SELECT count(*) FROM lanekeeper.host_change";
    assert!(
        bed.count(changes).await > 0,
        "the producer's transaction is awaited"
    );
    producer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(moved(&bed).await, 1);
    assert_eq!(host(&bed, "s").await, "two");
    wait_until(LIMIT, "nothing is left to look at", async || {
        moved(&bed).await;
        bed.count(changes).await == 0
    })
    .await;
    // A bind that is not committed moves nothing and holds up nothing.
    let operator = bed.db.connect().await;
    operator.batch_execute("BEGIN").await.unwrap();
    bind(&operator, "s", Some("three")).await;
    assert_eq!(moved(&bed).await, 0);
    bed.enqueue("s", "step").await;
    operator.batch_execute("COMMIT").await.unwrap();
    assert_eq!(moved(&bed).await, 1);
    assert_eq!(host(&bed, "s").await, "three");
}

#[tokio::test]
async fn a_session_lives_where_its_agent_runs_unless_an_operator_bound_it() {
    let bed = bed().await;
    let observe = async |seq: i64, host: &str| {
        let hook = "SELECT lanekeeper.enqueue('hooks', 's', 'session_start', '{}')";
        bed.client.execute(hook, &[]).await.unwrap();
        let observe = "SELECT lanekeeper.observe_hook('hooks', 's', $1, now(),
            jsonb_build_object('type', 'session_start', 'native_session_id', 's', 'host', $2::text))";
        bed.client.execute(observe, &[&seq, &host]).await.unwrap();
    };
    bed.enqueue("s", "step").await;
    assert_eq!(host(&bed, "s").await, "");
    observe(1, "laptop").await;
    assert_eq!(moved(&bed).await, 1);
    assert_eq!(host(&bed, "s").await, "laptop");
    bind(&bed.client, "s", Some("server")).await;
    assert_eq!(moved(&bed).await, 1);
    observe(2, "desktop").await;
    assert_eq!(moved(&bed).await, 0);
    assert_eq!(host(&bed, "s").await, "server");
    bind(&bed.client, "s", None).await;
    assert_eq!(moved(&bed).await, 1);
    assert_eq!(host(&bed, "s").await, "desktop");
    assert!(!bind_session(&bed.client, "runs", "s", None).await.unwrap());
    let operations = "SELECT count(*) FROM lanekeeper.operation WHERE action IN ('bind', 'unbind')";
    assert_eq!(bed.count(operations).await, 2);
    for (stream, session, host, code) in [
        ("none", "s", "one", "LK003"),
        ("runs", "", "one", "LK006"),
        ("runs", "s", "", "LK006"),
        ("runs", "s", "a b", "LK006"),
        ("runs", "s", "/", "LK006"),
        ("runs", "s", &"x".repeat(256), "LK006"),
    ] {
        let refused = bind_session(&bed.client, stream, session, Some(host)).await;
        assert_eq!(refused.unwrap_err().sqlstate(), Some(code), "{host}");
    }
}
