//! What happens in the middle of a rebuild: calls that take too long, changes, its end; and what its switch costs others.

use std::time::Duration;

use super::bed::{Bed, COUNT, LIMIT};
use super::rebuilt::{SHADOWS, rebuilt};
use crate::command::command;
use crate::support::wait_until;

/// Waits in the function, in a rebuild, for the test.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND wait_event = 'advisory' AND application_name = 'lanekeeper projection'";

#[tokio::test(flavor = "multi_thread")]
async fn events_that_take_too_long_together_are_rebuilt_in_smaller_parts_and_a_killed_rebuild_goes_on()
 {
    // 200 of them take 800 ms and more.
    let slow = format!(
        "PERFORM pg_sleep(0.004) WHERE current_setting('search_path') LIKE '%rebuild%'; {COUNT}"
    );
    let bed = Bed::bare().await;
    bed.define(&slow).await;
    bed.apply("timeout = \"300ms\"").await;
    let worker = bed.worker().await;
    bed.enqueue(2, 250).await;
    bed.drained().await;
    let id = bed
        .count("SELECT subscription_id::bigint FROM lanekeeper.subscription WHERE name = 'totals'")
        .await;
    let done = format!(
        "SELECT coalesce(sum(seq), 0)::bigint FROM lanekeeper_rebuild_{id}.lanekeeper_done"
    );
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
    bed.client
        .batch_execute("DELETE FROM shop.seen WHERE seq = 3")
        .await
        .unwrap();
    let report = rebuilt(&bed, &[]).await;
    assert_eq!(report["resumed"], true);
    assert!(report["events"].as_i64().unwrap() < 500, "{report}");
    bed.assert_exact(2, 250).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_events_the_one_that_is_refused_is_named_and_those_before_it_are_done() {
    let refusing = format!(
        "IF event ->> 'seq' = '37' AND NOT EXISTS (SELECT FROM allowed) THEN RAISE 'no order'; END IF; {COUNT}"
    );
    let bed = Bed::bare().await;
    let allowed = format!(
        "CREATE TABLE shop.allowed (yes boolean); INSERT INTO shop.allowed VALUES (true);
         GRANT SELECT ON shop.allowed TO {}",
        bed.role.name
    );
    bed.client.batch_execute(&allowed).await.unwrap();
    bed.define(&refusing).await;
    bed.apply("").await;
    let worker = bed.worker().await;
    bed.enqueue(1, 60).await;
    bed.drained().await;
    let before = bed.read_model().await;
    bed.client
        .batch_execute("DELETE FROM shop.allowed")
        .await
        .unwrap();
    let ran = bed.rebuild(&[]).await;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let told = "event 37 of session \"s1\": no order";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    assert_eq!(bed.read_model().await, before);
    // Not the function is mended, but what it needs: the rebuild goes on.
    bed.client
        .batch_execute("INSERT INTO shop.allowed VALUES (true)")
        .await
        .unwrap();
    let report = rebuilt(&bed, &[]).await;
    assert_eq!(
        (&report["resumed"], &report["events"]),
        (&true.into(), &24.into())
    );
    bed.assert_exact(1, 60).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_at_which_the_function_traps_its_cancellation_is_named_and_its_backend_is_ended() {
    let clinging = format!(
        "IF event ->> 'seq' = '3' AND current_setting('search_path') LIKE '%rebuild%' THEN
             LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP;
         END IF; {COUNT}"
    );
    let bed = Bed::bare().await;
    bed.define(&clinging).await;
    bed.apply("timeout = \"500ms\"").await;
    let worker = bed.worker().await;
    bed.enqueue(1, 3).await;
    bed.drained().await;
    let ran = bed.rebuild(&[]).await;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let told = "event 3 of session \"s1\": the function did not end within 500ms, nor when it was cancelled";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    let running = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'lanekeeper projection' AND wait_event = 'PgSleep'";
    assert_eq!(bed.count(running).await, 0);
    bed.assert_exact(1, 3).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_or_filter_that_changes_while_it_is_rebuilt_mixes_nothing_and_the_next_call_begins_anew()
 {
    let noting = |note: &str| {
        format!(
            "IF event ->> 'session' = 's2' AND current_setting('search_path') LIKE '%rebuild%' THEN
                 PERFORM pg_advisory_xact_lock(77);
             END IF;
             {COUNT} UPDATE total AS t SET note = '{note}' WHERE t.session = event ->> 'session';"
        )
    };
    let patient = "timeout = \"60s\"";
    let bed = Bed::bare().await;
    bed.define(&noting("old")).await;
    bed.apply(patient).await;
    let worker = bed.worker().await;
    bed.enqueue(3, 3).await;
    bed.drained().await;
    let before = bed.read_model().await;
    for changed in ["function", "function and back", "filter"] {
        bed.client
            .batch_execute("SELECT pg_advisory_lock(77)")
            .await
            .unwrap();
        let (ran, ()) = tokio::join!(bed.rebuild(&[]), async {
            bed.until("it is in the middle", WAITING, 1).await;
            match changed {
                "function" => bed.define(&noting("new")).await,
                "function and back" => {
                    bed.define(&noting("other")).await;
                    bed.define(&noting("new")).await;
                }
                _ => {
                    let filter = format!("{patient}\nevents = [\"step\", \"other\"]");
                    bed.apply(&filter).await;
                }
            }
            bed.client
                .batch_execute("SELECT pg_advisory_unlock(77)")
                .await
                .unwrap();
        });
        assert_eq!(ran.code, Some(1), "{changed}: {}", ran.stderr);
        let told = "changed while it was rebuilt";
        assert!(ran.stderr.contains(told), "{changed}: {}", ran.stderr);
        assert_eq!(bed.read_model().await, before, "{changed}");
        assert_eq!(bed.count(SHADOWS).await, 0, "{changed}");
    }
    let report = rebuilt(&bed, &[]).await;
    assert_eq!(
        (&report["resumed"], &report["events"]),
        (&false.into(), &9.into())
    );
    bed.assert_exact(3, 3).await;
    let new = "SELECT count(*) FROM shop.total WHERE note = 'new'";
    assert_eq!(bed.count(new).await, 3);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_projection_is_switched_the_others_of_its_worker_are_fed() {
    let bed = Bed::bare().await;
    bed.define(COUNT).await;
    let other = format!(
        "CREATE TABLE shop.other (seq bigint); GRANT INSERT ON shop.other TO {};
         CREATE FUNCTION shop.count_other(event jsonb) RETURNS void LANGUAGE plpgsql AS $f$
         BEGIN INSERT INTO other VALUES ((event ->> 'seq')::bigint); END $f$",
        bed.role.name
    );
    bed.client.batch_execute(&other).await.unwrap();
    // A lane that waited for the switch would wait for longer than the test.
    bed.apply(&format!(
        "timeout = \"60s\"
         retry = {{ schedule = [\"10ms\"], max_attempts = 1 }}
         [stream.audit]
         [subscription.others]
         stream = \"audit\"
         adapter = \"projection\"
         start = \"earliest\"
         function = \"shop.count_other\"
         role = \"{}\"
         url_env = \"SHOP_URL\"",
        bed.role.name
    ))
    .await;
    // As a switch does.
    let lock = |verb: &str| {
        format!(
            "SELECT {verb}(lanekeeper.projection_lock(s.subscription_id::bigint))
             FROM lanekeeper.subscription AS s WHERE s.name = 'totals'"
        )
    };
    bed.client
        .batch_execute(&lock("pg_advisory_lock"))
        .await
        .unwrap();
    let worker = bed.worker().await;
    bed.enqueue(30, 1).await;
    let told = "SELECT (count(*) > 0)::int::bigint FROM lanekeeper.lane_status WHERE last_error LIKE '%is being switched%'";
    bed.until("its lanes say what they wait for", told, 1).await;
    for seq in 1..=3 {
        bed.count("SELECT seq FROM lanekeeper.enqueue('audit', 's1', 'step', '{}')")
            .await;
        wait_until(Duration::from_secs(10), "the other is fed", async || {
            bed.count("SELECT count(*) FROM shop.other").await == seq
        })
        .await;
    }
    assert_eq!(bed.count("SELECT count(*) FROM shop.seen").await, 0);
    bed.client
        .batch_execute(&lock("pg_advisory_unlock"))
        .await
        .unwrap();
    bed.drained().await;
    bed.assert_exact(30, 1).await;
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.dead").await, 0);
    worker.stop().await;
}
