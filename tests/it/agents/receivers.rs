//! C9: what consumers get: the receiver library, and its likes in Python and JavaScript.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper::receiver::{Answer, Receiver, Refused};
use lanekeeper_adapters::{Environment, Signer, build};
use lanekeeper_core::adapter::{Adapter, Verdict};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::conformance::destination::{deliver_batch, event, rejection};
use crate::document::repository;
use crate::support::TestDb;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// An example that runs. Its process ends with it.
struct Running {
    _child: Child,
    port: u16,
}

/// `None` where its interpreter is not there.
async fn start(interpreter: &str, script: &Path, store: &Path) -> Option<Running> {
    let mut child = Command::new(interpreter)
        .arg(script)
        .arg("0")
        .arg(store)
        .env("RECEIVER_SECRET", SECRET)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = tokio::time::timeout(Duration::from_secs(30), lines.next_line());
    let said = said.await.unwrap().unwrap().unwrap();
    let port = said.strip_prefix("listening on ").unwrap().parse().unwrap();
    Some(Running {
        _child: child,
        port,
    })
}

fn webhook(port: u16, secret: &str) -> Arc<dyn Adapter> {
    let settings = json!({
        "url": format!("http://127.0.0.1:{port}/"), "secret_env": "KEY", "batch": 50,
    });
    let environment = Environment::with_variables(true, [("KEY", secret)]);
    build("webhook", "out", &settings, &environment).unwrap()
}

