//! The output of `lanekeeper status`.

use serde_json::{Value, json};

use super::{append, block, dead_letters, lane, run, run_json, subscribed};
use crate::support::TestDb;

/// Lanes of `audit`, one in each state: `idle`, `ready`, `held`, `blocked`, `parked`.
async fn one_lane_in_each_state() -> TestDb {
    let db = subscribed(&["audit"]).await;
    let client = db.connect().await;
    for session in ["idle", "ready", "held", "blocked", "parked"] {
        append(&db, session, 2).await;
    }
    let idle = lane(&db, "idle", "audit").await;
    for statement in [
        "UPDATE lanekeeper.progress SET cursor = 2 WHERE lane_id = $1",
        "DELETE FROM lanekeeper.ready WHERE lane_id = $1",
    ] {
        client.execute(statement, &[&idle]).await.unwrap();
    }
    block(&db, lane(&db, "blocked", "audit").await).await;
    let parked = lane(&db, "parked", "audit").await.to_string();
    run(&db, &["lane", "park", &parked, "--reason", "no disk"])
        .await
        .text();
    db
}

/// Holds a lane as a worker's connection does, until the client goes.
async fn hold(db: &TestDb, lane_id: i64) -> tokio_postgres::Client {
    let client = db.connect().await;
    client
        .batch_execute(&format!(
            "INSERT INTO lanekeeper.lane_connection (worker_id, backend_pid, backend_start, epoch)
             VALUES (7, pg_backend_pid(), now(), gen_random_uuid());
             INSERT INTO lanekeeper.worker (worker_id, version, started_at, host, pid, release, state)
             VALUES (7, 1, now(), 'node-a', 42, '0.1.0', 'running');
             INSERT INTO lanekeeper.claim (connection_id, claim_id, lane_ids, versions, crashes)
             SELECT connection_id, 1, '{{{lane_id}}}', '{{0}}', '{{0}}' FROM lanekeeper.lane_connection;
             SELECT pg_advisory_lock(lanekeeper.lane_lock({lane_id}))"
        ))
        .await
        .unwrap();
    client
}

fn states(lanes: &[Value]) -> Vec<(&str, &str)> {
    let mut states: Vec<_> = lanes
        .iter()
        .map(|lane| {
            (
                lane["session"].as_str().unwrap(),
                lane["state"].as_str().unwrap(),
            )
        })
        .collect();
    states.sort_unstable();
    states
}

