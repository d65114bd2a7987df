//! F4: a projection is rebuilt from the log, beside the one that readers see, and switched in one transaction.

use serde_json::Value;

use super::bed::{Bed, COUNT, LIMIT};
use crate::command::{command, run};
use crate::support::wait_until;

pub(super) const SHADOWS: &str =
    "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'lanekeeper_rebuild_%'";

pub(super) async fn rebuilt(bed: &Bed, more: &[&str]) -> Value {
    let ran = bed.rebuild(&[more, &["--output", "json"]].concat()).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rebuilds_are_equal_row_for_row_and_tell_what_was_told_live() {
    let bed = Bed::new(COUNT).await;
    let worker = bed.worker().await;
    bed.enqueue(4, 150).await;
    bed.drained().await;
    // Somebody broke the read model.
    bed.client
        .batch_execute("UPDATE shop.total SET count = 7; DELETE FROM shop.seen WHERE seq = 3; INSERT INTO shop.seen (session) VALUES ('x')")
        .await
        .unwrap();
    let mut models = Vec::new();
    for _ in 0..2 {
        let report = rebuilt(&bed, &[]).await;
        assert_eq!(
            (&report["events"], &report["lanes"]),
            (&600.into(), &4.into())
        );
        models.push(bed.read_model().await);
        bed.assert_exact(4, 150).await;
    }
    assert_eq!(models[0], models[1]);
    assert_eq!(bed.count(SHADOWS).await, 0);
    // Identity columns go on behind the rows that are there.
    bed.enqueue(4, 1).await;
    bed.drained().await;
    bed.assert_exact(4, 151).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_of_a_function_that_appends_is_refused_and_appends_nothing() {
    let bed = Bed::bare().await;
    let appends = "PERFORM lanekeeper.enqueue('audit', event ->> 'session', 'seen', '{}');";
    bed.define(&format!("{COUNT} {appends}")).await;
    let granted = format!(
        "GRANT EXECUTE ON FUNCTION lanekeeper.enqueue TO {}",
        bed.role.name
    );
    bed.client.batch_execute(&granted).await.unwrap();
    bed.apply("[stream.audit]").await;
    let worker = bed.worker().await;
    bed.enqueue(2, 5).await;
    bed.drained().await;
    let appended = "SELECT count(*) FROM lanekeeper.event
        JOIN lanekeeper.session AS s USING (session_id) JOIN lanekeeper.stream AS t USING (stream_id) WHERE t.name = 'audit'";
    assert_eq!(bed.count(appended).await, 10);
    let before = bed.read_model().await;
    let ran = bed.rebuild(&[]).await;
    assert_ne!(ran.code, Some(0), "{}", ran.stdout);
    assert!(ran.stderr.contains("appends events"), "{}", ran.stderr);
    assert_eq!(bed.count(appended).await, 10);
    assert_eq!(bed.read_model().await, before);
    worker.stop().await;
}

/// What a projection is handed twice, it counts twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_becomes_a_projection_ends_its_replay() {
    let bed = Bed::bare().await;
    bed.define(COUNT).await;
    let url = [("DATABASE_URL", bed.db.url())];
    let printed =
        "[subscription.totals]\nstream = \"runs\"\nadapter = \"stdout\"\nstart = \"earliest\"";
    let applied = run(&["apply", "-f", "-"], &url, printed).await;
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    let worker = bed.worker().await;
    bed.enqueue(1, 20).await;
    bed.drained().await;
    let args = ["replay", "start", "totals", "--all", "--rate", "2/s"];
    let ran = run(&args, &url, "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let under_way = "SELECT count(*) FROM lanekeeper.replay_lane WHERE delivered > 0";
    bed.until("it is under way", under_way, 1).await;
    bed.apply("").await;
    let ended =
        "SELECT count(*) FROM lanekeeper.replay WHERE ended_at IS NOT NULL AND ending = 'removed'
                 AND end_reason LIKE '%is a projection now'";
    bed.until("the replay ended", ended, 1).await;
    bed.enqueue(1, 1).await;
    bed.drained().await;
    assert_eq!(bed.count("SELECT count(*) FROM shop.seen").await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_a_projection_is_refused_and_counts_nothing_twice() {
    let bed = Bed::new(COUNT).await;
    let worker = bed.worker().await;
    bed.enqueue(2, 10).await;
    bed.drained().await;
    let url = [("DATABASE_URL", bed.db.url())];
    for more in [&[][..], &["--dry-run"]] {
        let args = [&["replay", "start", "totals", "--all"], more].concat();
        let ran = run(&args, &url, "").await;
        assert_ne!(ran.code, Some(0), "{}", ran.stdout);
        let says = &ran.stderr;
        assert!(says.contains("'totals' is a projection"), "{says}");
        assert!(says.contains("lanekeeper projection rebuild"), "{says}");
    }
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.replay").await, 0);
    bed.enqueue(2, 1).await;
    bed.drained().await;
    bed.assert_exact(2, 11).await;
    // The name is free for another subscription once it is removed.
    let hook =
        "[subscription.totals]\nstream = \"runs\"\nadapter = \"stdout\"\nstart = \"earliest\"";
    let removed = run(&["apply", "-f", "-", "--prune"], &url, "").await;
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    let applied = run(&["apply", "-f", "-"], &url, hook).await;
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    bed.drained().await;
    let ran = run(
        &["replay", "start", "totals", "--all", "--dry-run"],
        &url,
        "",
    )
    .await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_come_while_it_is_rebuilt_are_told_once() {
    let bed = Bed::new(COUNT).await;
    let workers = [bed.worker().await, bed.worker().await];
    bed.enqueue(5, 100).await;
    bed.drained().await;
    let (report, ()) = tokio::join!(rebuilt(&bed, &[]), async {
        for _ in 0..40 {
            bed.enqueue(5, 5).await;
        }
    });
    assert_eq!(report["resumed"], false);
    bed.drained().await;
    bed.assert_exact(5, 300).await;
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_feeds_the_projection_is_waited_for_by_the_switch() {
    let bed = Bed::bare().await;
    bed.define(COUNT).await;
    bed.apply("timeout = \"60s\"").await;
    let worker = bed.worker().await;
    bed.enqueue(1, 3).await;
    bed.drained().await;
    // What it has written is in no cursor yet, and would be gone with the old rows.
    bed.define(&format!(
        "{COUNT} IF current_setting('search_path') NOT LIKE '%rebuild%' THEN PERFORM pg_advisory_xact_lock(77); END IF;"
    ))
    .await;
    bed.client
        .batch_execute("SELECT pg_advisory_lock(77)")
        .await
        .unwrap();
    bed.enqueue(1, 1).await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND wait_event = 'advisory' AND application_name = ";
    let feeds = format!("{waits} 'lanekeeper projection'");
    bed.until("an event is being handled", &feeds, 1).await;
    let (report, ()) = tokio::join!(rebuilt(&bed, &[]), async {
        let switch = format!("{waits} 'lanekeeper'");
        bed.until("the switch waits", &switch, 1).await;
        bed.client
            .batch_execute("SELECT pg_advisory_unlock(77)")
            .await
            .unwrap();
    });
    assert_eq!(report["events"], 4);
    bed.drained().await;
    bed.assert_exact(1, 4).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_that_is_killed_is_gone_on_with_and_one_of_another_function_begins_anew() {
    let slow = format!(
        "PERFORM pg_sleep(0.01) WHERE current_setting('search_path') LIKE '%rebuild%'; {COUNT}"
    );
    let bed = Bed::new(&slow).await;
    let worker = bed.worker().await;
    bed.enqueue(3, 250).await;
    bed.drained().await;
    let before = bed.read_model().await;
    let id = bed
        .count("SELECT subscription_id::bigint FROM lanekeeper.subscription WHERE name = 'totals'")
        .await;
    let done = format!(
        "SELECT coalesce(sum(seq), 0)::bigint FROM lanekeeper_rebuild_{id}.lanekeeper_done"
    );
    let killed = async || {
        let variables = [("DATABASE_URL", bed.db.url()), ("SHOP_URL", bed.role.url())];
        let mut child = command(&["projection", "rebuild", "totals"], &variables)
            .spawn()
            .unwrap();
        wait_until(LIMIT, "some of it is done", async || {
            let rows = bed.client.query_one(&done, &[]).await;
            rows.is_ok_and(|row| row.get::<_, i64>(0) > 0)
        })
        .await;
        child.kill().await.unwrap();
    };
    killed().await;
    assert_eq!(bed.read_model().await, before, "readers see what they saw");
    let report = rebuilt(&bed, &[]).await;
    assert_eq!(report["resumed"], true);
    assert!(report["events"].as_i64().unwrap() < 750, "{report}");
    bed.assert_exact(3, 250).await;

    killed().await;
    bed.define(COUNT).await;
    let report = rebuilt(&bed, &[]).await;
    assert_eq!(
        (&report["resumed"], &report["events"]),
        (&false.into(), &750.into())
    );
    bed.assert_exact(3, 250).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_a_dead_letter_is_left_out_until_it_is_delivered() {
    let refusing = format!("IF event ->> 'seq' = '2' THEN RAISE 'no'; END IF; {COUNT}");
    let bed = Bed::bare().await;
    bed.define(&refusing).await;
    bed.apply("retry = { schedule = [\"10ms\"], max_attempts = 1 }")
        .await;
    bed.enqueue(1, 3).await;
    let worker = bed.worker().await;
    bed.drained().await;
    bed.define(COUNT).await;
    rebuilt(&bed, &[]).await;
    let seqs = "SELECT string_agg(seq::text, ',' ORDER BY id) FROM shop.seen";
    assert_eq!(bed.text(seqs).await, "1,3");
    bed.count("SELECT count(*) FROM lanekeeper.requeue_dead_letters(ARRAY[1])")
        .await;
    bed.until("it is delivered", "SELECT count(*) FROM shop.seen", 3)
        .await;
    rebuilt(&bed, &[]).await;
    assert_eq!(bed.text(seqs).await, "1,2,3");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_that_cannot_be_right_is_refused_and_readers_see_what_they_saw() {
    let bed = Bed::new(COUNT).await;
    let worker = bed.worker().await;
    bed.enqueue(2, 3).await;
    bed.drained().await;
    let before = bed.read_model().await;
    let refused = async |told: &str| {
        let ran = bed.rebuild(&[]).await;
        assert_eq!(ran.code, Some(1), "{told}: {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
        assert_eq!(bed.read_model().await, before, "{told}");
    };
    bed.define(&COUNT.replace("INTO seen", "INTO shop.seen"))
        .await;
    refused("qualified name").await;
    bed.define("IF event ->> 'seq' = '2' THEN RAISE 'no order'; END IF;")
        .await;
    refused("event 2 of session \"s1\": no order").await;
    bed.define(COUNT).await;
    let referring = "CREATE TABLE shop.more (session text REFERENCES shop.total ON DELETE CASCADE)";
    bed.client.batch_execute(referring).await.unwrap();
    refused("other tables refer to the read model").await;
    bed.client
        .batch_execute("DROP TABLE shop.more")
        .await
        .unwrap();
    // As if the day had been dropped.
    let dropped = "DELETE FROM lanekeeper.event WHERE seq = 1";
    bed.client.batch_execute(dropped).await.unwrap();
    refused("--partial").await;
    let report = rebuilt(&bed, &["--partial"]).await;
    assert_eq!(report["lanes"], 2);
    assert_eq!(bed.count("SELECT count(*) FROM shop.seen").await, 4);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_cannot_have_a_rebuild_read_the_events_of_others() {
    let bed = Bed::new(COUNT).await;
    bed.client
        .batch_execute(
            "INSERT INTO lanekeeper.subscription (stream_id, name, adapter, retry_schedule_ms, max_attempts, on_exhausted,
                                                  coalesce, paused_at, pause_reason)
             SELECT stream_id, 'private', 'stdout', '{10}', 0, 'park', false, now(), 'as told by the test'
             FROM lanekeeper.stream WHERE name = 'messages';
             UPDATE lanekeeper.stream SET lanes_version = lanes_version + 1 WHERE name = 'messages';
             SELECT lanekeeper.enqueue('messages', 'private', 'step', '{}')",
        )
        .await
        .unwrap();
    let lane = "SELECT lane_id FROM lanekeeper.lane_status WHERE session = 'private'";
    let lane = bed.count(lane).await;
    let worker = bed.worker().await;
    bed.enqueue(1, 1).await;
    bed.until("it is handled", "SELECT count(*) FROM shop.seen", 1)
        .await;
    // Claims that the foreign event was a dead letter of its own.
    bed.define(&format!(
        "{COUNT} IF current_setting('search_path') LIKE '%rebuild%' THEN
             INSERT INTO lanekeeper_left_out VALUES ({lane}, 1) ON CONFLICT DO NOTHING; END IF;"
    ))
    .await;
    rebuilt(&bed, &[]).await;
    let private = "SELECT count(*) FROM shop.seen WHERE session = 'private'";
    assert_eq!(bed.count(private).await, 0);
    bed.assert_exact(1, 1).await;
    worker.stop().await;
}
