//! A day of the log is written to a file, with all its events, before it is dropped.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use flate2::read::GzDecoder;
use lanekeeper_engine::{StartError, WorkerSettings};
use lanekeeper_postgres::{archive, maintenance};
use serde::Deserialize;
use serde_json::value::RawValue;
use tempfile::TempDir;

use super::days::{OLD, age, settle};
use crate::engine::bed::{Bed, LIMIT};
use crate::support::{WorkerProcess, wait_until};

/// A line of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    stream: String,
    session: String,
    seq: i64,
    message_id: uuid::Uuid,
    event_type: String,
    priority: i16,
    created_at: jiff::Timestamp,
    payload: Box<RawValue>,
    headers: Option<Box<RawValue>>,
}

/// What a line says, and a row of the log should.
type Event = (
    String,
    String,
    i64,
    uuid::Uuid,
    String,
    i16,
    jiff::Timestamp,
    String,
    Option<String>,
);

fn read(file: &Path) -> Vec<Event> {
    let text = BufReader::new(GzDecoder::new(File::open(file).unwrap()));
    text.lines()
        .map(|line| {
            let line: Line = serde_json::from_str(&line.unwrap()).unwrap();
            (
                line.stream,
                line.session,
                line.seq,
                line.message_id,
                line.event_type,
                line.priority,
                line.created_at,
                line.payload.get().to_owned(),
                line.headers.map(|headers| headers.get().to_owned()),
            )
        })
        .collect()
}

/// The log in its order.
async fn log(bed: &Bed) -> Vec<Event> {
    let rows = bed
        .client
        .query(
            "SELECT t.name, s.name, e.seq, e.message_id, e.event_type, e.priority, e.created_at, e.payload, e.headers::text
             FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id)
             JOIN lanekeeper.stream AS t USING (stream_id) ORDER BY e.session_id, e.seq",
            &[],
        )
        .await
        .unwrap();
    rows.iter()
        .map(|row| {
            (
                row.get(0),
                row.get(1),
                row.get(2),
                row.get(3),
                row.get(4),
                row.get(5),
                row.get(6),
                row.get(7),
                row.get(8),
            )
        })
        .collect()
}

/// One event of a day past retention, delivered.
async fn old_day() -> (Bed, TempDir) {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    age(&bed).await;
    settle(&bed).await;
    (bed, tempfile::tempdir().unwrap())
}

pub(super) fn to(folder: &TempDir) -> WorkerSettings {
    WorkerSettings {
        archive_dir: Some(folder.path().to_owned()),
        ..WorkerSettings::default()
    }
}

pub(super) fn names(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// `events-` and the old day, with what is added.
async fn name(bed: &Bed, added: &str) -> String {
    let day = format!("SELECT 'events-' || to_char({OLD}, 'YYYY-MM-DD')");
    let name: String = bed.client.query_one(&day, &[]).await.unwrap().get(0);
    format!("{name}{added}.jsonl.gz")
}

const ON_RECORD: &str = "SELECT count(*) FROM lanekeeper.archived_day WHERE dropped_at IS NULL";
const EVENTS: &str = "SELECT count(*) FROM lanekeeper.event";
const HELD: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND ((classid::bigint << 32) | objid::bigint) = lanekeeper.maintenance_lock(5)";

/// It takes hours where there are many days: an `apply` that waits for its end would leave lanes without a token so long.
#[tokio::test]
async fn other_housekeeping_does_not_wait_for_an_archive() {
    let bed = Bed::new().await;
    let database = bed.db.url().parse().unwrap();
    let reader = archive::Reader::open(&database).await.unwrap().unwrap();
    assert_eq!(bed.count(HELD).await, 1);
    let others = "SELECT count(*) FROM generate_series(1, 4) AS task
                  WHERE pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(task))";
    assert_eq!(bed.count(others).await, 4);
    drop(reader);
}

/// Those who wait for a lock on a table.
fn waiting_for(table: &str) -> String {
    format!(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'
         AND relation = 'lanekeeper.{table}'::regclass"
    )
}

/// Has a worker archive what there is, and stops it.
pub(super) async fn archive_by_worker(bed: &Bed, folder: &TempDir) {
    let worker = bed.worker_with(to(folder)).await;
    wait_until(LIMIT, "the day is on record", async || {
        bed.count(ON_RECORD).await == 1
    })
    .await;
    worker.stop().await;
    // Its housekeeping may be at its last turn.
    let others = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid()
                  AND backend_type = 'client backend'";
    wait_until(LIMIT, "the worker's connections are gone", async || {
        bed.count(others).await == 0
    })
    .await;
}

