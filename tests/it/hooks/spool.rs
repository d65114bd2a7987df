//! Outages, refusals and servers that do not answer: no call is lost, repeated or reordered.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpListener;

use super::{Machine, NOWHERE, log, numbered, prompts, run, text};
use crate::support::{Receiver, TestDb, WorkerProcess, wait_until};

#[tokio::test]
async fn every_call_of_an_outage_arrives_once_and_in_order_after_it() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    for number in 0..5 {
        let stderr = machine.hook("codex", &numbered("s", number));
        assert!(stderr.contains("kept in the spool"), "{stderr}");
    }
    machine.hook("codex", &numbered("other", 0));
    // The server is back: the next call goes behind what waits and brings it in.
    machine.url = db.url().to_owned();
    assert_eq!(machine.hook("codex", &numbered("s", 5)), "");
    let client = db.connect().await;
    assert_eq!(prompts(&client, "s").await, [0, 1, 2, 3, 4, 5]);
    assert!(!machine.spool().holds("s"));
    assert_eq!(machine.drain()["events"], 1);
    assert_eq!(prompts(&client, "other").await, [0]);
}

#[tokio::test]
async fn a_call_that_goes_through_brings_in_what_other_sessions_left() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    machine.hook("codex", &numbered("gone", 0));
    super::aside::age(&machine.spool().file_of("gone"));
    machine.url = db.url().to_owned();
    assert_eq!(machine.hook("codex", &numbered("here", 0)), "");
    assert_eq!(prompts(&db.connect().await, "gone").await, [0]);
    assert!(machine.spool().files().unwrap().is_empty());
}

#[tokio::test]
async fn a_drain_that_is_repeated_stores_nothing_twice() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    for number in 0..3 {
        machine.hook("codex", &numbered("s", number));
    }
    machine.url = db.url().to_owned();
    let spool = machine.spool();
    let file = spool.files().unwrap().remove(0);
    let copy = fs::read(&file).unwrap();
    assert_eq!(machine.drain()["events"], 3);
    // As after a crash between COMMIT and the note of it.
    fs::write(&file, copy).unwrap();
    let again = machine.drain();
    assert_eq!(
        (&again["events"], &again["duplicates"]),
        (&json!(0), &json!(3))
    );
    assert_eq!(prompts(&db.connect().await, "s").await, [0, 1, 2]);
}

#[tokio::test]
async fn parallel_calls_through_the_end_of_an_outage_neither_lose_nor_repeat() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    for number in 0..3 {
        machine.hook("codex", &numbered("s", number));
    }
    machine.url = db.url().to_owned();
    let machine = &machine;
    std::thread::scope(|scope| {
        for lane in 0..4 {
            scope.spawn(move || {
                for number in 0..4 {
                    machine.hook("codex", &numbered("s", 100 * (lane + 1) + number));
                }
            });
        }
    });
    machine.drain();
    let prompts = prompts(&db.connect().await, "s").await;
    assert_eq!(prompts.len(), 3 + 16);
    for lane in 0..=4 {
        let of_lane: Vec<u64> = prompts
            .iter()
            .copied()
            .filter(|n| n / 100 == lane)
            .collect();
        assert!(of_lane.is_sorted(), "{prompts:?}");
    }
}

