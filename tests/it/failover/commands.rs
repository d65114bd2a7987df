//! Commands and producers reach the database if the first host of the URL does not answer.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{server, url};
use crate::command::{Ran, run};
use crate::support::{BlackHole, Silence, TestDb};

/// Each of two hosts gets half of it. Commands that are started together on a slow machine need their time.
const TIMEOUT: (&str, &str) = ("LANEKEEPER_DATABASE__CONNECT_TIMEOUT_MS", "6000");

/// Commands that connect to the database. `tail` runs after them, because it reads what `enqueue` appended.
const COMMANDS_THAT_CONNECT: [&[&str]; 10] = [
    &["migrate"],
    &["enqueue", "runs", "s", "step", "--payload", "{}"],
    &["status"],
    &["dead", "list"],
    &["lane", "list"],
    &["session", "list"],
    &["subscription", "list"],
    &["token", "list"],
    &["spool"],
    &["doctor"],
];

async fn commands_connect(silence: Silence) {
    let db = TestDb::new().await;
    let (hole, server) = (BlackHole::new(silence).await, server(&db).await);
    let url = url(&db, &[hole.port()], &server);
    let spool = tempfile::tempdir().unwrap();
    let variables = [
        ("DATABASE_URL", url.as_str()),
        ("LANEKEEPER_SPOOL__DIR", spool.path().to_str().unwrap()),
        TIMEOUT,
    ];
    let subscription = "[subscription.out]\nstream = \"runs\"\nadapter = \"stdout\"\n";
    let runs = COMMANDS_THAT_CONNECT
        .map(async |command| (command, run(command, &variables, subscription).await));
    for (
        command,
        Ran {
            code,
            stdout,
            stderr,
        },
    ) in join_all(runs).await
    {
        if command == ["doctor"] {
            // It fails for want of a worker.
            assert!(stdout.contains("no pooler between"), "{stdout}{stderr}");
        } else {
            assert_eq!(code, Some(0), "{command:?}: {stderr}");
        }
    }
    let tail = run(&["tail", "runs", "s"], &variables, "").await;
    assert_eq!(tail.code, Some(0), "{}", tail.stderr);
    assert!(tail.stdout.contains("step"), "{}", tail.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_connect_get_past_a_first_host_that_vanished() {
    commands_connect(Silence::Vanished).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_connect_get_past_a_first_host_that_accepts_and_never_speaks() {
    commands_connect(Silence::Hanging).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_call_reaches_the_second_host_within_its_budget() {
    let db = TestDb::new().await;
    let server = server(&db).await;
    for silence in [Silence::Vanished, Silence::Hanging] {
        let hole = BlackHole::new(silence).await;
        let url = url(&db, &[hole.port()], &server);
        let spool = tempfile::tempdir().unwrap();
        let variables = [
            ("DATABASE_URL", url.as_str()),
            ("LANEKEEPER_SPOOL__DIR", spool.path().to_str().unwrap()),
            ("LANEKEEPER_HOOK__TIMEOUT_MS", "4000"),
        ];
        let payload = r#"{"session_id":"s","hook_event_name":"Stop"}"#;
        let since = Instant::now();
        let hook = run(&["hook", "--cli", "codex"], &variables, payload).await;
        assert_eq!((hook.code, hook.stderr.as_str()), (Some(0), ""));
        let took = since.elapsed();
        assert!(took < Duration::from_secs(4), "{silence:?}: {took:?}");
    }
    let stored = "SELECT count(*) FROM lanekeeper.event";
    let stored: i64 = db
        .connect()
        .await
        .query_one(stored, &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(stored, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_timeout_of_the_url_is_the_limit_of_each_host() {
    let db = TestDb::new().await;
    let server = server(&db).await;
    let holes = [
        BlackHole::new(Silence::Vanished).await,
        BlackHole::new(Silence::Hanging).await,
    ];
    let ports = holes.each_ref().map(BlackHole::port);
    let url = format!("{}?connect_timeout=2", url(&db, &ports, &server));
    // Without the URL's, each would get 200 s.
    let patient = ("LANEKEEPER_DATABASE__CONNECT_TIMEOUT_MS", "600000");
    let since = Instant::now();
    let ran = run(&["status"], &[("DATABASE_URL", &url), patient], "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let took = since.elapsed();
    assert!(
        took >= Duration::from_secs(4),
        "each of the two had 2 s: {took:?}"
    );
    assert!(took < Duration::from_secs(60), "{took:?}");

    let url = format!("postgres://me@127.0.0.1:{}/x?connect_timeout=1", ports[1]);
    let ran = run(&["status"], &[("DATABASE_URL", &url), patient], "").await;
    assert_eq!(ran.code, Some(75), "{}", ran.stderr);
    let told = "did not answer within 1000 ms";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_address_of_a_name_gets_its_part_of_the_time() {
    let db = TestDb::new().await;
    let server = server(&db).await;
    let first = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), server.port());
    let known = tokio::net::lookup_host(("localhost", server.port())).await;
    if known.unwrap().all(|known| known != first) {
        eprintln!("skipped: ::1 is no address of localhost on this machine");
        return;
    }
    let _hole = BlackHole::at(first, Silence::Hanging).await.unwrap();
    let url = server.through(db.url()).replace("127.0.0.1", "localhost");
    let ran = run(&["status"], &[("DATABASE_URL", &url), TIMEOUT], "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}
