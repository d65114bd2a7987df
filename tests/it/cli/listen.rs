//! `lanekeeper listen` shows every listener all events that commit after its start, in order.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use super::{append, json_lines, run, subscribed};
use crate::command::command;
use crate::support::{Instead, Receiver, SECRET_ENV, TestDb, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

struct Listener {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// What it said before it listened.
    said: Vec<String>,
}

impl Listener {
    /// Returns when it listens.
    async fn start(db: &TestDb, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let args = [&["listen"], args, &["--output", "json"]].concat();
        let variables = [&[("DATABASE_URL", db.url())], variables].concat();
        let mut child = command(&args, &variables)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        while said
            .last()
            .is_none_or(|line: &String| !line.starts_with("listening to"))
        {
            let line = timeout(LIMIT, notes.next_line()).await.unwrap().unwrap();
            said.push(line.unwrap_or_else(|| panic!("it ended: {said:?}")));
        }
        tokio::spawn(async move {
            while let Ok(Some(line)) = notes.next_line().await {
                eprintln!("listen: {line}");
            }
        });
        Self { child, lines, said }
    }

    async fn next(&mut self) -> Value {
        let line = timeout(LIMIT, self.lines.next_line()).await;
        json_lines(&line.unwrap().unwrap().unwrap()).remove(0)
    }

    async fn next_place(&mut self) -> (String, i64) {
        let event = self.next().await;
        let session = event["session"].as_str().unwrap().to_owned();
        (session, event["seq"].as_i64().unwrap())
    }

    /// Its exit code, and what it printed that was not read.
    async fn stop(mut self, signal: Signal) -> (Option<i32>, Vec<Value>) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        let mut left = Vec::new();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            left.push(serde_json::from_str(&line).unwrap());
        }
        let status = timeout(LIMIT, self.child.wait()).await.unwrap().unwrap();
        (status.code(), left)
    }
}

