//! `lanekeeper doctor` finds each fault, names it and says what to do.

use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;

use super::{append, dead_letters, finish, json_lines, lane, run, run_with_input, subscribed};
use crate::support::{RedisServer, TestDb};

const ARGS: [&str; 3] = ["doctor", "--output", "json"];

fn status<'a>(checks: &'a [Value], name: &str) -> &'a str {
    let check = checks.iter().find(|check| check["check"] == name);
    let check = check.unwrap_or_else(|| panic!("{name} is missing: {checks:?}"));
    assert!(check["found"].is_string() && check["advice"].is_null() == (check["status"] == "ok"));
    check["status"].as_str().unwrap()
}

#[tokio::test]
async fn a_database_that_is_well_passes() {
    let db = subscribed(&["audit"]).await;
    let checks = run(&db, &ARGS).await.json();
    for check in [
        "server",
        "encoding",
        "autovacuum",
        "clock",
        "direct connection",
        "schema",
        "partitions",
        "subscriptions",
        "hook events",
        "connections",
    ] {
        assert_eq!(status(&checks, check), "ok", "{check}");
    }
    assert_eq!(status(&checks, "workers"), "warn");
    assert!(!checks.iter().any(|check| check["check"] == "redis"));
    let text = run(&db, &["doctor"]).await;
    assert!(
        text.text().contains("warn  workers: none is running; do: "),
        "{text:?}"
    );
}

#[tokio::test]
async fn redis_is_looked_at_where_it_is_configured_and_missed_where_a_limit_needs_it() {
    let db = subscribed(&["audit"]).await;
    let mut redis = RedisServer::start();
    let url = redis.url();
    let variables = [("DATABASE_URL", db.url()), ("REDIS_URL", &url)];
    assert_eq!(
        status(&finish(&variables, &ARGS, "").await.json(), "redis"),
        "ok"
    );
    redis.kill();
    assert_eq!(
        status(&finish(&variables, &ARGS, "").await.json(), "redis"),
        "warn"
    );
    let limited = "UPDATE lanekeeper.subscription SET settings = settings || '{\"limit\": [{\"rate\": \"1/s\"}]}'";
    db.connect().await.batch_execute(limited).await.unwrap();
    let checks = run(&db, &ARGS).await.json();
    assert_eq!(status(&checks, "redis"), "warn");
    assert_eq!(status(&checks, "subscriptions"), "ok");
}

#[tokio::test]
async fn hook_events_that_nobody_knows_yet_are_named() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for event in [
        "PreCompact",
        "BrandNew",
        "BrandNew",
        "Stop",
        "MessageDisplay",
    ] {
        // As `hook` stores it.
        let headers = format!(r#"{{"cli": "claude-code", "native_event": "{event}"}}"#);
        let kind = lanekeeper_streams::hooks::event_type::event_type(event);
        let statement = format!(
            "SELECT lanekeeper.enqueue('hooks', 's', '{kind}', '{{}}', headers => '{headers}')"
        );
        client.batch_execute(&statement).await.unwrap();
    }
    // What other producers call their events is their business.
    let other = "SELECT lanekeeper.enqueue('hooks', 's', 'of_our_own', '{}')";
    client.batch_execute(other).await.unwrap();
    let checks = run(&db, &ARGS).await.json();
    assert_eq!(status(&checks, "hook events"), "warn");
    let check = checks.iter().find(|check| check["check"] == "hook events");
    assert_eq!(
        check.unwrap()["found"],
        "unknown to this release: claude-code BrandNew (2)"
    );
}

