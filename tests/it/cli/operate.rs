//! Operator actions: each changes only its targets, and is recorded.

use serde_json::json;

use super::{append, block, lane, run, run_json, subscribed};
use crate::support::TestDb;

async fn state(db: &TestDb, lane_id: i64) -> serde_json::Value {
    run_json(db, &["lane", "show", &lane_id.to_string()])
        .await
        .remove(0)
}

async fn operations(db: &TestDb) -> Vec<(String, Option<String>)> {
    let statement = "SELECT action, reason FROM lanekeeper.operation ORDER BY operation_id";
    let rows = db.connect().await.query(statement, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn a_lane_is_parked_unparked_and_retried() {
    let db = subscribed(&["audit"]).await;
    append(&db, "s", 2).await;
    let id = lane(&db, "s", "audit").await;
    let name = id.to_string();
    let ran = run(&db, &["lane", "park", &name, "--reason", "why"]).await;
    assert_eq!(
        ran.text(),
        format!("lane {id} (runs/s → audit): park done, now parked\n")
    );
    assert_eq!(state(&db, id).await["state"], "parked");
    let done = run_json(&db, &["lane", "unpark", &name]).await;
    assert_eq!(
        done,
        [
            json!({"lane_id": id, "stream": "runs", "session": "s", "subscription": "audit",
                "action": "unpark", "state": "ready"})
        ]
    );
    block(&db, id).await;
    assert_eq!(state(&db, id).await["state"], "blocked");
    run(&db, &["lane", "retry", &name]).await.text();
    let now = state(&db, id).await;
    assert_eq!(
        (&now["state"], &now["attempts"]),
        (&json!("ready"), &json!(0))
    );
    let reasons = [("park", Some("why")), ("unpark", None), ("retry", None)];
    let reasons = reasons.map(|(action, reason)| (action.to_owned(), reason.map(str::to_owned)));
    assert_eq!(operations(&db).await, reasons);
}

#[tokio::test]
async fn a_head_is_skipped_only_when_confirmed_and_only_if_it_is_still_the_head() {
    let db = subscribed(&["audit"]).await;
    append(&db, "s", 3).await;
    let id = lane(&db, "s", "audit").await;
    let name = id.to_string();

    let dry = run(&db, &["lane", "skip", &name]).await;
    dry.text();
    let command = format!("lane skip {id} --seq 1 --yes");
    assert!(
        dry.err.contains("nothing was changed") && dry.err.contains(&command),
        "{dry:?}"
    );
    assert_eq!(state(&db, id).await["cursor"], 0);

    let confirmed = [
        "lane", "skip", &name, "--seq", "1", "--yes", "--reason", "bad",
    ];
    run(&db, &confirmed).await.text();
    assert_eq!(state(&db, id).await["head_seq"], 2);
    run(&db, &confirmed)
        .await
        .refused(1, &["seq 1 is not the head", "nothing was changed"]);
    assert_eq!(state(&db, id).await["head_seq"], 2);
    let outcome = "SELECT seq, kind, error FROM lanekeeper.outcome";
    let rows = db.connect().await.query(outcome, &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
    let row: (i64, &str, &str) = (rows[0].get(0), rows[0].get(1), rows[0].get(2));
    assert_eq!(row, (1, "skipped", "bad"));

    run(&db, &["lane", "skip", &name, "--yes"]).await.text();
    run(&db, &["lane", "skip", &name, "--yes"]).await.text();
    run(&db, &["lane", "skip", &name, "--yes"])
        .await
        .refused(1, &["no undelivered event"]);
    let empty = run(&db, &["lane", "skip", &name]).await;
    assert!(empty.err.contains("nothing to skip"), "{empty:?}");
}

#[tokio::test]
async fn the_lanes_of_a_session_are_changed_together_and_no_others() {
    let db = subscribed(&["audit", "mirror"]).await;
    append(&db, "s", 1).await;
    append(&db, "other", 1).await;
    let args = ["lane", "park", "--stream", "runs", "--session", "s"];
    assert_eq!(run_json(&db, &args).await.len(), 2);
    let parked = run_json(&db, &["lane", "list", "--blocked"]).await;
    assert!(
        parked.iter().all(|lane| lane["session"] == "s"),
        "{parked:?}"
    );
    let one = [
        &["lane", "unpark"],
        &args[2..],
        &["--subscription", "audit"],
    ]
    .concat();
    assert_eq!(run_json(&db, &one).await.len(), 1);
    assert_eq!(
        run_json(&db, &["lane", "list", "--blocked"]).await[0]["subscription"],
        "mirror"
    );
    let skip = [
        "lane",
        "skip",
        "--stream",
        "runs",
        "--session",
        "s",
        "--seq",
        "1",
        "--yes",
    ];
    run(&db, &skip).await.refused(2, &["--seq is for one lane"]);
}

#[tokio::test]
async fn a_lane_whose_delivery_does_not_end_is_left_alone_and_the_others_are_not() {
    let db = subscribed(&["audit", "mirror"]).await;
    append(&db, "s", 1).await;
    let busy = lane(&db, "s", "audit").await;
    let holder = db.connect().await;
    let lock = "SELECT pg_advisory_lock(lanekeeper.lane_lock($1))";
    holder.execute(lock, &[&busy]).await.unwrap();
    let ran = run(&db, &["session", "pause", "runs", "s"]).await;
    ran.refused(
        75,
        &[
            "is being delivered",
            "1 of 2 lanes were changed",
            "Try again",
        ],
    );
    assert!(ran.out.contains("mirror"), "{ran:?}");
    assert_eq!(state(&db, busy).await["parked_at"], json!(null));
}

#[tokio::test]
async fn a_paused_session_keeps_its_own_reasons_and_resumes_whole() {
    let db = subscribed(&["audit", "mirror"]).await;
    append(&db, "s", 1).await;
    let audit = lane(&db, "s", "audit").await;
    run(
        &db,
        &["lane", "park", &audit.to_string(), "--reason", "before"],
    )
    .await
    .text();
    let paused = run_json(
        &db,
        &["session", "pause", "runs", "s", "--reason", "looking"],
    )
    .await;
    assert_eq!(paused.len(), 1, "the other one is parked already");
    let session = &run_json(&db, &["session", "show", "runs", "s"]).await[0];
    let errors: Vec<_> = session["lane_status"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lane| lane["last_error"].as_str().unwrap())
        .collect();
    assert_eq!(errors, ["before", "looking"]);
    assert_eq!(session["parked"], json!(2));

    assert_eq!(
        run_json(&db, &["session", "resume", "runs", "s"])
            .await
            .len(),
        2
    );
    assert!(
        run_json(&db, &["lane", "list", "--blocked"])
            .await
            .is_empty()
    );
    let again = run(&db, &["session", "resume", "runs", "s"]).await;
    assert_eq!(again.text(), "");
    assert!(again.err.contains("nothing to change"), "{again:?}");
    run(&db, &["session", "pause", "runs", "none"])
        .await
        .refused(1, &["no session \"none\""]);
}

#[tokio::test]
async fn a_subscription_is_paused_and_resumed_once() {
    let db = subscribed(&["audit"]).await;
    let pause = ["subscription", "pause", "audit", "--reason", "moving"];
    assert_eq!(run(&db, &pause).await.text(), "audit is paused\n");
    assert_eq!(run(&db, &pause).await.text(), "audit was paused already\n");
    let listed = &run_json(&db, &["subscription", "list"]).await[0];
    assert_eq!(listed["pause_reason"], "moving");
    assert_eq!(listed.get("settings"), None);
    let text = run(&db, &["subscription", "list"]).await;
    assert!(text.text().contains("paused at 2"), "{text:?}");
    let resumed = run_json(&db, &["subscription", "resume", "audit"]).await;
    assert_eq!(
        resumed,
        [json!({"subscription": "audit", "state": "running", "changed": true})]
    );
    run(&db, &["subscription", "pause", "audi"])
        .await
        .refused(1, &["no subscription \"audi\"", "did you mean audit?"]);
    assert_eq!(operations(&db).await.len(), 2);
}

#[tokio::test]
async fn dead_letters_are_listed_shown_and_dropped_when_confirmed() {
    let db = subscribed(&["audit"]).await;
    append(&db, "s", 3).await;
    let id = lane(&db, "s", "audit").await;
    let bury = "INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, headers, created_at,
                    attempts, crashes, error)
                SELECT $1, seq, message_id, event_type, payload::jsonb, '{\"h\": 1}', created_at, 10, 0, 'status 400'
                FROM lanekeeper.event ORDER BY seq";
    db.connect().await.execute(bury, &[&id]).await.unwrap();

    let listed = run_json(&db, &["dead", "list", "--subscription", "audit"]).await;
    let ids: Vec<_> = listed
        .iter()
        .map(|letter| letter["dead_id"].as_i64().unwrap())
        .collect();
    assert_eq!(ids, [3, 2, 1]);
    assert_eq!(listed[0].get("payload"), None);
    assert_eq!(
        run_json(&db, &["status"]).await[0]["dead_letters"],
        json!(3)
    );
    let limited = run(&db, &["dead", "list", "--limit", "1"]).await;
    assert!(limited.err.contains("there are more"), "{limited:?}");

    let shown = &run_json(&db, &["dead", "show", "2"]).await[0];
    assert_eq!(
        (&shown["payload"], &shown["headers"]),
        (&json!({"n": 2}), &json!({"h": 1}))
    );
    assert_eq!(
        (&shown["attempts"], &shown["error"]),
        (&json!(10), &json!("status 400"))
    );
    let text = run(&db, &["dead", "show", "2"]).await;
    assert!(text.text().contains("payload      {\"n\": 2}"), "{text:?}");

    let dry = run(&db, &["dead", "drop", "1", "2"]).await;
    dry.text();
    assert!(dry.err.contains("nothing was changed"), "{dry:?}");
    assert_eq!(run_json(&db, &["dead", "list"]).await.len(), 3);
    run(&db, &["dead", "drop", "1", "77", "--yes"])
        .await
        .refused(1, &["no dead letter 77", "nothing was changed"]);
    let dropped = run_json(
        &db,
        &["dead", "drop", "1", "2", "--yes", "--reason", "test"],
    )
    .await;
    assert_eq!(
        dropped,
        [
            json!({"dead_id": 1, "dropped": true}),
            json!({"dead_id": 2, "dropped": true})
        ]
    );
    let again = run(&db, &["dead", "drop", "1", "--yes"]).await;
    assert_eq!(again.text(), "dead letter 1 was dealt with already\n");

    let session = ["dead", "list", "--stream", "runs", "--session", "s"];
    assert_eq!(run_json(&db, &session).await.len(), 1);
    let all = run_json(&db, &[&session[..], &["--all"]].concat()).await;
    assert_eq!(
        all.iter()
            .filter(|letter| letter["resolution"] == "dropped")
            .count(),
        2
    );
    run(&db, &["dead", "show", "-1"]).await.refused(2, &[]);
    run(&db, &["dead", "show"]).await.refused(2, &["ID"]);
}

#[tokio::test]
async fn dead_letters_are_requeued_by_id_and_by_filter_when_confirmed() {
    let db = subscribed(&["audit", "other"]).await;
    append(&db, "s", 4).await;
    let client = db.connect().await;
    for subscription in ["audit", "other"] {
        let id = lane(&db, "s", subscription).await;
        let bury = "INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts,
                        crashes, error, died_at)
                    SELECT $1, seq, message_id, event_type, payload::jsonb, created_at, 10, 0, 'status 400',
                           clock_timestamp() - seq * interval '1 hour'
                    FROM lanekeeper.event ORDER BY seq";
        client.execute(bury, &[&id]).await.unwrap();
        let pass = "UPDATE lanekeeper.progress SET cursor = 4 WHERE lane_id = $1";
        client.execute(pass, &[&id]).await.unwrap();
    }
    let waits = "SELECT count(*) FROM lanekeeper.dead WHERE requeued_at IS NULL";
    let waiting = async || client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0);

    let dry = run(&db, &["dead", "requeue", "1", "2"]).await;
    assert_eq!(dry.text().lines().count(), 3, "{dry:?}");
    assert!(dry.err.contains("dry run") && dry.err.contains("nothing was changed"));
    let filtered = [
        "dead",
        "requeue",
        "--subscription",
        "audit",
        "--since",
        "150m",
    ];
    assert_eq!(
        run_json(&db, &filtered).await.len(),
        2,
        "one and two hours ago"
    );
    assert_eq!(waiting().await, 8);

    let done = run_json(&db, &[&filtered[..], &["--limit", "1", "--yes"]].concat()).await;
    assert_eq!(done, [json!({"dead_id": 1, "requeued": true})]);
    let by_id = [
        "dead", "requeue", "1", "2", "--yes", "--at-end", "--reason", "test",
    ];
    let done = run(&db, &by_id).await;
    assert_eq!(
        done.text(),
        "dead letter 1 was requeued already\ndead letter 2 is requeued\n"
    );
    assert_eq!(waiting().await, 6);
    let recorded = operations(&db).await;
    assert_eq!(recorded.len(), 2, "{recorded:?}");

    let shown = run(&db, &["dead", "show", "1"]).await;
    assert!(shown.text().contains("not delivered yet"), "{shown:?}");
    let status = run_json(&db, &["status"]).await;
    assert_eq!(
        (&status[0]["dead_letters"], &status[0]["lanes"]["ready"]),
        (&json!(2), &json!(1))
    );

    // A lane that cannot take any keeps no other waiting.
    let parked = lane(&db, "s", "audit").await.to_string();
    run(&db, &["lane", "park", &parked]).await.text();
    let session = [
        "dead",
        "requeue",
        "--stream",
        "runs",
        "--session",
        "s",
        "--yes",
    ];
    run(&db, &session)
        .await
        .refused(1, &["is parked", "4 of 6", "lane unpark"]);
    assert_eq!(waiting().await, 2);

    run(&db, &["dead", "requeue", "77", "--yes"])
        .await
        .refused(1, &["no dead letter 77", "nothing was changed"]);
    run(&db, &["dead", "requeue"])
        .await
        .refused(2, &["--subscription"]);
    run(&db, &["dead", "requeue", "1", "--since", "2h"])
        .await
        .refused(2, &[]);
    run(&db, &["dead", "requeue", "--since", "yesterday"])
        .await
        .refused(2, &["how long ago"]);
    let none = run(&db, &["dead", "requeue", "--since", "1m"]).await;
    assert!(none.err.contains("no dead letter to requeue"), "{none:?}");
}

