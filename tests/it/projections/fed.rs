//! A9: what the function writes commits with the settlement of its events, through crashes and takeovers.

use std::time::Duration;

use super::bed::{Bed, COUNT, LIMIT};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_hand_each_event_to_the_function_once_and_in_order() {
    let bed = Bed::new(COUNT).await;
    let workers = [bed.worker().await, bed.worker().await];
    for _ in 0..3 {
        bed.enqueue(6, 70).await;
    }
    bed.drained().await;
    bed.assert_exact(6, 210).await;
    let sent = "SELECT coalesce(sum(sent), 0)::bigint FROM lanekeeper.message_count";
    bed.until("they are counted as sent", sent, 6 * 210).await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[cfg(feature = "crash-points")]
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_at_any_point_leaves_each_effect_once() {
    let bed = Bed::new(COUNT).await;
    let points = [
        "delivering:2",
        "delivered:2",
        "settling:2",
        "committing:1",
        "committing:3",
        "settled:2",
    ];
    for point in points {
        bed.enqueue(3, 4).await;
        let mut worker = bed.worker_with(&[("CRASH_POINT", point)]).await;
        wait_until(
            LIMIT,
            "it is killed there, or has handled everything",
            async || {
                worker.has_ended() || bed.count("SELECT count(*) FROM lanekeeper.ready").await == 0
            },
        )
        .await;
        worker.kill().await;
    }
    let survivor = bed.worker().await;
    bed.drained().await;
    bed.assert_exact(3, 24).await;
    survivor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_at_random_leave_each_effect_once() {
    let bed = Bed::new(&format!("PERFORM pg_sleep(0.002); {COUNT}")).await;
    let worker = bed.worker().await;
    bed.enqueue(5, 60).await;
    for round in 0..12 {
        // The lane's and the projection's, in turns.
        let name = ["lanekeeper projections", "lanekeeper projection"][round % 2];
        let cut = format!(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = '{name}'"
        );
        bed.count(&cut).await;
        let seen = bed.count("SELECT count(*) FROM shop.seen").await;
        wait_until(LIMIT, "it goes on", async || {
            let now = bed.count("SELECT count(*) FROM shop.seen").await;
            now > seen || now == 300
        })
        .await;
    }
    bed.drained().await;
    bed.assert_exact(5, 60).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_filtered_is_passed_and_the_rest_is_handed_over() {
    let bed = Bed::bare().await;
    bed.define(COUNT).await;
    bed.apply("events = [\"wanted\"]").await;
    for kind in ["other", "wanted", "other", "wanted", "other"] {
        let enqueue = format!("SELECT seq FROM lanekeeper.enqueue('runs', 's1', '{kind}', '{{}}')");
        bed.count(&enqueue).await;
    }
    let worker = bed.worker().await;
    let cursor = "SELECT max(cursor) FROM lanekeeper.progress";
    bed.until("the cursor passes them", cursor, 5).await;
    let seqs = "SELECT string_agg(seq::text, ',' ORDER BY id) FROM shop.seen";
    assert_eq!(bed.text(seqs).await, "2,4");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_a_projection_is_behind_is_listed_and_shown() {
    let bed = Bed::new(COUNT).await;
    bed.enqueue(2, 3).await;
    let url = [("DATABASE_URL", bed.db.url())];
    let list = ["projection", "list", "--output", "json"];
    let listed = crate::command::run(&list, &url, "").await;
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(
        (
            &listed["projection"],
            &listed["behind"],
            &listed["function"]
        ),
        (&"totals".into(), &6.into(), &"shop.count_order".into())
    );
    assert!(listed["oldest_undelivered_age_s"].as_f64().unwrap() < LIMIT.as_secs_f64());
    let worker = bed.worker().await;
    bed.drained().await;
    let shown = crate::command::run(&["projection", "show", "totals"], &url, "").await;
    assert!(shown.stdout.contains("delivering"), "{}", shown.stdout);
    assert!(
        shown.stdout.contains("tables: seen, total"),
        "{}",
        shown.stdout
    );
    let unknown = crate::command::run(&["projection", "show", "nope"], &url, "").await;
    assert_eq!(unknown.code, Some(1), "{}", unknown.stderr);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_that_takes_its_time_does_not_hold_up_the_agent_registry() {
    let bed = Bed::new("PERFORM pg_sleep(3);").await;
    let worker = bed.worker().await;
    bed.enqueue(1, 1).await;
    let sleeping = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'lanekeeper projection' AND state = 'active'";
    bed.until("the function runs", sleeping, 1).await;
    let start = r#"SELECT seq FROM lanekeeper.enqueue('hooks', 'claude:1', 'session_start',
        '{"session_id": "1", "hook_event_name": "SessionStart", "source": "startup"}')"#;
    bed.count(start).await;
    let known = async || {
        bed.count("SELECT count(*) FROM lanekeeper.agent_session")
            .await
            == 1
    };
    wait_until(Duration::from_secs(2), "the registry has it", known).await;
    assert_eq!(bed.count(sleeping).await, 1, "and the function still ran");
    worker.stop().await;
}