/// How many days one turn dropped.
async fn turn(bed: &Bed) -> i64 {
    let report = maintenance::run(&bed.client, 7, 30, true).await.unwrap();
    report.partitions_dropped
}

/// More turns than a drop takes.
async fn stays(bed: &Bed) {
    for _ in 0..4 {
        assert_eq!(turn(bed).await, 0);
    }
}

pub(super) async fn goes(bed: &Bed) {
    // A worker that was here may have dropped it already.
    wait_until(LIMIT, "the day goes", async || {
        turn(bed).await;
        bed.count(EVENTS).await == 0
    })
    .await;
    assert_eq!(bed.count(ON_RECORD).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_goes_after_a_file_has_every_event_of_it_with_its_payload_as_it_is_stored() {
    let bed = Bed::new().await;
    let folder = tempfile::tempdir().unwrap();
    // More than two pages.
    bed.enqueue_bulk(3, 701).await;
    bed.client
        .batch_execute(
            r#"SELECT lanekeeper.enqueue('runs', E'a "name"\n\\', 'step', p.payload::jsonb, headers => p.headers::jsonb, priority => -3::smallint)
               FROM (VALUES
                   ('{"b": 1.10, "a": 1e400, "n": 12345678901234567890}', NULL),
                   ('"ä 😀 \n \\ \\n \u0001 \" </script>"', '{"traceparent": "ü\\"}'),
                   ('[]', NULL), ('null', NULL)) AS p (payload, headers);
               SELECT lanekeeper.enqueue('runs', 'large', 'step', to_jsonb(repeat(md5('x') || E'\\\n', 20000)))"#,
        )
        .await
        .unwrap();
    age(&bed).await;
    settle(&bed).await;
    let events = log(&bed).await;
    assert_eq!(events.len(), 3 * 701 + 5);
    stays(&bed).await;
    assert_eq!(archive::waiting(&bed.client, 7).await.unwrap(), 1);
    assert_eq!(archive::waiting(&bed.client, 9).await.unwrap(), 0);

    archive_by_worker(&bed, &folder).await;
    assert_eq!(archive::waiting(&bed.client, 7).await.unwrap(), 0);
    let name = name(&bed, "").await;
    assert_eq!(names(&folder), [name.as_str()]);
    let file = folder.path().join(name);
    assert!(read(&file) == events, "the file has what the log has");
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    let row = bed
        .client
        .query_one(
            "SELECT events, bytes, location FROM lanekeeper.archived_day",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, i64>("events"), 2_108);
    assert_eq!(row.get::<_, i64>("bytes") as u64, metadata.len());
    assert_eq!(row.get::<_, &str>("location"), file.to_str().unwrap());
    goes(&bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_committed_after_the_archive_is_in_another_file_before_the_day_goes() {
    let (bed, folder) = old_day().await;
    archive_by_worker(&bed, &folder).await;
    bed.enqueue("s1", "late").await;
    bed.client
        .batch_execute(&format!("UPDATE lanekeeper.event SET day = {OLD}"))
        .await
        .unwrap();
    bed.days_moved().await;
    settle(&bed).await;
    wait_until(LIMIT, "the record is taken away", async || {
        assert_eq!(turn(&bed).await, 0);
        bed.count(ON_RECORD).await == 0
    })
    .await;
    stays(&bed).await;
    let events = log(&bed).await;
    archive_by_worker(&bed, &folder).await;
    let second = name(&bed, ".2").await;
    assert!(read(&folder.path().join(&second)) == events);
    // The first stays: nothing of an archive is ever removed or written over.
    assert_eq!(names(&folder), [second, name(&bed, "").await]);
    goes(&bed).await;
}

/// Its connection is cut as it records what it did.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_on_record_counts_for_nothing() {
    let (bed, folder) = old_day().await;
    let events = log(&bed).await;
    let holder = bed.db.connect().await;
    holder
        .batch_execute("BEGIN; LOCK TABLE lanekeeper.archived_day IN SHARE MODE")
        .await
        .unwrap();
    let worker = bed.worker_with(to(&folder)).await;
    let recording = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                     AND query LIKE '%INSERT INTO lanekeeper.archived_day%' AND pid <> pg_backend_pid()";
    wait_until(LIMIT, "it records", async || {
        bed.count(&format!("SELECT count(*) {recording}")).await == 1
    })
    .await;
    assert_eq!(names(&folder), [name(&bed, "").await]);
    bed.client
        .batch_execute(&format!("SELECT pg_terminate_backend(pid) {recording}"))
        .await
        .unwrap();
    wait_until(LIMIT, "it is cut", async || bed.count(HELD).await == 0).await;
    holder.batch_execute("COMMIT").await.unwrap();
    drop(holder);
    worker.stop().await;
    assert_eq!(bed.count(ON_RECORD).await, 0);
    stays(&bed).await;
    archive_by_worker(&bed, &folder).await;
    assert!(read(&folder.path().join(name(&bed, ".2").await)) == events);
    goes(&bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_at_once_make_one_file() {
    let (bed, folder) = old_day().await;
    let holder = bed.db.connect().await;
    // Whoever is first waits here, and has the archive.
    holder
        .batch_execute("BEGIN; LOCK TABLE lanekeeper.archived_day IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let first = bed.worker_with(to(&folder)).await;
    wait_until(LIMIT, "it looks for a day", async || {
        bed.count(HELD).await == 1
    })
    .await;
    // What comes after the archive in a round, of the second: this is old, and goes.
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.outcome (lane_id, seq, kind, settled_at)
             SELECT 1, 1, 'dropped', clock_timestamp() - interval '100 days'",
        )
        .await
        .unwrap();
    let second = bed.worker_with(to(&folder)).await;
    wait_until(LIMIT, "its round passes the archive", async || {
        bed.count("SELECT count(*) FROM lanekeeper.outcome").await == 0
    })
    .await;
    assert!(names(&folder).is_empty());
    holder.batch_execute("COMMIT").await.unwrap();
    wait_until(LIMIT, "the day is on record", async || {
        bed.count(ON_RECORD).await == 1
    })
    .await;
    first.stop().await;
    second.stop().await;
    assert_eq!(names(&folder), [name(&bed, "").await]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_stop_leaves_no_half_file() {
    let (bed, folder) = old_day().await;
    // It waits before it looks for a day, then in the midst of it: its first page names the stream.
    let (before, holder) = (bed.db.connect().await, bed.db.connect().await);
    before
        .batch_execute("BEGIN; LOCK TABLE lanekeeper.archived_day IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let worker = bed.worker_with(to(&folder)).await;
    wait_until(LIMIT, "it looks for a day", async || {
        bed.count(HELD).await == 1 && bed.count(&waiting_for("archived_day")).await > 0
    })
    .await;
    holder
        .batch_execute("BEGIN; LOCK TABLE lanekeeper.stream IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    before.batch_execute("COMMIT").await.unwrap();
    wait_until(LIMIT, "it reads", async || {
        bed.count(&waiting_for("stream")).await > 0 && names(&folder).len() == 1
    })
    .await;
    assert!(names(&folder)[0].ends_with(".tmp"));
    worker.stop().await;
    holder.batch_execute("COMMIT").await.unwrap();
    wait_until(LIMIT, "the archive is let go", async || {
        bed.count(HELD).await == 0 && names(&folder).is_empty()
    })
    .await;
    assert_eq!(bed.count(ON_RECORD).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_gone_keeps_the_day_and_is_told() {
    let (bed, folder) = old_day().await;
    bed.client
        .batch_execute("DELETE FROM lanekeeper.subscription")
        .await
        .unwrap();
    let holder = bed.db.connect().await;
    holder
        .batch_execute("BEGIN; LOCK TABLE lanekeeper.archived_day IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let path = folder.path().join("archive");
    let variables = [
        ("LANEKEEPER_RETENTION__ARCHIVE_DIR", path.to_str().unwrap()),
        ("LANEKEEPER_WORKER__REGISTRY", "false"),
    ];
    let worker = WorkerProcess::spawn(bed.db.url(), 0, "", &variables);
    worker.serves().await;
    assert!(path.is_dir());
    wait_until(LIMIT, "it looks for a day", async || {
        bed.count(&waiting_for("archived_day")).await == 1
    })
    .await;
    std::fs::remove_dir(&path).unwrap();
    holder.batch_execute("COMMIT").await.unwrap();
    wait_until(LIMIT, "it says so", async || {
        worker.logged("Nothing is lost")
    })
    .await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answer = reqwest::get(worker.http() + "/metrics").await.unwrap();
    let metrics = answer.text().await.unwrap();
    let failures =
        |line: &str| line.starts_with("lanekeeper_archive_failures") && line.ends_with(" 1");
    assert!(metrics.lines().any(failures), "{metrics}");
    assert!(worker.log().contains(path.to_str().unwrap()));
    worker.stop().await;
    assert!(!path.exists(), "what may have been mounted is not made");
    stays(&bed).await;
    assert_eq!(bed.count(EVENTS).await, 1);
}

#[tokio::test]
async fn a_worker_does_not_start_with_an_archive_that_it_cannot_write_to() {
    let (bed, folder) = old_day().await;
    let file = folder.path().join("a file");
    File::create(&file).unwrap();
    let settings = WorkerSettings {
        archive_dir: Some(file.clone()),
        ..WorkerSettings::default()
    };
    struct Nothing;
    impl lanekeeper_engine::DestinationSource for Nothing {
        fn build(
            &self,
            _subscription: &lanekeeper_postgres::subscription::Subscription,
        ) -> Result<lanekeeper_engine::Destination, Box<dyn std::error::Error + Send + Sync>>
        {
            Err("no worker gets here".into())
        }
    }
    let started = lanekeeper_engine::Worker::start(
        bed.db.url().parse().unwrap(),
        settings,
        std::sync::Arc::new(Nothing),
    )
    .await;
    let Err(error @ StartError::Archive(_)) = started else {
        panic!("it started");
    };
    let said = error.to_string();
    assert!(said.contains(file.to_str().unwrap()), "{said}");
    assert!(said.contains("retention.archive_dir"), "{said}");
}

#[tokio::test]
async fn what_the_dead_left_behind_goes_after_a_day_and_nothing_else() {
    let (bed, folder) = old_day().await;
    let left = "events-2026-01-02.jsonl.gz.0.tmp";
    let (fresh, others) = ("events-2026-01-03.jsonl.gz.0.tmp", "others.tmp");
    for name in [left, fresh, others] {
        let file = File::create(folder.path().join(name)).unwrap();
        if name != fresh {
            let old = std::time::SystemTime::now() - std::time::Duration::from_secs(90_000);
            file.set_modified(old).unwrap();
        }
    }
    archive_by_worker(&bed, &folder).await;
    assert_eq!(names(&folder), [fresh, &name(&bed, "").await, others]);
}

/// By a clock that was set back: the row and the file of the first time stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_day_that_comes_again_after_its_drop_has_a_file_of_its_own() {
    let (bed, folder) = old_day().await;
    archive_by_worker(&bed, &folder).await;
    goes(&bed).await;
    bed.enqueue("s1", "again").await;
    age(&bed).await;
    settle(&bed).await;
    stays(&bed).await;
    archive_by_worker(&bed, &folder).await;
    goes(&bed).await;
    for (added, seq) in [("", 1), (".2", 2)] {
        let events = read(&folder.path().join(name(&bed, added).await));
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].2, seq);
    }
    let files = "SELECT count(*) FROM lanekeeper.archived_day WHERE dropped_at IS NOT NULL";
    assert_eq!(bed.count(files).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_and_as_workers_of_the_last_release_ask_days_just_go() {
    let (bed, _) = old_day().await;
    let worker = bed.worker().await;
    wait_until(LIMIT, "the day goes", async || {
        bed.count("SELECT partitions_dropped FROM lanekeeper.maintain_log(7, 30)")
            .await;
        bed.count(EVENTS).await == 0
    })
    .await;
    worker.stop().await;
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.archived_day")
            .await,
        0
    );
}

#[tokio::test]
async fn a_day_that_a_lane_needs_is_not_archived_and_none_is_behind_it() {
    let (bed, folder) = old_day().await;
    bed.client
        .batch_execute(&format!(
            "SELECT lanekeeper.create_event_partition({OLD} - 1);
             INSERT INTO lanekeeper.event SELECT (e).* FROM (
                 SELECT jsonb_populate_record(e, jsonb_build_object('seq', 2, 'day', {OLD} - 1)) AS e
                 FROM lanekeeper.event AS e) AS e;
             UPDATE lanekeeper.progress SET cursor = 1, parked_at = now()"
        ))
        .await
        .unwrap();
    let next = include_str!("../../../src/postgres/sql/archive_day.sql");
    assert!(bed.client.query_opt(next, &[&7]).await.unwrap().is_none());
    assert_eq!(archive::waiting(&bed.client, 7).await.unwrap(), 2);
    settle(&bed).await;
    assert!(bed.client.query_opt(next, &[&7]).await.unwrap().is_some());
    assert!(names(&folder).is_empty());
}