#[tokio::test]
async fn what_is_wrong_with_the_database_is_found() {
    let db = subscribed(&["audit"]).await;
    let client = db.connect().await;
    let today = "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')";
    let today: String = client.query_one(today, &[]).await.unwrap().get(0);
    client
        .batch_execute(&format!(
            "DROP TABLE lanekeeper.event_{today};
             INSERT INTO lanekeeper.worker (worker_id, version, beat_at, started_at, host, pid, release, state)
             VALUES (7, 1, now() - interval '1 minute', now(), 'node-a', 42, '0.1.0', 'running');
             UPDATE lanekeeper.subscription SET settings = '{{\"nonsense\": 1}}'"
        ))
        .await
        .unwrap();
    let name: String = client
        .query_one("SELECT current_database()", &[])
        .await
        .unwrap()
        .get(0);
    let lax = format!("ALTER DATABASE {name} SET synchronous_commit = off");
    client.batch_execute(&lax).await.unwrap();

    let ran = run(&db, &ARGS).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let checks = json_lines(&ran.out);
    assert_eq!(status(&checks, "durability"), "fail");
    assert_eq!(status(&checks, "partitions"), "warn");
    assert_eq!(status(&checks, "workers"), "fail");
    assert_eq!(status(&checks, "subscription"), "fail");
}

#[tokio::test]
async fn limits_are_checked_for_the_replicas_that_are_planned() {
    let db = subscribed(&["audit"]).await;
    let ran = run(&db, &[&ARGS[..], &["--replicas", "10000"]].concat()).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let checks = json_lines(&ran.out);
    assert_eq!(status(&checks, "lock table"), "fail");
    assert_eq!(status(&checks, "connections"), "fail");
    run(&db, &["doctor", "--replicas", "0"])
        .await
        .refused(2, &["--replicas"]);
}

#[tokio::test]
async fn a_secret_that_the_shell_lacks_says_nothing_of_the_workers() {
    let db = TestDb::new().await;
    let file = "[subscription.audit]\nstream = \"runs\"\nadapter = \"webhook\"\n\
                url = \"https://example.com/\"\nsecret_env = \"AUDIT_SECRET\"\n";
    run_with_input(&db, &["apply", "-f", "-"], file)
        .await
        .text();
    let ran = run(&db, &ARGS).await;
    assert_eq!(status(&ran.json(), "subscriptions"), "ok");
    assert!(!ran.out.contains("AUDIT_SECRET"), "{ran:?}");
}

#[tokio::test]
async fn a_database_without_a_subscription_of_its_own_is_a_warning() {
    let db = TestDb::new().await;
    assert_eq!(
        status(&run(&db, &ARGS).await.json(), "subscriptions"),
        "warn"
    );
    let registry = "INSERT INTO lanekeeper.subscription
                        (stream_id, name, adapter, retry_schedule_ms, max_attempts, on_exhausted, coalesce)
                    SELECT stream_id, 'registry', 'registry', '{1000}', 0, 'dead_letter', false
                    FROM lanekeeper.stream WHERE name = 'hooks'";
    db.connect().await.batch_execute(registry).await.unwrap();
    let ran = run(&db, &ARGS).await;
    assert_eq!(status(&ran.json(), "subscriptions"), "warn");
    assert!(
        ran.out.contains("none but the built-in agent registry"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn parked_lanes_and_dead_letters_are_named() {
    let db = subscribed(&["audit"]).await;
    append(&db, "s", 1).await;
    let clean = run(&db, &ARGS).await.json();
    for check in ["parked lanes", "dead letters"] {
        assert_eq!(status(&clean, check), "ok", "{check}");
    }
    let id = lane(&db, "s", "audit").await;
    run(&db, &["lane", "park", &id.to_string()]).await.text();
    dead_letters(&db, id, 3).await;
    let found = run(&db, &ARGS).await.json();
    for check in ["parked lanes", "dead letters"] {
        assert_eq!(status(&found, check), "warn", "{check}");
    }
}

#[tokio::test]
async fn a_database_without_the_schema_and_a_server_that_is_away_fail_with_advice() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    client
        .batch_execute("DROP SCHEMA lanekeeper CASCADE")
        .await
        .unwrap();
    let ran = run(&db, &ARGS).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(status(&json_lines(&ran.out), "schema"), "fail");
    assert!(ran.out.contains("lanekeeper migrate"), "{ran:?}");

    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("postgres://nobody@{address}/none");
    let variables = [("DATABASE_URL", url.as_str())];
    let ran = tokio::time::timeout(Duration::from_secs(20), finish(&variables, &ARGS, ""))
        .await
        .unwrap();
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(status(&json_lines(&ran.out), "server"), "fail");
}
