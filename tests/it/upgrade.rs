//! Schemas that are not the one of this release: older, newer, altered, migrated by several at once.

mod released;
mod way_back;

use std::collections::BTreeSet;

use lanekeeper_postgres::migrate::difference::{Difference, Part, State};
use lanekeeper_postgres::migrate::schema::{self, File, Schema};
use lanekeeper_postgres::migrate::{
    MigrateError, check, check_against, latest, migrate, migrate_to, version,
};
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
                 (SELECT json_agg(o ORDER BY o.name) FROM lanekeeper.schema_object AS o),
                 (SELECT json_agg(md5(pg_get_functiondef(p.oid)) ORDER BY p.oid)
                  FROM pg_proc AS p WHERE p.pronamespace = 'lanekeeper'::regnamespace),
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

fn file(path: &str, text: &str) -> File {
    File {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

/// This release's files, with others beside them.
fn with(others: &[File]) -> Schema {
    let mut files = schema::files();
    files.retain(|file| others.iter().all(|other| other.path != file.path));
    files.extend_from_slice(others);
    Schema::new(&files).unwrap()
}

const RING: &str = "functions/append/ring.sql";

/// `ring`, with another body.
fn other_ring() -> File {
    let files = schema::files();
    let ring = files.iter().find(|file| file.path == RING).unwrap();
    let text = ring
        .text
        .replace("PERFORM pg_notify('lanekeeper', '');", "NULL;");
    assert_ne!(text, ring.text);
    file(RING, &text)
}

fn difference(part: Part, name: &str, state: State) -> Difference {
    let name = name.to_owned();
    Difference { part, name, state }
}

async fn text_of(client: &Client, statement: &str) -> String {
    client.query_one(statement, &[]).await.unwrap().get(0)
}

const RING_NOW: &str = "SELECT pg_get_functiondef('lanekeeper.ring'::regproc)";

#[test]
fn tables_have_numbered_migrations_and_each_function_and_view_a_file_of_its_own() {
    for migration in Schema::of_this_release().numbered() {
        for defines in [" FUNCTION lanekeeper.", " PROCEDURE lanekeeper."] {
            assert!(!migration.sql.contains(defines), "{}", migration.name);
        }
    }
    let mut seen = BTreeSet::new();
    for file in schema::files() {
        let lines = file.text.lines().filter(|line| line.starts_with("CREATE"));
        for line in lines.filter(|line| line.contains(" FUNCTION ") || line.contains(" VIEW ")) {
            let name = line.split("lanekeeper.").nth(1).unwrap();
            let name = name.split(['(', ' ']).next().unwrap().to_owned();
            assert!(seen.insert(name), "{}: {line}", file.path);
        }
    }
}

#[tokio::test]
async fn a_function_that_changed_is_replaced_and_keeps_its_grants() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let before = text_of(&client, RING_NOW).await;
    let role = format!("reader_{}", std::process::id());
    client
        .batch_execute(&format!(
            "DROP ROLE IF EXISTS {role}; CREATE ROLE {role}; GRANT EXECUTE ON FUNCTION lanekeeper.ring() TO {role}"
        ))
        .await
        .unwrap();
    let acl = "SELECT proacl::text FROM pg_proc WHERE oid = 'lanekeeper.ring'::regproc";
    let granted = text_of(&client, acl).await;

    let report = migrate_to(&mut client, &with(&[other_ring()]))
        .await
        .unwrap();
    assert_eq!(
        (report.replaced, report.applied),
        (vec!["ring".to_owned()], vec![])
    );
    assert_ne!(text_of(&client, RING_NOW).await, before);
    let found = check(&mut client).await.unwrap();
    assert_eq!(found, [difference(Part::Function, "ring", State::Changed)]);

    assert_eq!(migrate(&mut client).await.unwrap().replaced, ["ring"]);
    assert_eq!(text_of(&client, RING_NOW).await, before);
    assert_eq!(text_of(&client, acl).await, granted);
    assert_eq!(check(&mut client).await.unwrap(), []);
    assert!(migrate(&mut client).await.unwrap().changed_nothing());
    let forgotten = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    client.batch_execute(&forgotten).await.unwrap();
}

#[tokio::test]
async fn what_was_altered_in_the_database_is_named_and_replaced() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let before = text_of(&client, RING_NOW).await;
    client
        .batch_execute(
            "ALTER FUNCTION lanekeeper.ring() SET work_mem = '1MB';
             DROP VIEW lanekeeper.worker_status;
             DELETE FROM lanekeeper.schema_object WHERE name = 'seen';
             CREATE FUNCTION lanekeeper.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        )
        .await
        .unwrap();
    let url = [("DATABASE_URL", db.url())];
    let told = [
        "function ring was altered in the database",
        "view worker_status is missing",
        "function seen is not the one of this release",
        "function mine is not Lanekeeper's",
    ];
    let unchanged = contents(&client).await;
    let ran = run(&["migrate", "--check"], &url, "").await;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let lines: BTreeSet<&str> = ran.stdout.lines().collect();
    assert_eq!(lines, BTreeSet::from(told));
    let ran = run(&["doctor"], &url, "").await;
    for told in told {
        assert!(ran.stdout.contains(told), "{}", ran.stdout);
    }
    assert_eq!(contents(&client).await, unchanged);

    let report = migrate(&mut client).await.unwrap();
    let replaced: BTreeSet<String> = report.replaced.into_iter().collect();
    assert_eq!(
        replaced,
        ["ring", "seen", "worker_status"].map(str::to_owned).into()
    );
    assert_eq!(text_of(&client, RING_NOW).await, before);
    // It may be somebody's: it is left alone, and still named.
    let found = check(&mut client).await.unwrap();
    assert_eq!(found, [difference(Part::Function, "mine", State::Unknown)]);
    client
        .batch_execute("DROP FUNCTION lanekeeper.mine()")
        .await
        .unwrap();
    let ran = run(&["migrate", "--check"], &url, "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
}

#[tokio::test]
async fn what_a_release_no_longer_has_is_dropped() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let earlier = with(&[
        file(
            "functions/old/old_count.sql",
            "CREATE OR REPLACE FUNCTION lanekeeper.old_count() RETURNS bigint LANGUAGE sql STABLE RETURN 7;",
        ),
        file(
            "functions/old/old_view.sql",
            "CREATE OR REPLACE VIEW lanekeeper.old_view AS SELECT lanekeeper.older_count() AS n;",
        ),
        file(
            "functions/old/older_count.sql",
            "CREATE OR REPLACE FUNCTION lanekeeper.older_count() RETURNS bigint LANGUAGE sql STABLE RETURN lanekeeper.old_count();",
        ),
    ]);
    let report = migrate_to(&mut client, &earlier).await.unwrap();
    assert_eq!(report.replaced, ["old_count", "older_count", "old_view"]);
    let public = "SELECT count(*)::text FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
                  WHERE p.pronamespace = 'lanekeeper'::regnamespace AND a.grantee = 0";
    assert_eq!(text_of(&client, public).await, "0");
    assert_eq!(
        check(&mut client).await.unwrap(),
        [
            difference(Part::Function, "old_count", State::Obsolete),
            difference(Part::Function, "older_count", State::Obsolete),
            difference(Part::View, "old_view", State::Obsolete),
        ]
    );
    let report = migrate(&mut client).await.unwrap();
    assert_eq!(report.dropped, ["old_view", "old_count", "older_count"]);
    assert_eq!(report.replaced, [""; 0]);
    assert_eq!(check(&mut client).await.unwrap(), []);
}