/// The first of them wakes the lane; a second call would wait for the delivery that begins then.
#[tokio::test]
async fn all_dead_letters_of_a_lane_are_requeued_in_one_transaction_however_many() {
    let db = subscribed(&["audit"]).await;
    let client = db.connect().await;
    for (session, letters) in [("long", 250), ("short", 1)] {
        append(&db, session, 1).await;
        let id = lane(&db, session, "audit").await;
        let bury = "INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts, crashes,
                        error)
                    SELECT $1, n, gen_random_uuid(), 'step', '{}', now(), 10, 0, 'status 400'
                    FROM generate_series(1, $2::int) AS n";
        client.execute(bury, &[&id, &letters]).await.unwrap();
    }
    let all = [
        "dead",
        "requeue",
        "--subscription",
        "audit",
        "--limit",
        "1000",
        "--yes",
    ];
    let done = run_json(&db, &all).await;
    assert_eq!(done.len(), 251);
    assert!(done.iter().all(|line| line["requeued"] == true), "{done:?}");
    // And each lane has its own: one that cannot take any keeps no other waiting.
    let transactions = "SELECT count(*), count(DISTINCT d.xmin::text) FROM lanekeeper.dead AS d
                        WHERE d.after_seq IS NOT NULL GROUP BY d.lane_id ORDER BY d.lane_id";
    let rows = client.query(transactions, &[]).await.unwrap();
    let lanes: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(lanes, [(250, 1), (1, 1)]);
}