#[tokio::test]
async fn events_are_forwarded_in_order_with_a_valid_signature_and_failures_are_tried_again() {
    let db = subscribed(&[]).await;
    let receiver = Receiver::start(Duration::ZERO).await;
    let (_, secret) = receiver.new_secret();
    append(&db, "old", 2).await;
    let mut listener = Listener::start(
        &db,
        &[
            "runs",
            "--forward-to",
            receiver.url(),
            "--secret-env",
            SECRET_ENV,
        ],
        &[(SECRET_ENV, &secret)],
    )
    .await;
    assert!(
        listener.said.iter().all(|line| !line.contains("whsec_")),
        "a secret that was given is not printed: {:?}",
        listener.said
    );
    receiver.answer_once(Instead::Fail);
    for session in ["a", "b", "old"] {
        append(&db, session, 4).await;
    }
    receiver
        .wait_until(LIMIT, "all of them arrive", |seen| {
            seen.arrivals.len() == 12
        })
        .await;
    let seen = receiver.seen();
    assert_eq!(seen.refused, Vec::<String>::new());
    let expected = BTreeMap::from([
        ("a", vec![1, 2, 3, 4]),
        ("b", vec![1, 2, 3, 4]),
        ("old", vec![3, 4, 5, 6]),
    ]);
    assert_eq!(seen.deduplicated(), (expected, 0));
    assert_eq!(seen.turned_away.len(), 1);
    let failed = seen.turned_away[0].id;
    let again = seen.arrivals.iter().find(|one| one.id == failed).unwrap();
    assert_eq!(again.attempt, 2);

    // A line is printed when its answer is here.
    let mut lines = Vec::new();
    for _ in 0..13 {
        lines.push(listener.next().await);
    }
    let (code, left) = listener.stop(Signal::TERM).await;
    assert_eq!((code, left.len()), (Some(0), 0));
    let failures: Vec<&Value> = lines
        .iter()
        .filter(|line| line["delivered"] == false)
        .collect();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0]["status"], 500);
    assert_eq!(failures[0]["message_id"], failed.to_string());
    assert!(failures[0]["retry_in_ms"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn the_secret_that_it_makes_is_printed_and_signs() {
    let db = subscribed(&[]).await;
    let receiver = Receiver::start(Duration::ZERO).await;
    let without_scheme = receiver.url().trim_start_matches("http://");
    let mut listener = Listener::start(&db, &["runs", "--forward-to", without_scheme], &[]).await;
    let secret = listener
        .said
        .iter()
        .find_map(|line| line.strip_prefix("signing secret of this run: "))
        .unwrap_or_else(|| panic!("{:?}", listener.said));
    receiver.accept_secret(secret);
    append(&db, "s", 1).await;
    let line = listener.next().await;
    assert_eq!(
        (&line["status"], &line["delivered"]),
        (&204.into(), &true.into())
    );
    assert_eq!(listener.stop(Signal::INT).await.0, Some(0));
}

/// Appends to a session that exists and to a new one, and does not commit.
async fn append_and_wait(db: &TestDb, session: &str) -> tokio_postgres::Client {
    let client = db.connect().await;
    let appends = [session.to_owned(), format!("{session}-new")]
        .map(|name| format!("SELECT lanekeeper.enqueue('runs', '{name}', 'step', '{{}}')"));
    client
        .batch_execute(&format!("BEGIN; {}", appends.join(";")))
        .await
        .unwrap();
    client
}

#[tokio::test]
async fn a_transaction_that_commits_late_is_not_skipped() {
    let db = subscribed(&[]).await;
    append(&db, "before", 1).await;
    append(&db, "after", 1).await;
    let before = append_and_wait(&db, "before").await;
    let mut listener = Listener::start(&db, &["runs"], &[]).await;
    let after = append_and_wait(&db, "after").await;
    append(&db, "quick", 2).await;
    for seq in [1, 2] {
        assert_eq!(listener.next_place().await, ("quick".to_owned(), seq));
    }
    for client in [after, before] {
        client.batch_execute("COMMIT").await.unwrap();
    }
    let mut places = Vec::new();
    for _ in 0..4 {
        places.push(listener.next_place().await);
    }
    places.sort();
    let expected = [
        ("after", 2),
        ("after-new", 1),
        ("before", 2),
        ("before-new", 1),
    ];
    assert_eq!(places, expected.map(|(name, seq)| (name.to_owned(), seq)));
    let (code, left) = listener.stop(Signal::TERM).await;
    assert_eq!((code, left.len()), (Some(0), 0));
}

#[tokio::test]
async fn each_of_several_listeners_gets_what_it_asked_for_and_none_leaves_anything_behind() {
    let db = TestDb::new().await;
    let mut fanned_out = Listener::start(&db, &["hooks"], &[]).await;
    let mut everything = Listener::start(&db, &["hooks", "--all"], &[]).await;
    let mut tools = Listener::start(&db, &["hooks", "--events", "tool_use,tool_done"], &[]).await;
    let client = db.connect().await;
    let types = ["session_start", "tool_use", "tool_done", "agent_stop"];
    for event_type in types {
        let statement = "SELECT seq FROM lanekeeper.enqueue('hooks', 's', $1, '{}')";
        client.query_one(statement, &[&event_type]).await.unwrap();
    }
    // The same name in another stream is another session.
    append(&db, "s", 1).await;
    for (listener, seqs) in [
        (&mut fanned_out, &[1, 4][..]),
        (&mut everything, &[1, 2, 3, 4]),
        (&mut tools, &[2, 3]),
    ] {
        for &seq in seqs {
            assert_eq!(listener.next_place().await, ("s".to_owned(), seq));
        }
    }
    for listener in [fanned_out, everything, tools] {
        let (code, left) = listener.stop(Signal::INT).await;
        assert_eq!((code, left.len()), (Some(0), 0));
    }
    let left = "SELECT (SELECT count(*) FROM lanekeeper.subscription WHERE adapter = 'webhook')
                       + (SELECT count(*) FROM lanekeeper.lane)";
    assert_eq!(
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0),
        0
    );
}

#[tokio::test]
async fn more_sessions_than_a_page_has_are_all_followed() {
    let db = subscribed(&[]).await;
    // Of two streams in turn: a page counts those of others too.
    let fill = "SELECT count(e.seq) FROM generate_series(1, 2200) AS n, LATERAL lanekeeper.enqueue(
                    CASE n % 2 WHEN 0 THEN 'runs' ELSE 'messages' END, 's' || n, 'step', '{}') AS e";
    db.connect().await.query_one(fill, &[]).await.unwrap();
    let mut listener = Listener::start(&db, &["runs"], &[]).await;
    for session in ["s2", "s2200", "fresh"] {
        append(&db, session, 1).await;
    }
    let mut places = Vec::new();
    for _ in 0..3 {
        places.push(listener.next_place().await);
    }
    places.sort();
    let expected = [("fresh", 1), ("s2", 2), ("s2200", 2)];
    assert_eq!(places, expected.map(|(name, seq)| (name.to_owned(), seq)));
    let (code, left) = listener.stop(Signal::TERM).await;
    assert_eq!((code, left.len()), (Some(0), 0));
}

#[tokio::test]
async fn it_goes_on_where_it_was_after_its_connection_broke() {
    let db = subscribed(&[]).await;
    append(&db, "s", 1).await;
    let mut listener = Listener::start(&db, &["runs"], &[]).await;
    append(&db, "s", 1).await;
    assert_eq!(listener.next_place().await, ("s".to_owned(), 2));
    let client = db.connect().await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'lanekeeper'";
    wait_until(LIMIT, "the listener's connection is ended", async || {
        client.query_one(end, &[]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
    append(&db, "s", 1).await;
    assert_eq!(listener.next_place().await, ("s".to_owned(), 3));
    assert_eq!(listener.stop(Signal::TERM).await.0, Some(0));
}

#[tokio::test]
async fn unknown_streams_and_destinations_that_cannot_be_are_refused() {
    let db = subscribed(&[]).await;
    run(&db, &["listen", "run"])
        .await
        .refused(1, &["no stream \"run\"", "did you mean runs?"]);
    run(&db, &["listen", "runs", "--forward-to", "ftp://localhost/"])
        .await
        .refused(2, &["`url`", "only http and https"]);
    let absent = ["--forward-to", "localhost:9", "--secret-env", "ABSENT"];
    run(&db, &[&["listen", "runs"], &absent[..]].concat())
        .await
        .refused(2, &["neither ABSENT nor ABSENT_FILE is set"]);
    run(&db, &["listen", "runs", "--all", "--events", "step"])
        .await
        .refused(2, &["cannot be used with"]);
}
