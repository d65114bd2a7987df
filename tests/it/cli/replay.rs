//! D5: `lanekeeper replay`.

use serde_json::json;

use super::{append, run, run_json, subscribed};
use crate::support::TestDb;

/// A subscription `audit` with a session of five events that were delivered.
async fn delivered() -> TestDb {
    let db = subscribed(&["audit"]).await;
    append(&db, "run-1", 5).await;
    append(&db, "run-2", 2).await;
    let settle = "UPDATE lanekeeper.progress SET cursor = 5; DELETE FROM lanekeeper.ready";
    db.connect().await.batch_execute(settle).await.unwrap();
    db
}

#[tokio::test]
async fn what_would_be_replayed_is_counted_and_nothing_is_done() {
    let db = delivered().await;
    let dry = [
        "replay",
        "start",
        "audit",
        "--session",
        "run-*",
        "--dry-run",
    ];
    let counted = run_json(&db, &dry).await.remove(0);
    assert_eq!(
        (
            &counted["sessions"],
            &counted["events"],
            &counted["longest"]
        ),
        (&json!(2), &json!(7), &json!(5))
    );
    assert!(counted["bytes"].as_i64().unwrap() > 0);
    let text = run(&db, &dry).await;
    assert!(text.text().contains("7 events of 2 sessions"), "{text:?}");
    run(&db, &["replay", "list", "--all"]).await.text();
    assert_eq!(run_json(&db, &["replay", "list", "--all"]).await.len(), 0);
}

#[tokio::test]
async fn a_replay_is_started_shown_paused_resumed_and_cancelled() {
    let db = delivered().await;
    let start = [
        "replay",
        "start",
        "audit",
        "--session",
        "run-1",
        "--from-seq",
        "2",
        "--rate",
        "20/min",
        "--reason",
        "it was down",
    ];
    let started = run_json(&db, &start).await.remove(0);
    assert_eq!(
        started["planned"],
        json!({"sessions": 1, "events": 4, "bytes": started["planned"]["bytes"]})
    );
    assert_eq!(
        (&started["rate"], &started["state"]),
        (&json!("20/min"), &json!("running"))
    );
    let id = started["replay_id"].to_string();
    run(&db, &start)
        .await
        .refused(1, &["run-1", "being replayed", "replay cancel"]);
    let list = run(&db, &["replay", "list"]).await;
    assert!(
        list.text().contains("run-1") && list.text().contains("running"),
        "{list:?}"
    );
    let status = run(&db, &["status"]).await;
    assert!(
        status.text().contains("REPLAY") && status.text().contains("20/min"),
        "{status:?}"
    );
    let lines = run_json(&db, &["status"]).await;
    let replay = lines.iter().find(|line| line["kind"] == "replay").unwrap();
    assert_eq!(replay["planned"]["events"], 4);
    for (command, state) in [
        ("pause", "paused"),
        ("resume", "running"),
        ("cancel", "cancelled"),
    ] {
        let changed = run_json(&db, &["replay", command, &id]).await.remove(0);
        assert_eq!(changed["state"], state);
    }
    let shown = run(&db, &["replay", "show", &id]).await;
    for part in [
        "cancelled",
        "seq from 2 to -",
        "4 events of 1 sessions",
        "it was down",
    ] {
        assert!(shown.text().contains(part), "{part}: {shown:?}");
    }
    run(&db, &["replay", "resume", &id])
        .await
        .refused(1, &["has ended (cancelled)", "nothing was changed"]);
    let actions = "SELECT string_agg(action, ' ' ORDER BY operation_id) FROM lanekeeper.operation";
    let actions: String = db
        .connect()
        .await
        .query_one(actions, &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(actions, "replay pause_replay resume_replay cancel_replay");
}

#[tokio::test]
async fn arguments_that_make_no_sense_are_refused_with_what_to_do() {
    let db = delivered().await;
    for args in [
        &["replay", "start", "audit"][..],
        &["replay", "start", "audit", "--all", "--session", "x"],
        &["replay", "start", "audit", "--all", "--from-seq", "2"],
        &["replay", "start", "audit", "--all", "--rate", "fast"],
        &["replay", "start", "audit", "--all", "--since", "yesterday"],
        &["replay", "start", "audit", "--all", "--concurrency", "0"],
        &["replay", "show", "0"],
    ] {
        assert_eq!(run(&db, args).await.code, 2, "{args:?}");
    }
    run(&db, &["replay", "start", "audit", "--session", "nope"])
        .await
        .refused(1, &["no session 'nope'", "session list"]);
    run(&db, &["replay", "start", "nobody", "--all"])
        .await
        .refused(1, &["no subscription 'nobody'", "subscription list"]);
    run(&db, &["replay", "show", "7"])
        .await
        .refused(1, &["there is no replay 7", "replay list"]);
    run(&db, &["replay", "pause", "7"])
        .await
        .refused(1, &["there is no replay 7"]);
}
