//! The subscription of the agent registry: which workers add it, remove it, or leave it unchanged.

use std::time::Duration;

use lanekeeper_core::subscription::ChangeKind;
use lanekeeper_core::subscription::built_in::REGISTRY;
use lanekeeper_postgres::operate;
use lanekeeper_postgres::subscription::{self, BuiltInError};
use serde_json::json;

use super::{Office, install};
use crate::command::run;
use crate::process::plant::{LIMIT, Plant};
use crate::support::{TestDb, wait_until};

const OTHER: &str = "[subscription.out]\nstream = \"hooks\"\nadapter = \"stdout\"\n";

#[tokio::test]
async fn it_is_put_in_force_once_and_taken_out_and_comes_back_where_it_was() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let created = install(&mut client).await.unwrap();
    assert_eq!(created.change, ChangeKind::Created);
    let again = install(&mut client).await.unwrap();
    assert_eq!(
        (again.change, again.subscription_id),
        (ChangeKind::Unchanged, created.subscription_id)
    );
    let removed = subscription::remove(&mut client, REGISTRY).await.unwrap();
    assert_eq!(
        (removed.change, removed.subscription_id),
        (ChangeKind::Removed, None)
    );
    let nothing = subscription::remove(&mut client, REGISTRY).await.unwrap();
    assert_eq!(nothing.change, ChangeKind::Unchanged);
    let back = install(&mut client).await.unwrap();
    assert_eq!(
        (back.change, back.subscription_id),
        (ChangeKind::Revived, created.subscription_id)
    );
    let versions = "SELECT count(*) FROM lanekeeper.subscription_version";
    let versions: i64 = client.query_one(versions, &[]).await.unwrap().get(0);
    assert_eq!(versions, 3, "each change is on record");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_start_together_put_it_in_force_once() {
    let db = TestDb::new().await;
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut client = db.connect().await;
        starting.spawn(async move { install(&mut client).await.unwrap().change });
    }
    let changes = starting.join_all().await;
    let created = changes
        .iter()
        .filter(|change| **change == ChangeKind::Created);
    assert_eq!(created.count(), 1, "{changes:?}");
    assert!(
        changes
            .iter()
            .all(|change| matches!(change, ChangeKind::Created | ChangeKind::Unchanged))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_while_it_was_off_is_entered_when_it_is_on_again() {
    let mut office = Office::new().await;
    let prompt = json!({"session_id": "s", "prompt": "p"});
    office.enqueue("s", "user_prompt_submit", &prompt).await;
    office.work().await;
    subscription::remove(&mut office.client, REGISTRY)
        .await
        .unwrap();
    office.enqueue("s", "user_prompt_submit", &prompt).await;
    // A session that only ever was while it was off.
    office.enqueue("new", "user_prompt_submit", &prompt).await;
    let back = install(&mut office.client).await.unwrap();
    let id = back.subscription_id.unwrap();
    subscription::add_lanes(&office.client, id, 0, 100)
        .await
        .unwrap();
    office.work().await;
    assert_eq!(office.entry("s").await.unwrap()["turn"], 2);
    assert_eq!(office.entry("new").await.unwrap()["turn"], 1);
}

#[tokio::test]
async fn a_file_neither_prunes_nor_names_it() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    install(&mut client).await.unwrap();
    let url = [("DATABASE_URL", db.url())];
    let ran = run(&["apply", "-f", "-", "--prune"], &url, OTHER).await;
    assert_eq!(
        (ran.code, &*ran.stdout),
        (Some(0), "+ out (stdout)\n"),
        "{}",
        ran.stderr
    );
    let ran = run(&["apply", "-f", "-"], &url, "").await;
    assert!(ran.stderr.contains("left alone: out ("), "{}", ran.stderr);
    for (text, told) in [
        (
            OTHER.replace(".out", ".registry"),
            "\"registry\" is Lanekeeper's own",
        ),
        (OTHER.replace("stdout", "registry"), "needs no section"),
    ] {
        let ran = run(&["apply", "-f", "-", "--prune"], &url, &text).await;
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("LANEKEEPER_WORKER__REGISTRY=false"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(
        install(&mut client).await.unwrap().change,
        ChangeKind::Unchanged
    );
}

#[tokio::test]
async fn a_subscription_that_had_the_name_before_keeps_it() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    client
        .batch_execute(
            "INSERT INTO lanekeeper.subscription (stream_id, name, adapter, retry_schedule_ms, max_attempts, on_exhausted, coalesce)
             SELECT stream_id, 'registry', 'stdout', '{1000}', 0, 'park', false FROM lanekeeper.stream WHERE name = 'runs'",
        )
        .await
        .unwrap();
    let refused = install(&mut client).await.unwrap_err();
    assert!(matches!(refused, BuiltInError::NameTaken(_)));
    let removed = subscription::remove(&mut client, REGISTRY).await.unwrap();
    assert_eq!(removed.change, ChangeKind::Unchanged);
    let url = [("DATABASE_URL", db.url())];
    let mine = "[subscription.registry]\nstream = \"runs\"\nadapter = \"stdout\"\n";
    let ran = run(&["apply", "-f", "-"], &url, mine).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_switches_it_on_and_one_that_is_told_so_off() {
    let plant = Plant::of("hooks", TestDb::new().await, Duration::ZERO).await;
    let session = "SELECT lanekeeper.enqueue('hooks', 'before', 'agent_stop', '{\"session_id\": \"before\"}')";
    plant.client.batch_execute(session).await.unwrap();
    let on = plant.worker(&[]).await;
    assert!(on.logged("registry is switched on"), "{}", on.log());
    // Also a session that nothing comes of any more.
    wait_until(LIMIT, "the session is entered", async || {
        plant
            .count("SELECT count(*) FROM lanekeeper.agent_session")
            .await
            == 1
    })
    .await;
    let second = plant.worker(&[]).await;
    assert!(!second.logged("registry"), "{}", second.log());
    let off = plant
        .worker(&[("LANEKEEPER_WORKER__REGISTRY", "false")])
        .await;
    let live = "SELECT count(*) FROM lanekeeper.subscription WHERE name = 'registry' AND removed_at IS NULL";
    assert_eq!(plant.count(live).await, 0);
    for worker in [on, second, off] {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_it_waits_and_other_destinations_do_not() {
    let plant = Plant::of("hooks", TestDb::new().await, Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    operate::pause_subscription(&plant.client, REGISTRY, "look")
        .await
        .unwrap();
    let prompt = "SELECT lanekeeper.enqueue('hooks', 's', 'user_prompt_submit', '{\"session_id\": \"s\", \"prompt\": \"p\"}')";
    plant.client.batch_execute(prompt).await.unwrap();
    plant
        .receiver
        .wait_until(LIMIT, "it is relayed", |seen| seen.arrivals.len() == 1)
        .await;
    operate::resume_subscription(&plant.client, REGISTRY)
        .await
        .unwrap();
    plant.settled().await;
    let entries = "SELECT count(*) FROM lanekeeper.agent_session WHERE turn_state = 'running'";
    assert_eq!(plant.count(entries).await, 1);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_notifications_are_relayed_and_activity_is_not() {
    let plant = Plant::of("hooks", TestDb::new().await, Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    for event_type in ["tool_use", "notification", "tool_done", "error", "tool_use"] {
        let payload = json!({"session_id": "s", "message": "m"});
        plant
            .client
            .execute(
                "SELECT lanekeeper.enqueue('hooks', 's', $1, $2)",
                &[&event_type, &tokio_postgres::types::Json(payload)],
            )
            .await
            .unwrap();
    }
    plant.settled().await;
    let seen = plant.receiver.seen();
    let (arrived, _) = seen.deduplicated();
    assert_eq!(arrived["s"], [2, 4]);
    let last = "SELECT seq FROM lanekeeper.agent_session WHERE last_activity = 'tool_use' AND last_error = 'm'";
    assert_eq!(plant.count(last).await, 5);
    assert!(worker.stop().await.success());
}
