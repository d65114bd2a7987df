//! The way back from a release: its schema stays, and the workers of the release before run on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lanekeeper_postgres::migrate::schema::{self, Release, Schema};
use lanekeeper_postgres::migrate::{MigrateError, latest, migrate, migrate_to};

use super::{contents, file, other_ring, with};
use crate::command::run;
use crate::process::plant::LIMIT;
use crate::process::rolling::{each_delivers, produce};
use crate::support::{Receiver, SECRET_ENV, TestDb, WorkerProcess, lanekeeper, wait_until};

/// What a next release may do: a table that grows, a new one, every function with another text, and a new one.
fn next() -> Schema {
    let mut files = schema::files();
    for file in &mut files {
        if file.path.starts_with("functions/") {
            file.text.push_str("-- As the next release has it.\n");
        }
    }
    let number = latest() + 1;
    files.push(file(
        &format!("{number:04}_next.sql"),
        &format!(
            "-- oldest-worker: {}\n\
             ALTER TABLE lanekeeper.lane ADD COLUMN note text;\n\
             ALTER TABLE lanekeeper.progress ADD COLUMN note text;\n\
             CREATE TABLE lanekeeper.note (lane_id bigint PRIMARY KEY, text text NOT NULL);\n",
            latest()
        ),
    ));
    files.push(file(
        "functions/note/note_of.sql",
        "CREATE OR REPLACE FUNCTION lanekeeper.note_of(p_lane_id bigint) RETURNS text LANGUAGE sql STABLE\n\
         SET search_path = pg_catalog, pg_temp AS $$ SELECT n.text FROM lanekeeper.note AS n WHERE n.lane_id = p_lane_id $$;",
    ));
    Schema::new(&files).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_go_on_while_the_next_release_migrates_under_load_and_start_again_on_its_schema() {
    let db = TestDb::new().await;
    let url = [("DATABASE_URL", db.url())];
    let receiver = Arc::new(Receiver::start(Duration::from_millis(5)).await);
    let subscription = format!(
        "[subscription.out]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"{}\"\nsecret_env = \"{SECRET_ENV}\"\n",
        receiver.url()
    );
    let applied = run(&["apply", "-f", "-"], &url, &subscription).await;
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    let start = async || {
        let (sender, secret) = receiver.new_secret();
        // Each is full, so that none can do without the other.
        let room = [("LANEKEEPER_WORKER__MAX_LANES", "30")];
        let worker = WorkerProcess::spawn_as(lanekeeper(), db.url(), sender, &secret, &room);
        worker.serves().await;
        worker
    };
    let before = vec![start().await, start().await];
    let stop = Arc::new(AtomicBool::new(false));
    let producing = tokio::spawn(produce(
        db.url().to_owned(),
        Arc::clone(&receiver),
        Arc::clone(&stop),
    ));
    each_delivers(&receiver, &before).await;

    // There: the schema changes under workers that run.
    let next = next();
    let mut migrating = db.connect().await;
    let report = migrate_to(&mut migrating, &next).await.unwrap();
    assert_eq!((report.from, report.to), (latest(), latest() + 1));
    assert_eq!(report.replaced.len(), next.objects().len());
    each_delivers(&receiver, &before).await;

    // And back: workers of the release before start on it, and those that were there leave.
    let mut back = Vec::new();
    for leaving in before {
        back.push(start().await);
        assert_eq!(leaving.stop().await.code(), Some(0));
        each_delivers(&receiver, &back).await;
    }
    let kept = contents_of_schema(&db).await;
    let refused = run(&["migrate"], &url, "").await;
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(
        refused.stderr.contains("a newer release has migrated it"),
        "{}",
        refused.stderr
    );
    assert_eq!(contents_of_schema(&db).await, kept);
    each_delivers(&receiver, &back).await;

    stop.store(true, Ordering::SeqCst);
    let events = producing.await.unwrap();
    let client = db.connect().await;
    wait_until(LIMIT, "everything is settled", async || {
        let left = "SELECT count(*) FROM lanekeeper.lane_status WHERE head_seq IS NOT NULL";
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    let seen = receiver.seen();
    let (sessions, repeats) = seen.deduplicated();
    assert_eq!((seen.refused.len(), repeats), (0, 0));
    assert!(!sessions.is_empty());
    for (session, seqs) in sessions {
        assert_eq!(seqs, (1..=events).collect::<Vec<_>>(), "session {session}");
    }
    for worker in back {
        assert_eq!(worker.stop().await.code(), Some(0));
    }
}

/// Versions, hashes and definitions: what a refused migration must not touch while events go on.
async fn contents_of_schema(db: &TestDb) -> String {
    let client = db.connect().await;
    let row = client
        .query_one(
            "SELECT json_build_array(
                 (SELECT json_agg(v ORDER BY v.version) FROM lanekeeper.schema_version AS v),
                 (SELECT json_agg(o ORDER BY o.name) FROM lanekeeper.schema_object AS o),
                 (SELECT json_agg(r) FROM lanekeeper.schema_release AS r),
                 (SELECT json_agg(md5(pg_get_functiondef(p.oid)) ORDER BY p.oid)
                  FROM pg_proc AS p WHERE p.pronamespace = 'lanekeeper'::regnamespace))::text",
            &[],
        )
        .await
        .unwrap();
    row.get(0)
}

#[tokio::test]
async fn an_older_release_of_the_same_schema_version_puts_its_functions_back_only_where_it_is_asked_to()
 {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let url = [("DATABASE_URL", db.url())];
    let newer = with(&[other_ring()]).released_as(Release(vec![9_999, 0, 1]));
    let report = migrate_to(&mut client, &newer).await.unwrap();
    assert_eq!(report.replaced, ["ring"]);
    let (before, schema) = (contents(&client).await, contents_of_schema(&db).await);

    let refused = migrate(&mut client).await.unwrap_err();
    assert!(
        matches!(&refused, MigrateError::NewerFunctions { found, own }
            if found.to_string() == "9999.0.1" && *own == Release::own()),
        "{refused}"
    );
    let ran = run(&["migrate"], &url, "").await;
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    for told in [
        "release 9999.0.1 migrated this schema last",
        "--put-back",
        "Nothing was changed",
    ] {
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
    assert_eq!(
        (contents(&client).await, contents_of_schema(&db).await),
        (before, schema)
    );

    let back = run(&["migrate", "--put-back"], &url, "").await;
    assert_eq!(back.code, Some(0), "{}", back.stderr);
    assert!(back.stdout.contains("replaced ring"), "{}", back.stdout);
    assert!(migrate(&mut client).await.unwrap().changed_nothing());

    // A newer release with the same files takes nothing from an older one.
    let same = with(&[]).released_as(Release(vec![9_999, 0, 1]));
    for schema in [&same, Schema::of_this_release(), &same] {
        assert!(
            migrate_to(&mut client, schema)
                .await
                .unwrap()
                .changed_nothing()
        );
    }
}
