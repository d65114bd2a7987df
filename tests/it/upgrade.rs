//! Schemas that are not the one of this release: older, migrated by several at once, newer.

use lanekeeper_postgres::migrate::{latest, migrate, migrate_to, version};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::command::run;
use crate::engine::bed::{Bed, LIMIT, Sub, enqueue};
use crate::support::{TestDb, wait_until};

/// As `CREATE DATABASE` leaves it.
async fn empty(client: &Client) {
    client
        .batch_execute("DROP SCHEMA lanekeeper CASCADE")
        .await
        .unwrap();
}

/// What an upgrade must not lose and a refusal must not touch.
async fn contents(client: &Client) -> String {
    let row = client
        .query_one(
            "SELECT json_build_array(
                 (SELECT json_agg(v ORDER BY v.version) FROM lanekeeper.schema_version AS v),
                 (SELECT json_agg(s ORDER BY s.subscription_id) FROM lanekeeper.subscription AS s),
                 (SELECT json_agg(e ORDER BY e.session_id, e.seq) FROM lanekeeper.event AS e),
                 (SELECT json_agg(p ORDER BY p.lane_id) FROM lanekeeper.progress AS p),
                 (SELECT json_agg(r ORDER BY r.id) FROM lanekeeper.ready AS r),
                 (SELECT json_agg(w) FROM lanekeeper.worker AS w))::text",
            &[],
        )
        .await
        .unwrap();
    row.get(0)
}

async fn can_enqueue(client: &Client) -> bool {
    let there = "SELECT to_regproc('lanekeeper.enqueue') IS NOT NULL";
    client.query_one(there, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_earlier_schema_is_upgraded_with_what_is_in_it() {
    let mut kept = 0;
    for from in 0..latest() {
        let bed = Bed::bare().await;
        empty(&bed.client).await;
        let mut migrating = bed.db.connect().await;
        migrate_to(&mut migrating, from).await.unwrap();
        let mut events = 0;
        if from > 0 {
            bed.subscribe(&Sub::default()).await;
        }
        if from > 0 && can_enqueue(&bed.client).await {
            bed.enqueue_bulk(3, 4).await;
            events = 4;
        }
        let report = migrate(&mut migrating).await.unwrap();
        assert_eq!((report.from, report.to), (from, latest()));
        assert_eq!(report.applied.len(), (latest() - from) as usize);
        if from == 0 {
            bed.subscribe(&Sub::default()).await;
        }
        bed.enqueue_bulk(3, 2).await;
        let worker = bed.worker().await;
        bed.drained().await;
        bed.assert_exact(3, events + 2);
        worker.stop().await;
        kept += events;
    }
    assert!(kept > 0, "no schema had events to keep");
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_go_on_while_a_migration_waits_for_one_that_stays_open() {
    let bed = Bed::bare().await;
    empty(&bed.client).await;
    let mut migrating = bed.db.connect().await;
    migrate_to(&mut migrating, 8).await.unwrap();
    bed.subscribe(&Sub::default()).await;
    let open = bed.db.connect().await;
    open.batch_execute("BEGIN").await.unwrap();
    assert_eq!(enqueue(&open, "open", "step").await, 1);
    let migration = tokio::spawn(async move { migrate_to(&mut migrating, 9).await.unwrap() });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND wait_event IN ('relation', 'PgSleep') AND query LIKE '-- Appending with fewer%'";
    wait_until(LIMIT, "the migration waits", async || {
        bed.count(waits).await == 1
    })
    .await;
    bed.client
        .batch_execute("SET statement_timeout = '5s'")
        .await
        .unwrap();
    for seq in 1..=20 {
        assert_eq!(bed.enqueue("other", "step").await, seq);
    }
    assert!(!migration.is_finished());
    open.batch_execute("COMMIT").await.unwrap();
    assert_eq!(migration.await.unwrap().to, 9);
    for seq in 2..=3 {
        assert_eq!(enqueue(&open, "open", "step").await, seq);
    }
    // The lane of before the migration has its token, as every lane has.
    let tokens = "SELECT count(*) FROM lanekeeper.ready";
    assert_eq!(bed.count(tokens).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_migrations_at_once_each_succeeds_and_each_step_is_done_once() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    empty(&client).await;
    let mut runs = JoinSet::new();
    for _ in 0..6 {
        let mut client = db.connect().await;
        runs.spawn(async move { migrate(&mut client).await.unwrap() });
    }
    let applied: usize = runs
        .join_all()
        .await
        .iter()
        .map(|run| run.applied.len())
        .sum();
    assert_eq!(applied, latest() as usize);
    assert_eq!(version(&client).await.unwrap(), Some(latest()));
    let locks = client
        .query_one(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(locks.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_schema_of_a_newer_release_is_refused_by_name_and_left_alone() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let newer = "INSERT INTO lanekeeper.schema_version (version, name) VALUES (9999, 'future')";
    client.batch_execute(newer).await.unwrap();
    let before = contents(&client).await;
    let variables = [
        ("DATABASE_URL", db.url()),
        ("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0"),
    ];
    let subscription = "[subscription.audit]\nstream = \"hooks\"\nadapter = \"webhook\"\nurl = \"https://example.com\"\n";
    for command in [&["migrate"][..], &["worker"], &["apply", "-f", "-"]] {
        let ran = run(command, &variables, subscription).await;
        assert_eq!(ran.code, Some(1), "{command:?}: {}", ran.stderr);
        for told in ["version 9999", "or a newer one"] {
            assert!(ran.stderr.contains(told), "{command:?}: {}", ran.stderr);
        }
    }
    assert_eq!(contents(&client).await, before);
}

/// A hook has no time to ask for the version: what counts is whether the call is still there.
#[tokio::test]
async fn a_hook_that_the_schema_does_not_know_any_more_keeps_its_call() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    client
        .batch_execute(
            "INSERT INTO lanekeeper.schema_version (version, name) VALUES (9999, 'future');
             ALTER FUNCTION lanekeeper.enqueue RENAME TO enqueue_of_the_future",
        )
        .await
        .unwrap();
    let before = contents(&client).await;
    let spool = tempfile::tempdir().unwrap();
    let variables = [
        ("DATABASE_URL", db.url()),
        ("LANEKEEPER_HOOK__TIMEOUT_MS", "10000"),
        ("LANEKEEPER_SPOOL__DIR", spool.path().to_str().unwrap()),
    ];
    let payload = r#"{"session_id":"s","hook_event_name":"Stop"}"#;
    let ran = run(&["hook", "--cli", "codex"], &variables, payload).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    for told in ["kept in the spool", "lanekeeper migrate"] {
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
    let listed = run(&["spool", "--list", "--output", "json"], &variables, "").await;
    assert!(listed.stdout.contains(r#""events":1"#), "{}", listed.stdout);
    assert_eq!(contents(&client).await, before);
}
