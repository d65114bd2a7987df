//! `lanekeeper tail` shows each event of the log once, in order.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use super::{append, run, run_json, subscribed};
use crate::command::command;
use crate::support::{TestDb, wait_until};

const LIMIT: Duration = Duration::from_secs(20);

fn seqs(events: &[serde_json::Value]) -> Vec<i64> {
    events
        .iter()
        .map(|event| event["seq"].as_i64().unwrap())
        .collect()
}

#[tokio::test]
async fn a_session_longer_than_a_page_is_printed_whole_and_from_any_seq() {
    let db = subscribed(&[]).await;
    append(&db, "s", 1_203).await;
    let all = run_json(&db, &["tail", "runs", "s"]).await;
    assert_eq!(seqs(&all), (1..=1_203).collect::<Vec<_>>());
    let some = run_json(&db, &["tail", "runs", "s", "--from", "1200"]).await;
    assert_eq!(seqs(&some), [1_200, 1_201, 1_202, 1_203]);
    assert_eq!(
        seqs(&run_json(&db, &["tail", "runs", "s", "-n", "2"]).await),
        [1_202, 1_203]
    );
    assert!(
        run_json(&db, &["tail", "runs", "s", "--from", "1204"])
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn pages_of_large_payloads_end_early_and_lose_nothing() {
    let db = subscribed(&[]).await;
    let statement = "SELECT e.seq FROM generate_series(1, 12) AS n, LATERAL lanekeeper.enqueue(
                         'runs', 's', 'step', to_jsonb(repeat(n::text, 500000))) AS e";
    db.connect().await.batch_execute(statement).await.unwrap();
    let all = run_json(&db, &["tail", "runs", "s"]).await;
    assert_eq!(seqs(&all), (1..=12).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reader_is_told_what_retention_took() {
    let db = subscribed(&[]).await;
    append(&db, "s", 3).await;
    let client = db.connect().await;
    client
        .batch_execute("DELETE FROM lanekeeper.event WHERE seq < 3")
        .await
        .unwrap();
    let ran = run(&db, &["tail", "runs", "s"]).await;
    assert!(ran.text().trim_start().starts_with("3 "), "{ran:?}");
    assert!(ran.err.contains("seq 1 to 2 are gone"), "{ran:?}");
}

#[tokio::test]
async fn text_cannot_command_the_terminal() {
    let db = subscribed(&[]).await;
    let statement =
        "SELECT lanekeeper.enqueue('runs', 's', E'a\\x1b[2J', to_jsonb(E'\\u009b1m'::text))";
    db.connect().await.batch_execute(statement).await.unwrap();
    let ran = run(&db, &["tail", "runs", "s"]).await;
    assert!(!ran.text().trim_end().contains(char::is_control), "{ran:?}");
    assert!(ran.out.contains("a\\u{1b}[2J"), "{ran:?}");
}

#[tokio::test]
async fn unknown_names_and_seqs_that_cannot_be_are_refused() {
    let db = subscribed(&[]).await;
    append(&db, "s", 1).await;
    run(&db, &["tail", "run", "s"])
        .await
        .refused(1, &["no stream \"run\"", "did you mean runs?"]);
    run(&db, &["tail", "runs", "t"])
        .await
        .refused(1, &["no session \"t\"", "session list --stream runs"]);
    run(&db, &["tail", "runs", "s", "--from", "0"])
        .await
        .refused(2, &["--from"]);
    run(&db, &["tail", "runs", "s", "--from", "1", "-n", "1"])
        .await
        .refused(2, &["cannot be used with"]);
}

struct Follower {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn start(db: &TestDb) -> Self {
        let args = ["tail", "runs", "s", "--follow", "--output", "json"];
        let mut child = command(&args, &[("DATABASE_URL", db.url())])
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn next_seq(&mut self) -> i64 {
        let line = timeout(LIMIT, self.lines.next_line())
            .await
            .unwrap()
            .unwrap();
        seqs(&super::json_lines(&line.unwrap()))[0]
    }

    async fn stop(mut self, signal: Signal) -> Option<i32> {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        timeout(LIMIT, self.child.wait())
            .await
            .unwrap()
            .unwrap()
            .code()
    }
}

#[tokio::test]
async fn a_follower_sees_what_comes_and_ends_well_when_interrupted() {
    let db = subscribed(&[]).await;
    append(&db, "s", 2).await;
    let mut follower = Follower::start(&db);
    assert_eq!(
        [follower.next_seq().await, follower.next_seq().await],
        [1, 2]
    );
    // Nobody waits for the doorbell, so nobody is notified: the poll finds it.
    append(&db, "s", 1).await;
    assert_eq!(follower.next_seq().await, 3);
    assert_eq!(follower.stop(Signal::INT).await, Some(0));
}

#[tokio::test]
async fn a_follower_goes_on_where_it_was_after_its_connection_broke() {
    let db = subscribed(&[]).await;
    append(&db, "s", 1).await;
    let mut follower = Follower::start(&db);
    assert_eq!(follower.next_seq().await, 1);
    let client = db.connect().await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'lanekeeper'";
    wait_until(LIMIT, "the follower's connection is ended", async || {
        client.query_one(end, &[]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
    append(&db, "s", 1).await;
    assert_eq!(follower.next_seq().await, 2);
    assert_eq!(follower.stop(Signal::TERM).await, Some(0));
}