#[tokio::test]
async fn other_parameters_need_another_name() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let before = contents(&client).await;
    let ring = other_ring();
    let wider = file(
        RING,
        &ring.text.replace(
            "lanekeeper.ring()",
            "lanekeeper.ring(p_channel text DEFAULT '')",
        ),
    );
    let failed = migrate_to(&mut client, &with(&[wider])).await.unwrap_err();
    assert!(
        matches!(&failed, MigrateError::TwoSignatures { name } if name == "ring"),
        "{failed}"
    );
    assert_eq!(contents(&client).await, before);
}

#[tokio::test]
async fn a_numbered_migration_that_was_rewritten_is_refused() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let before = contents(&client).await;
    let mut first = schema::files()
        .into_iter()
        .find(|file| file.path.starts_with("0001"))
        .unwrap();
    first
        .text
        .push_str("CREATE TABLE lanekeeper.more (n int);\n");
    let rewritten = with(&[first]);
    let found = check_against(&mut client, &rewritten).await.unwrap();
    assert_eq!(
        found,
        [difference(Part::Migration, "0001_tables", State::Changed)]
    );
    let failed = migrate_to(&mut client, &rewritten).await.unwrap_err();
    assert!(
        matches!(&failed, MigrateError::Rewritten { name } if name == "0001_tables"),
        "{failed}"
    );
    assert_eq!(contents(&client).await, before);
}

