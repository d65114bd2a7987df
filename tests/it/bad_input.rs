//! Bad input from the outside: a worker without its database, and hook calls that no agent should make, all the way to
//! the destination.

use std::time::Duration;

use crate::command::run;
use crate::process::plant::Plant;
use crate::support::TestDb;

/// A port on which nothing listens.
const NOWHERE: &str = "postgres://nobody@127.0.0.1:1/none";

#[tokio::test]
async fn a_worker_says_what_is_wrong_with_its_database_and_what_to_do() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    client
        .batch_execute("DROP SCHEMA lanekeeper CASCADE")
        .await
        .unwrap();
    let missing = db.url().replace("lanekeeper_test_", "no_such_");
    let mut stranger = url::Url::parse(db.url()).unwrap();
    stranger.set_username("no_such_role").unwrap();
    for (url, code, told) in [
        (NOWHERE, 75, "no PostgreSQL answers at 127.0.0.1:1"),
        (db.url(), 1, "do: run `lanekeeper migrate`"),
        (&missing, 1, "has no database no_such_"),
        (stranger.as_str(), 1, "does not let user no_such_role in"),
    ] {
        let variables = [
            ("DATABASE_URL", url),
            ("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0"),
        ];
        let ran = run(&["worker"], &variables, "").await;
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
    let unset = run(&["worker"], &[], "").await;
    assert_eq!(unset.code, Some(2), "{}", unset.stderr);
}

/// A payload of the session `s`, with `rest` among its fields.
fn call(event: &str, rest: &str) -> String {
    format!(r#"{{"session_id":"s","hook_event_name":"{event}"{rest}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_calls_that_nobody_should_make_hold_nothing_up() {
    let plant = Plant::of("hooks", TestDb::new().await, Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    let home = tempfile::tempdir().unwrap();
    let variables = [
        ("DATABASE_URL", plant.url.as_str()),
        ("HOME", home.path().to_str().unwrap()),
        ("LANEKEEPER_HOOK__TIMEOUT_MS", "10000"),
    ];
    // Of different words: jsonb would keep one of them short.
    let text = |megabytes: u32| {
        let words: String = (0..megabytes << 17).map(|n| format!("{n:07} ")).collect();
        format!(r#","message":"{words}""#)
    };
    let deep = format!(r#","a":{}{}"#, "[".repeat(10_000), "]".repeat(10_000));
    for payload in [
        call("UserPromptSubmit", r#","prompt":"go""#),
        call("NeverHeardOf", ""),
        call("Notification", &text(7)),
        call("Notification", &text(12)),
        call("Notification", &deep),
        call("Notification", r#","message":"a\u0000b\ud800c""#),
        call("Stop", r#","n":1e999999"#),
        call("Stop", ""),
    ] {
        let ran = run(&["hook", "--cli", "claude-code"], &variables, &payload).await;
        let shown: String = payload.chars().take(100).collect();
        assert_eq!((ran.code, &*ran.stdout), (Some(0), ""), "{shown}");
        println!("{shown}: {}", ran.stderr.trim());
    }
    let nobody = r#"{"hook_event_name":"Stop"}"#;
    let ran = run(&["hook", "--cli", "claude-code"], &variables, nobody).await;
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("no session id"), "{}", ran.stderr);
    plant.settled().await;
    let seen = plant.receiver.seen();
    let (arrived, repeats) = seen.deduplicated();
    println!("{arrived:?}");
    assert_eq!(repeats, 0);
    // Of what is refused as it is, a stand-in arrives in its place.
    assert_eq!(arrived["s"], [1, 3, 4, 5, 6, 7, 8]);
    assert_eq!(arrived["unattributed-claude-code"], [1]);
    assert!(worker.stop().await.success());
}