/// B2: nobody calls any more, and the workers of the host send what waits. The first is killed as soon as something has come.
#[tokio::test(flavor = "multi_thread")]
async fn workers_of_the_host_send_what_calls_left_once_and_in_order_past_a_killed_one() {
    const SESSIONS: [&str; 3] = ["a", "b", "c"];
    let db = TestDb::new().await;
    let machine = Machine::new(NOWHERE);
    for number in 0..12 {
        for session in SESSIONS {
            let stderr = machine.hook("codex", &numbered(session, number));
            assert!(stderr.contains("kept in the spool"), "{stderr}");
        }
    }
    let dir = machine.home.join(".local/state/lanekeeper/spool");
    let receiver = Receiver::start(Duration::ZERO).await;
    let variables = [
        ("LANEKEEPER_SPOOL__DIR", dir.to_str().unwrap()),
        ("LANEKEEPER_SPOOL__INTERVAL_MS", "50"),
        // Files that a running call may still write to are left to it.
        ("LANEKEEPER_HOOK__TIMEOUT_MS", "200"),
    ];
    let client = db.connect().await;
    let worker = WorkerProcess::start(db.url(), &receiver, &variables).await;
    wait_until(Duration::from_secs(60), "something has come", async || {
        let row = client.query_one("SELECT EXISTS (SELECT FROM lanekeeper.event)", &[]);
        row.await.unwrap().get(0)
    })
    .await;
    worker.kill().await;
    let worker = WorkerProcess::start(db.url(), &receiver, &variables).await;
    wait_until(Duration::from_secs(60), "the spool is empty", async || {
        machine.spool().files().unwrap().is_empty()
    })
    .await;
    for session in SESSIONS {
        assert_eq!(
            prompts(&client, session).await,
            (0..12).collect::<Vec<u64>>(),
            "{session}"
        );
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_server_that_never_answers_costs_the_budget_and_no_event() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://nobody@{}/none", silent.local_addr().unwrap());
    let mut machine = Machine::new(&url);
    machine.timeout_ms = 300;
    let started = Instant::now();
    let stderr = machine.hook("codex", &numbered("s", 0));
    let took = started.elapsed();
    assert!(stderr.contains("did not answer in time"), "{stderr}");
    assert!(machine.spool().holds("s"));
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

/// B9: what Postgres took needs no disk; what it did not take is in the file, and the call says that it may be in the
/// machine's memory only.
#[cfg(feature = "crash-points")]
#[tokio::test]
async fn a_disk_that_hangs_in_a_sync_holds_up_no_call_beyond_its_budget_and_loses_none() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(db.url());
    // The longest that may be set.
    machine.timeout_ms = 10_000;
    let hook = |machine: &Machine, number| {
        let mut command = machine.command(&["hook", "--cli", "codex"]);
        let started = Instant::now();
        let stderr = super::answered(command.env("HANG", "sync"), &numbered("s", number));
        (stderr, started.elapsed())
    };
    let (stderr, took) = hook(&machine, 0);
    assert_eq!(stderr, "", "Postgres has it");
    assert!(took < Duration::from_secs(8), "{took:?}");

    machine.url = NOWHERE.to_owned();
    machine.timeout_ms = 300;
    let (stderr, took) = hook(&machine, 1);
    assert!(stderr.contains("did not confirm it in time"), "{stderr}");
    assert!(!stderr.contains("LOST"), "{stderr}");
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(machine.spool().holds("s"));

    machine.url = db.url().to_owned();
    machine.timeout_ms = 10_000;
    assert_eq!(machine.hook("codex", &numbered("s", 2)), "");
    assert_eq!(prompts(&db.connect().await, "s").await, [0, 1, 2]);
}

#[tokio::test]
async fn a_call_whose_answer_never_came_is_stored_once() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(db.url());
    machine.hook("codex", &numbered("s", 0));
    // Somebody's open transaction holds the session's append lock.
    let mut holder = db.connect().await;
    let open = holder.transaction().await.unwrap();
    open.execute(
        "SELECT lanekeeper.enqueue('hooks', 's', 'user_prompt_submit', '{\"prompt\": 1}')",
        &[],
    )
    .await
    .unwrap();
    machine.timeout_ms = 200;
    let stderr = machine.hook("codex", &numbered("s", 2));
    assert!(stderr.contains("did not answer in time"), "{stderr}");
    open.commit().await.unwrap();
    machine.timeout_ms = 5_000;
    assert_eq!(machine.hook("codex", &numbered("s", 3)), "");
    assert_eq!(prompts(&holder, "s").await, [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_database_without_the_schema_is_an_outage_that_says_what_to_do() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    client
        .batch_execute("DROP SCHEMA lanekeeper CASCADE")
        .await
        .unwrap();
    let machine = Machine::new(db.url());
    let stderr = machine.hook("codex", &numbered("s", 0));
    assert!(stderr.contains("lanekeeper migrate"), "{stderr}");
    assert!(machine.spool().holds("s"));
}

#[tokio::test]
async fn a_payload_over_the_streams_limit_is_kept_aside_and_its_place_is_taken() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let limit = "UPDATE lanekeeper.stream SET max_payload_bytes = 1024 WHERE name = 'hooks'";
    client.batch_execute(limit).await.unwrap();
    let mut machine = Machine::new(db.url());
    let large = |session: &str| {
        json!({"session_id": session, "hook_event_name": "Stop", "text": "x".repeat(5_000)})
            .to_string()
            .into_bytes()
    };
    let stderr = machine.hook("claude-code", &large("direct"));
    assert!(stderr.contains("refused, kept in"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    machine.url = NOWHERE.to_owned();
    machine.hook("claude-code", &numbered("spooled", 0));
    machine.hook("claude-code", &large("spooled"));
    machine.hook("claude-code", &numbered("spooled", 2));
    machine.url = db.url().to_owned();
    assert_eq!(machine.drain()["rejected"].as_array().unwrap().len(), 1);

    for (session, place, events) in [("direct", 0, 1), ("spooled", 1, 3)] {
        let log = log(&client, session).await;
        assert_eq!(log.len(), events, "{session}");
        let (event_type, payload) = &log[place];
        assert_eq!(event_type, "agent_stop");
        assert!(
            payload["rejected"]
                .as_str()
                .unwrap()
                .contains("at most 1024"),
            "{payload}"
        );
        let kept = fs::read_to_string(payload["kept_in"].as_str().unwrap()).unwrap();
        assert!(kept.contains(&"x".repeat(5_000)));
    }
    let listed = run(
        &mut machine.command(&["spool", "--rejected", "--output", "json"]),
        b"",
    );
    assert_eq!(text(&listed.stdout).lines().count(), 2);
}

#[tokio::test]
async fn what_was_refused_is_sent_again_when_told_once_and_behind_its_session() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let limit = async |bytes: i32| {
        let statement = "UPDATE lanekeeper.stream SET max_payload_bytes = $1 WHERE name = 'hooks'";
        client.execute(statement, &[&bytes]).await.unwrap();
    };
    limit(1_024).await;
    let machine = Machine::new(db.url());
    let large = |number: usize| {
        json!({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": number,
               "text": "x".repeat(5_000)})
        .to_string()
        .into_bytes()
    };
    for number in [1, 2] {
        machine.hook("claude-code", &large(number));
    }
    machine.hook("claude-code", &numbered("s", 3));
    let rejected = machine.spool().rejected().unwrap();
    assert_eq!(rejected.len(), 2);
    let retry = |code: i32| {
        let arguments = ["spool", "--retry-rejected", "--output", "json"];
        let ran = run(&mut machine.command(&arguments), b"");
        assert_eq!(ran.status.code(), Some(code), "{}", text(&ran.stderr));
        serde_json::from_slice::<serde_json::Value>(&ran.stdout).unwrap()
    };

    // The reason is still there: everything stays.
    let report = retry(1);
    assert_eq!(report["events"], 0);
    assert_eq!(report["kept"].as_array().unwrap().len(), 2);
    let reason = report["kept"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("at most 1024"), "{reason}");
    assert_eq!(machine.spool().rejected().unwrap().len(), 2);

    limit(1 << 20).await;
    let copies: Vec<Vec<u8>> = rejected
        .iter()
        .map(|path| fs::read(path).unwrap())
        .collect();
    let broken = rejected[0].with_file_name("0-broken.json");
    fs::write(&broken, "not a record").unwrap();
    let report = retry(1);
    assert_eq!(
        (&report["events"], &report["duplicates"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(
        machine.spool().rejected().unwrap(),
        std::slice::from_ref(&broken)
    );
    fs::remove_file(&broken).unwrap();
    // As after a crash between COMMIT and the removal of the files.
    for (path, copy) in rejected.iter().zip(&copies) {
        fs::write(path, copy).unwrap();
    }
    let report = retry(0);
    assert_eq!(
        (&report["events"], &report["duplicates"]),
        (&json!(0), &json!(2))
    );
    assert!(machine.spool().rejected().unwrap().is_empty());
    assert_eq!(retry(0)["events"], 0);

    let log = log(&client, "s").await;
    let prompts: Vec<_> = log.iter().map(|(_, payload)| &payload["prompt"]).collect();
    let none = serde_json::Value::Null;
    assert_eq!(prompts, [&none, &none, &json!(3), &json!(1), &json!(2)]);
    assert_eq!(log[3].1["text"], "x".repeat(5_000));
    let marked = "SELECT headers->>'lanekeeper-retried' FROM lanekeeper.event ORDER BY seq";
    let rows = client.query(marked, &[]).await.unwrap();
    let marked: Vec<Option<String>> = rows.iter().map(|row| row.get(0)).collect();
    let first = |path: &std::path::Path| path.file_stem().unwrap().to_str().map(str::to_owned);
    let mut ids: Vec<_> = rejected.iter().map(|path| first(path)).collect();
    ids.sort();
    assert_eq!(marked, [None, None, None, ids[0].clone(), ids[1].clone()]);
}

#[test]
fn what_waits_is_listed_with_its_session_and_size() {
    let machine = Machine::new(NOWHERE);
    for number in 0..3 {
        machine.hook("codex", &numbered("s", number));
    }
    let ran = run(
        &mut machine.command(&["spool", "--list", "--output", "json"]),
        b"",
    );
    let listed: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        (&listed["session"], &listed["events"]),
        (&json!("s"), &json!(3))
    );
    let file = machine.spool().files().unwrap().remove(0);
    let bytes = fs::metadata(&file).unwrap().len();
    // All but the head with the offset.
    assert_eq!(listed["bytes"], bytes - 47);
}