#[tokio::test]
async fn status_counts_the_lanes_of_each_state_and_names_the_workers() {
    let db = one_lane_in_each_state().await;
    let _holder = hold(&db, lane(&db, "held", "audit").await).await;
    let lines = run_json(&db, &["status"]).await;
    let [audit, worker] = &*lines else {
        panic!("{lines:?}");
    };
    assert_eq!(audit["kind"], "subscription");
    assert_eq!(
        audit["lanes"],
        json!({"idle": 1, "ready": 1, "held": 1, "blocked": 1, "sent": 0, "parked": 1})
    );
    assert_eq!(audit["behind"], json!(8));
    assert!(audit["oldest_undelivered_age_s"].as_f64().unwrap() >= 0.0);
    assert_eq!(
        (&audit["partial"], &audit["idle_partial"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(
        (&worker["kind"], &worker["held_lanes"]),
        (&json!("worker"), &json!(1))
    );

    let text = run(&db, &["status"]).await;
    let row = text.text().lines().nth(1).unwrap();
    assert!(
        row.starts_with(
            "audit         runs    not reported  1     1      1     1        0     1       8"
        ),
        "{row}"
    );
    assert!(text.out.contains("node-a"), "{text:?}");
}

#[tokio::test]
async fn figures_beyond_what_status_looks_at_are_marked_as_lower_bounds() {
    let db = subscribed(&["audit"]).await;
    let many = "SELECT count(*) FROM lanekeeper.enqueue_many('runs', (
                    SELECT jsonb_agg(jsonb_build_object('session', n::text, 'event_type', 'step', 'payload', n))
                    FROM generate_series(1, 5001) AS n))";
    db.connect().await.batch_execute(many).await.unwrap();
    let audit = &run_json(&db, &["status"]).await[0];
    assert_eq!(
        (&audit["partial"], &audit["lanes"]["ready"]),
        (&json!(true), &json!(5_000))
    );
    assert_eq!(
        (&audit["idle_partial"], &audit["behind"]),
        (&json!(true), &json!(5_000))
    );
    let text = run(&db, &["status"]).await;
    assert!(
        text.text().contains("  ~1 ") && text.out.contains("  5000+ "),
        "{text:?}"
    );
}

/// What `status`, `session list` and `lane_status` say of the one lane there is.
async fn behind(db: &TestDb) -> [i64; 3] {
    let of = |lines: &[Value]| lines[0]["behind"].as_i64().unwrap();
    let client = db.connect().await;
    let view = "SELECT sum(behind)::bigint FROM lanekeeper.lane_status";
    [
        of(&run_json(db, &["status"]).await),
        of(&run_json(db, &["session", "list"]).await),
        client.query_one(view, &[]).await.unwrap().get(0),
    ]
}

#[tokio::test]
async fn a_session_whose_last_events_nobody_gets_is_behind_for_no_command() {
    let db = TestDb::new().await;
    let file =
        "[subscription.audit]\nstream = \"runs\"\nadapter = \"stdout\"\nevents = [\"done\"]\n";
    let applied = super::run_with_input(&db, &["apply", "-f", "-"], file).await;
    assert_eq!(applied.code, 0, "{applied:?}");
    let client = db.connect().await;
    let enqueue = async |event_type: &str, count: i32| {
        let statement =
            "SELECT lanekeeper.enqueue('runs', 's', $1, '{}') FROM generate_series(1, $2)";
        client
            .query(statement, &[&event_type, &count])
            .await
            .unwrap();
    };
    enqueue("done", 1).await;
    assert_eq!(behind(&db).await, [1, 1, 1]);
    // It is delivered, and the lane is idle. Events that it does not receive leave it so.
    client
        .batch_execute("UPDATE lanekeeper.progress SET cursor = 1; DELETE FROM lanekeeper.ready")
        .await
        .unwrap();
    enqueue("step", 3).await;
    assert_eq!(behind(&db).await, [0, 0, 0]);
    // Of a parked lane `status` reads its progress, as of every lane that is not idle.
    let parked = lane(&db, "s", "audit").await.to_string();
    run(&db, &["lane", "park", &parked, "--reason", "look"])
        .await
        .text();
    assert_eq!(behind(&db).await, [0, 0, 0]);
    let oldest = run_json(&db, &["status"]).await[0]["oldest_undelivered_age_s"].clone();
    assert!(oldest.is_null(), "{oldest}");
    run(&db, &["lane", "unpark", &parked]).await.text();
    // One that it receives counts together with those before it.
    enqueue("done", 1).await;
    assert_eq!(behind(&db).await, [4, 4, 4]);
}

#[tokio::test]
async fn a_long_run_of_events_that_nobody_gets_counts_until_a_worker_passes_it() {
    let db = TestDb::new().await;
    let file =
        "[subscription.audit]\nstream = \"runs\"\nadapter = \"stdout\"\nevents = [\"done\"]\n";
    let applied = super::run_with_input(&db, &["apply", "-f", "-"], file).await;
    assert_eq!(applied.code, 0, "{applied:?}");
    append(&db, "s", 63).await;
    assert_eq!(behind(&db).await, [0, 0, 0]);
    // The event that makes an append wake the lane.
    append(&db, "s", 1).await;
    assert_eq!(behind(&db).await, [64, 64, 64]);
}

#[tokio::test]
async fn dead_letters_beyond_the_bound_are_said_to_be_more() {
    let db = subscribed(&["audit"]).await;
    append(&db, "s", 1).await;
    let id = lane(&db, "s", "audit").await;
    dead_letters(&db, id, 4_999).await;
    let audit = &run_json(&db, &["status"]).await[0];
    assert_eq!(
        (&audit["dead_letters"], &audit["dead_letters_partial"]),
        (&json!(4_999), &json!(false))
    );
    dead_letters(&db, id, 2).await;
    let audit = &run_json(&db, &["status"]).await[0];
    assert_eq!(
        (&audit["dead_letters"], &audit["dead_letters_partial"]),
        (&json!(5_000), &json!(true))
    );
    let text = run(&db, &["status"]).await;
    assert!(
        text.text().lines().nth(1).unwrap().ends_with("  5000+"),
        "{text:?}"
    );
}

#[tokio::test]
async fn status_of_an_empty_database_says_what_to_do() {
    let db = TestDb::new().await;
    let ran = run(&db, &["status"]).await;
    assert_eq!(ran.text(), "");
    assert!(
        ran.err.contains("lanekeeper apply") && ran.err.contains("no worker is running"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn lane_list_leaves_lanes_at_rest_out_and_with_blocked_all_that_move() {
    let db = one_lane_in_each_state().await;
    let _holder = hold(&db, lane(&db, "held", "audit").await).await;
    let active = run_json(&db, &["lane", "list"]).await;
    assert_eq!(
        states(&active),
        [
            ("blocked", "blocked"),
            ("held", "held"),
            ("parked", "parked"),
            ("ready", "ready")
        ]
    );
    let blocked = run_json(&db, &["lane", "list", "--blocked"]).await;
    assert_eq!(
        states(&blocked),
        [("blocked", "blocked"), ("parked", "parked")]
    );
    let head = |session: &str| {
        blocked
            .iter()
            .find(|lane| lane["session"] == session)
            .unwrap()
    };
    assert_eq!(head("parked")["last_error"], "no disk");
    let lane = head("blocked");
    assert_eq!(
        (&lane["head_seq"], &lane["attempts"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(lane["last_error"], "status 503");
    assert!(lane["retry_at"].is_string());
}

#[tokio::test]
async fn lanes_of_other_subscriptions_and_removed_ones_are_left_out() {
    let db = subscribed(&["audit", "mirror"]).await;
    append(&db, "s", 1).await;
    let args = ["lane", "list", "--subscription", "mirror"];
    let lanes = run_json(&db, &args).await;
    assert_eq!(lanes.len(), 1);
    assert_eq!(lanes[0]["subscription"], "mirror");
    run(&db, &["lane", "list", "--subscription", "miror"])
        .await
        .refused(1, &["no subscription \"miror\"", "did you mean mirror?"]);
    let client = db.connect().await;
    let remove = "UPDATE lanekeeper.subscription SET removed_at = now() WHERE name = 'mirror'";
    client.batch_execute(remove).await.unwrap();
    assert_eq!(run_json(&db, &["lane", "list"]).await.len(), 1);
    assert_eq!(run_json(&db, &["status"]).await.len(), 1);
}

#[tokio::test]
async fn every_list_ends_at_its_limit_and_says_so() {
    let db = subscribed(&["a", "b", "c"]).await;
    for session in ["x", "y", "z"] {
        append(&db, session, 1).await;
    }
    for list in [
        &["lane", "list"][..],
        &["session", "list"],
        &["subscription", "list"],
        &["status"],
    ] {
        let limited = [list, &["--limit", "2", "--output", "json"]].concat();
        let ran = run(&db, &limited).await;
        assert_eq!(ran.json().len(), 2, "{list:?}");
        assert!(ran.err.contains("there are more"), "{list:?}: {ran:?}");
        let all = run(&db, &[list, &["--limit", "9"]].concat()).await;
        assert!(!all.err.contains("there are more"), "{list:?}: {all:?}");
        let none = [list, &["--limit", "0"]].concat();
        run(&db, &none).await.refused(2, &["--limit"]);
    }
}

#[tokio::test]
async fn sessions_are_listed_newest_first_and_shown_with_all_their_lanes() {
    let db = subscribed(&["audit", "mirror"]).await;
    append(&db, "old", 3).await;
    append(&db, "new", 1).await;
    let sessions = run_json(&db, &["session", "list", "--stream", "runs"]).await;
    let names: Vec<_> = sessions.iter().map(|session| &session["session"]).collect();
    assert_eq!(names, ["new", "old"]);
    assert_eq!(
        (&sessions[1]["newest_seq"], &sessions[1]["behind"]),
        (&json!(3), &json!(3))
    );
    assert!(
        run_json(&db, &["session", "list", "--stream", "hooks"])
            .await
            .is_empty()
    );

    let shown = &run_json(&db, &["session", "show", "runs", "old"]).await[0];
    assert_eq!(shown["lanes"], json!(2));
    let lanes = shown["lane_status"].as_array().unwrap();
    let by: Vec<_> = lanes.iter().map(|lane| &lane["subscription"]).collect();
    assert_eq!(by, ["audit", "mirror"]);
    let text = run(&db, &["session", "show", "runs", "old"]).await;
    assert!(text.text().contains("mirror"), "{text:?}");
    run(&db, &["session", "show", "runs", "none"])
        .await
        .refused(1, &["no session \"none\""]);
    run(&db, &["session", "list", "--stream", "x"])
        .await
        .refused(1, &["no stream \"x\""]);
}

#[tokio::test]
async fn a_lane_is_shown_by_its_id_and_by_its_names() {
    let db = subscribed(&["audit", "mirror"]).await;
    append(&db, "s", 1).await;
    let id = lane(&db, "s", "audit").await;
    let by_id = run_json(&db, &["lane", "show", &id.to_string()]).await;
    let names = ["lane", "show", "--stream", "runs", "--session", "s"];
    let by_names = run_json(&db, &[&names[..], &["--subscription", "audit"]].concat()).await;
    assert_eq!((&by_id[0]["lane_id"], by_id.len()), (&json!(id), 1));
    assert_eq!((&by_names[0]["lane_id"], by_names.len()), (&json!(id), 1));
    assert_eq!(run_json(&db, &names).await.len(), 2);
    let text = run(&db, &["lane", "show", &id.to_string()]).await;
    assert!(text.text().contains("head            1\n"), "{text:?}");

    run(&db, &["lane", "show", "999"])
        .await
        .refused(1, &["no lane 999", "lane list"]);
    run(&db, &["lane", "show"]).await.refused(2, &["required"]);
    run(
        &db,
        &["lane", "show", "1", "--stream", "runs", "--session", "s"],
    )
    .await
    .refused(2, &["cannot be used with"]);
    run(&db, &["lane", "show", "--stream", "runs"])
        .await
        .refused(2, &["--session"]);
    run(&db, &["lane", "show", "0"]).await.refused(2, &["LANE"]);
}