/// The seqs that it handled, in the order in which it did.
fn handled(interpreter: &str, store: &Path) -> Vec<i64> {
    if interpreter == "node" {
        let journal = std::fs::read_to_string(store).unwrap();
        let seq =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["handled"]["seq"].as_i64();
        return journal.lines().map(|line| seq(line).unwrap()).collect();
    }
    let read = "import sqlite3, sys, json; \
                print(json.dumps([r[0] for r in sqlite3.connect(sys.argv[1]).execute('SELECT seq FROM handled ORDER BY number')]))";
    let output = std::process::Command::new(interpreter)
        .args(["-c", read])
        .arg(store)
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn try_out(interpreter: &str, script: &str) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let script: PathBuf = repository(&format!("examples/receiver/{script}"));
    let Some(running) = start(interpreter, &script, &store).await else {
        eprintln!("{interpreter} is not there");
        return;
    };
    let events: Vec<_> = (1..=5)
        .map(|seq| event("s \"ü\"", seq, r#"{"n": [1.0, "ä"]}"#))
        .collect();
    let adapter = webhook(running.port, SECRET);
    let deliver = async |adapter: &dyn Adapter, events: &[_]| {
        let deliveries = deliver_batch(adapter, events, true).await;
        (0..events.len())
            .map(|at| deliveries.of(at).cloned().unwrap())
            .collect::<Vec<Verdict>>()
    };
    let one = async |adapter: &dyn Adapter, replay_id: Option<i64>| {
        let delivery = lanekeeper_core::adapter::Delivery {
            event: &events[0],
            subscription: "out",
            attempt: 1,
            requeued: false,
            replay_id,
            asks_ack: true,
            trace: None,
            observed: None,
        };
        adapter.deliver(&delivery).await
    };
    for _ in 0..2 {
        assert_eq!(
            one(&*adapter, None).await,
            Verdict::Accepted,
            "{interpreter}"
        );
    }
    for _ in 0..2 {
        assert_eq!(
            deliver(&*adapter, &events).await,
            vec![Verdict::Accepted; 5],
            "{interpreter}"
        );
    }
    // Two replays of the first, of which one comes twice.
    for replay in [7, 7, 8] {
        let verdict = one(&*adapter, Some(replay)).await;
        assert_eq!(verdict, Verdict::Accepted, "{interpreter}");
    }
    let other = webhook(running.port, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    assert!(rejection(one(&*other, None).await).contains("401"));
    drop(running);
    let running = start(interpreter, &script, &store).await.unwrap();
    let adapter = webhook(running.port, SECRET);
    assert_eq!(
        deliver(&*adapter, &events).await,
        vec![Verdict::Accepted; 5],
        "after a restart"
    );
    assert_eq!(
        handled(interpreter, &store),
        [1, 2, 3, 4, 5, 1, 1],
        "{interpreter}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_receiver_handles_once_what_comes_again_and_acknowledges_it() {
    try_out("python3", "receiver.py").await;
    try_out("node", "receiver.mjs").await;
}

#[test]
fn the_examples_are_short() {
    for example in ["receiver.py", "receiver.mjs"] {
        let text =
            std::fs::read_to_string(repository(&format!("examples/receiver/{example}"))).unwrap();
        assert!(text.lines().count() <= 90, "{example}");
    }
}

/// A signed batch of these messages, opened.
fn open(
    receiver: &Receiver,
    messages: &[Value],
    is_batch: bool,
) -> Result<lanekeeper::receiver::Messages, Refused> {
    let body = match is_batch {
        true => json!({"batch": messages}).to_string(),
        false => messages[0].to_string(),
    };
    let timestamp = jiff::Timestamp::now().as_second();
    let signer = Signer::parse(SECRET).unwrap();
    let signature = signer.sign("id", timestamp, body.as_bytes());
    let timestamp = timestamp.to_string();
    let header = |name: &str| match name {
        "webhook-id" => Some("id"),
        "webhook-timestamp" => Some(timestamp.as_str()),
        "webhook-signature" => Some(signature.as_str()),
        "lanekeeper-batch" => is_batch.then_some("3"),
        _ => None,
    };
    receiver.open(header, body.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_handles_each_message_in_one_transaction_with_the_memory_of_it() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    client
        .batch_execute("CREATE TABLE effect (seq bigint)")
        .await
        .unwrap();
    let receiver = Receiver::new("billing", SECRET).unwrap();
    let messages: Vec<Value> = (1..=3)
        .map(|seq| {
            json!({"id": Uuid::now_v7(), "stream": "runs", "session": "s", "seq": seq, "type": "step",
                   "created_at": "2026-01-02T03:04:05Z", "attempt": 1, "data": {}})
        })
        .collect();
    let ids: Vec<&Value> = messages.iter().map(|message| &message["id"]).collect();
    let all = open(&receiver, &messages, true).unwrap();
    let mut fails = true;
    for expected in [
        (503, json!({"accepted": 1, "ack": ids[..1]})),
        (200, json!({"accepted": 3, "ack": ids})),
        (200, json!({"accepted": 3, "ack": ids})),
    ] {
        let Answer { status, body } = receiver
            .handle(&mut client, &all, async |transaction, message| {
                let insert = "INSERT INTO effect VALUES ($1)";
                transaction
                    .execute(insert, &[&message.seq])
                    .await
                    .map_err(|error| error.to_string())?;
                if message.seq == 2 && std::mem::take(&mut fails) {
                    return Err("not yet".to_owned());
                }
                Ok(())
            })
            .await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, body), expected);
    }
    let rows = client
        .query("SELECT seq FROM effect ORDER BY seq", &[])
        .await
        .unwrap();
    let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(seqs, [1, 2, 3]);
    let single = open(&receiver, &messages[..1], false).unwrap();
    let answer = receiver
        .handle(&mut client, &single, async |_, _| {
            Err::<(), _>("never called")
        })
        .await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, r#"{"accepted":1,"ack":true}"#)
    );
    // A replay is handled anew, and what comes again of it is not.
    let mut handled = 0;
    for replay in [7, 7, 8] {
        let mut replayed = messages[0].clone();
        replayed["replayed"] = true.into();
        replayed["replay_id"] = replay.into();
        let replayed = open(&receiver, &[replayed], false).unwrap();
        let answer = receiver
            .handle(&mut client, &replayed, async |_, _| {
                handled += 1;
                Ok::<(), &str>(())
            })
            .await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    assert_eq!(handled, 2);
}
