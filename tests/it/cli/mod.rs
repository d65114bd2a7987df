//! The commands as people and scripts run them: the real binary, with a database for each test.

mod bench;
mod closing;
mod demo;
mod doctor;
mod enqueue;
mod interrupting;
mod listen;
mod operate;
mod replay;
mod secret;
mod status;
mod tail;
mod top;

use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::command::command;
use crate::support::TestDb;

/// How a command ended, and what it said.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    /// Standard output, of a command that succeeded.
    #[track_caller]
    fn text(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        &self.out
    }

    /// Standard output as JSON lines, of a command that succeeded.
    #[track_caller]
    fn json(&self) -> Vec<Value> {
        json_lines(self.text())
    }

    /// Asserts the exit code and that standard error says all of `parts`.
    #[track_caller]
    fn refused(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is missing: {}", self.err);
        }
    }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn run(db: &TestDb, args: &[&str]) -> Ran {
    run_with_input(db, args, "").await
}

async fn run_json(db: &TestDb, args: &[&str]) -> Vec<Value> {
    let args = [args, &["--output", "json"]].concat();
    run(db, &args).await.json()
}

async fn run_with_input(db: &TestDb, args: &[&str], input: &str) -> Ran {
    finish(&[("DATABASE_URL", db.url())], args, input).await
}

/// Input and output at the same time: a command may print more than a pipe holds while it reads.
async fn finish(variables: &[(&str, &str)], args: &[&str], input: &str) -> Ran {
    let mut child = command(args, variables).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let feeding = tokio::spawn(async move {
        // A command that refuses early does not read to the end.
        let _ = stdin.write_all(input.as_bytes()).await;
    });
    let output = child.wait_with_output().await.unwrap();
    feeding.await.unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A database with a subscription per name, on the stream `runs`.
async fn subscribed(names: &[&str]) -> TestDb {
    let db = TestDb::new().await;
    let file: String = names
        .iter()
        .map(|name| format!("[subscription.{name}]\nstream = \"runs\"\nadapter = \"stdout\"\n"))
        .collect();
    let applied = run_with_input(&db, &["apply", "-f", "-"], &file).await;
    assert_eq!(applied.code, 0, "{applied:?}");
    db
}

/// Appends `count` events to a session of the stream `runs`.
async fn append(db: &TestDb, session: &str, count: i32) {
    let client = db.connect().await;
    for n in 1..=count {
        let statement = "SELECT seq FROM lanekeeper.enqueue('runs', $1, 'step', jsonb_build_object('n', $2::int))";
        client.query_one(statement, &[&session, &n]).await.unwrap();
    }
}

/// The id of a lane.
async fn lane(db: &TestDb, session: &str, subscription: &str) -> i64 {
    let statement =
        "SELECT lane_id FROM lanekeeper.lane_status WHERE session = $1 AND subscription = $2";
    let client = db.connect().await;
    let row = client
        .query_one(statement, &[&session, &subscription])
        .await;
    row.unwrap().get(0)
}

/// Gives a lane so many dead letters that wait for an operator.
async fn dead_letters(db: &TestDb, lane_id: i64, count: i32) {
    let statement = "INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts, crashes, error)
                     SELECT $1, n, gen_random_uuid(), 'step', '{}', now(), 1, 0, 'status 400' FROM generate_series(1, $2::int) AS n";
    let client = db.connect().await;
    client
        .execute(statement, &[&lane_id, &count])
        .await
        .unwrap();
}

/// Puts a lane's head in back-off for an hour, as a settlement does.
async fn block(db: &TestDb, lane_id: i64) {
    let client = db.connect().await;
    for statement in [
        "DELETE FROM lanekeeper.ready WHERE lane_id = $1",
        "INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day, attempts, retry_at, last_error)
         SELECT lane_id, version + 1, cursor, cursor_day, 3, now() + interval '1 hour', 'status 503'
         FROM lanekeeper.progress WHERE lane_id = $1",
        "DELETE FROM lanekeeper.progress WHERE lane_id = $1 AND retry_at IS NULL",
        "INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
         SELECT route, 0, now() + interval '1 hour', lane_id FROM lanekeeper.lane WHERE lane_id = $1",
    ] {
        client.execute(statement, &[&lane_id]).await.unwrap();
    }
}
