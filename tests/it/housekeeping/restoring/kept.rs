//! What a restored day is not: undelivered, archived again, or there for ever.

use lanekeeper_postgres::replay::Change;
use lanekeeper_postgres::restore::drop_days;

use super::*;
use crate::command::{command, run};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_restored_day_counts_as_undelivered() {
    let archived = Archived::and_more().await;
    let bed = &archived.bed;
    // A subscription of which no session has a lane yet, from the earliest event; and a bound that one event fills.
    let more = "INSERT INTO lanekeeper.subscription
            (stream_id, name, adapter, start_from, retry_schedule_ms, max_attempts, on_exhausted, coalesce)
        SELECT stream_id, 'all', 'fake', 'earliest', '{50}', 0, 'dead_letter', false
        FROM lanekeeper.stream WHERE name = 'runs';
        UPDATE lanekeeper.stream SET lanes_version = lanes_version + 1, bounded = true WHERE name = 'runs';
        UPDATE lanekeeper.subscription SET max_pending = 1 WHERE name = 'out'";
    bed.client.batch_execute(more).await.unwrap();
    archived.restore().await;
    assert_eq!(bed.count(RESTORED).await, 3 * OLD);
    let of_out = "SELECT coalesce(sum(behind), 0)::bigint FROM lanekeeper.lane_status WHERE subscription = 'out'";
    assert_eq!(bed.count(of_out).await, 0);
    let key = "SELECT seq FROM lanekeeper.enqueue('runs', 's1', 'step', '1', dedupe_key => 'k')";
    for _ in 0..2 {
        assert_eq!(bed.count(key).await, OLD + NEW + 1, "the next seq, once");
    }
    let full = bed
        .client
        .query_one("SELECT lanekeeper.enqueue('runs', 's1', 'step', '1')", &[])
        .await;
    assert_eq!(full.unwrap_err().code().unwrap().code(), "LK001");
    assert_eq!(bed.count(of_out).await, 1);
    let before = delivered(bed);
    deliver(bed).await;
    // To `out` the new event; to `all` what the log has of each session, as before.
    let expected = 1 + 3 * usize::try_from(NEW).unwrap() + 1;
    assert_eq!(delivered(bed) - before, expected);
    assert!(replayed(bed, "s1").is_empty(), "nobody asked for a replay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_day_goes_after_its_time_unless_a_replay_needs_it() {
    let archived = Archived::with("").await;
    let bed = &archived.bed;
    archived.restore().await;
    assert_eq!(drop_days(&bed.client).await.unwrap(), 0, "it is kept");
    let id = start(bed, &all(), &FAST).await;
    let over =
        "UPDATE lanekeeper.restored_file SET keep_until = clock_timestamp() - interval '1 s'";
    bed.client.batch_execute(over).await.unwrap();
    replay::change(&bed.client, id, Change::Pause, None)
        .await
        .unwrap();
    assert_eq!(
        drop_days(&bed.client).await.unwrap(),
        0,
        "a replay needs it"
    );
    replay::change(&bed.client, id, Change::Cancel, None)
        .await
        .unwrap();
    wait_until(LIMIT, "the day goes", async || {
        drop_days(&bed.client).await.unwrap() == 1
    })
    .await;
    let left = (bed.count(RESTORED).await, bed.count(PARTITIONS).await);
    assert_eq!(left, (0, 0));
    // Its file is the archive, as before.
    let files = "SELECT count(*) FROM lanekeeper.archived_day";
    assert_eq!(
        (bed.count(files).await, names(&archived.folder).len()),
        (1, 1)
    );
    archived.restore().await;
    assert_eq!(bed.count(RESTORED).await, 3 * OLD);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_drops_restored_days_and_archives_nothing_again() {
    let archived = Archived::with("").await;
    let bed = &archived.bed;
    archived.restore().await;
    let over =
        "UPDATE lanekeeper.restored_file SET keep_until = clock_timestamp() - interval '1 s'";
    bed.client.batch_execute(over).await.unwrap();
    let worker = bed
        .worker_with(super::super::archive::to(&archived.folder))
        .await;
    wait_until(LIMIT, "the day goes", async || {
        bed.count(PARTITIONS).await == 0
    })
    .await;
    worker.stop().await;
    assert_eq!(names(&archived.folder).len(), 1);
}

#[cfg(feature = "crash-points")]
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_killed_leaves_nothing_and_is_done_again() {
    let archived = Archived::with("").await;
    let bed = &archived.bed;
    let file = archived.file();
    let restore = ["archive", "restore", file.to_str().unwrap()];
    let database = ("DATABASE_URL", bed.db.url());
    let killed = command(&restore, &[database, ("CRASH_POINT", "daycopied:1")]);
    let status = { killed }.status().await.unwrap();
    assert_eq!(status.code(), None, "by a signal");
    let nothing = async || (bed.count(RESTORED).await, bed.count(PARTITIONS).await) == (0, 0);
    wait_until(LIMIT, "its transaction is rolled back", nothing).await;
    let listed = run(&["archive", "list"], &[database], "").await;
    assert!(listed.stdout.contains(" archived "), "{}", listed.stdout);

    let done = run(&restore, &[database], "").await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let said = format!("{} events of 3 sessions", 3 * OLD);
    assert!(done.stdout.contains(&said), "{}", done.stdout);
    assert_eq!(bed.count(RESTORED).await, 3 * OLD);
    let listed = run(&["archive", "list"], &[database], "").await;
    assert!(
        listed.stdout.contains("restored until"),
        "{}",
        listed.stdout
    );
    let again = run(&restore, &[database], "").await;
    assert_eq!(again.code, Some(1));
    assert!(
        again.stderr.contains("restored already"),
        "{}",
        again.stderr
    );
}