#[tokio::test]
async fn a_run_that_fails_or_is_cut_in_the_middle_changes_nothing() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let before = contents(&client).await;
    let added = "-- oldest-worker: 1\nALTER TABLE lanekeeper.lane ADD COLUMN note text;\n";
    let failing = [
        file("0002_note.sql", added),
        other_ring(),
        file(
            "functions/view/broken.sql",
            "CREATE OR REPLACE VIEW lanekeeper.broken AS SELECT l.nothing FROM lanekeeper.lane AS l;",
        ),
    ];
    let mut migrating = db.connect().await;
    let failed = migrate_to(&mut migrating, &with(&failing))
        .await
        .unwrap_err();
    assert!(
        matches!(&failed, MigrateError::Failed { name, .. } if name == "broken"),
        "{failed}"
    );
    assert_eq!(contents(&client).await, before);

    let slow = file(
        "functions/view/slow.sql",
        "CREATE OR REPLACE VIEW lanekeeper.slow AS SELECT l.note FROM lanekeeper.lane AS l; SELECT pg_sleep(60);",
    );
    let cut = with(&[file("0002_note.sql", added), other_ring(), slow]);
    let run = tokio::spawn(async move { migrate_to(&mut migrating, &cut).await });
    let cut = "SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event = 'PgSleep'";
    wait_until(LIMIT, "the run is in its last step", async || {
        text_of(&client, cut).await == "1"
    })
    .await;
    assert!(run.await.unwrap().is_err());
    assert_eq!(contents(&client).await, before);

    let mut migrating = db.connect().await;
    let whole = with(&[file("0002_note.sql", added), other_ring()]);
    let report = migrate_to(&mut migrating, &whole).await.unwrap();
    assert_eq!((report.from, report.to), (latest(), latest() + 1));
    assert_eq!(
        (report.applied, report.replaced),
        (vec!["0002_note".to_owned()], vec!["ring".to_owned()])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_go_on_while_a_migration_waits_for_one_that_stays_open() {
    let bed = Bed::new().await;
    let open = bed.db.connect().await;
    open.batch_execute("BEGIN").await.unwrap();
    assert_eq!(enqueue(&open, "open", "step").await, 1);
    let mut migrating = bed.db.connect().await;
    let next = with(&[file(
        "0002_note.sql",
        "-- oldest-worker: 1\nALTER TABLE lanekeeper.lane ADD COLUMN note text;\n",
    )]);
    let migration = tokio::spawn(async move { migrate_to(&mut migrating, &next).await.unwrap() });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND wait_event_type = 'Lock' AND query LIKE '-- oldest-worker%'";
    for _ in 0..2 {
        wait_until(LIMIT, "the migration waits", async || {
            bed.count(waits).await == 1
        })
        .await;
        wait_until(LIMIT, "and lets others before it", async || {
            bed.count(waits).await == 0
        })
        .await;
    }
    bed.client
        .batch_execute("SET statement_timeout = '5s'")
        .await
        .unwrap();
    for seq in 1..=20 {
        assert_eq!(bed.enqueue("other", "step").await, seq);
    }
    assert!(!migration.is_finished());
    open.batch_execute("COMMIT").await.unwrap();
    assert_eq!(migration.await.unwrap().to, latest() + 1);
    for seq in 2..=3 {
        assert_eq!(enqueue(&open, "open", "step").await, seq);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_and_producers_go_on_while_every_function_is_replaced() {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    let mut migrating = bed.db.connect().await;
    let mut files = schema::files();
    for file in &mut files {
        if file.path.starts_with("functions/") {
            file.text.push_str("-- As good as another one.\n");
        }
    }
    let other = Schema::new(&files).unwrap();
    let replaced = other.objects().len();
    for round in 1..=5 {
        bed.enqueue_bulk(3, 20).await;
        let schema = match round % 2 {
            1 => &other,
            _ => Schema::of_this_release(),
        };
        let report = migrate_to(&mut migrating, schema).await.unwrap();
        assert_eq!(report.replaced.len(), replaced);
        bed.enqueue_bulk(3, 20).await;
    }
    bed.drained().await;
    bed.assert_exact(3, 200);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_runs_on_a_newer_schema_that_admits_it_and_on_no_other() {
    let bed = Bed::new().await;
    let mut migrating = bed.db.connect().await;
    let second = file(
        "0002_note.sql",
        "-- oldest-worker: 1\nALTER TABLE lanekeeper.lane ADD COLUMN note text;\n",
    );
    migrate_to(&mut migrating, &with(&[second.clone(), other_ring()]))
        .await
        .unwrap();
    let url = [
        ("DATABASE_URL", bed.db.url()),
        ("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0"),
    ];
    let worker = bed.worker().await;
    bed.enqueue_bulk(3, 4).await;
    bed.drained().await;
    bed.assert_exact(3, 4);
    worker.stop().await;
    let status = run(&["status"], &url, "").await;
    assert_eq!(status.code, Some(0), "{}", status.stderr);
    let doctor = run(&["doctor"], &url, "").await;
    assert!(
        doctor.stdout.contains("cannot compare it"),
        "{}",
        doctor.stdout
    );

    let third = file("0003_later.sql", "-- oldest-worker: 2\n");
    migrate_to(&mut migrating, &with(&[second, third, other_ring()]))
        .await
        .unwrap();
    let before = contents(&bed.client).await;
    for command in [&["worker"][..], &["status"], &["apply", "-f", "-"]] {
        let ran = run(command, &url, "").await;
        assert_eq!(ran.code, Some(1), "{command:?}: {}", ran.stderr);
        for told in ["has version 3", "version 2 or newer"] {
            assert!(ran.stderr.contains(told), "{command:?}: {}", ran.stderr);
        }
    }
    // It does not know what the newer one wants, whether it may work with it or not.
    for command in [&["migrate"][..], &["migrate", "--check"]] {
        let ran = run(command, &url, "").await;
        assert_eq!(ran.code, Some(1), "{command:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("a newer release has migrated it"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(contents(&bed.client).await, before);
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
    let done: Vec<(usize, usize)> = runs
        .join_all()
        .await
        .iter()
        .map(|run| (run.applied.len(), run.replaced.len()))
        .collect();
    let schema = Schema::of_this_release();
    let whole = (schema.numbered().len(), schema.objects().len());
    assert_eq!(
        done.iter().filter(|run| **run == whole).count(),
        1,
        "{done:?}"
    );
    assert_eq!(
        done.iter().filter(|run| **run == (0, 0)).count(),
        5,
        "{done:?}"
    );
    let found = version(&client).await.unwrap().unwrap();
    assert_eq!(
        (found.number, found.oldest_worker <= latest()),
        (latest(), true)
    );
    let mut migrating = db.connect().await;
    assert_eq!(check(&mut migrating).await.unwrap(), []);
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

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_gets_a_schema_that_works_at_once() {
    let bed = Bed::bare().await;
    empty(&bed.client).await;
    let mut migrating = bed.db.connect().await;
    let missing = check(&mut migrating).await.unwrap();
    assert_eq!(
        missing,
        [difference(Part::Migration, "0001_tables", State::Missing)]
    );
    let report = migrate(&mut migrating).await.unwrap();
    assert_eq!((report.from, report.to), (0, latest()));
    bed.subscribe(&Sub::default()).await;
    bed.enqueue_bulk(3, 4).await;
    let worker = bed.worker().await;
    bed.drained().await;
    bed.assert_exact(3, 4);
    worker.stop().await;
}

#[tokio::test]
async fn a_schema_of_a_newer_release_is_refused_by_name_and_left_alone() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let newer = "INSERT INTO lanekeeper.schema_version (version, name, hash, oldest_worker) VALUES (9999, 'future', '', 9999)";
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
            "INSERT INTO lanekeeper.schema_version (version, name, hash, oldest_worker) VALUES (9999, 'future', '', 9999);
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
