//! Producers: a confirmed event is in the log, and a refused one left nothing behind.

use lanekeeper_config::Config;
use lanekeeper_postgres::append::{self, AppendError, NewEvent};
use lanekeeper_postgres::connect;
use lanekeeper_secret::Secret;
use serde_json::json;
use uuid::Uuid;

use super::{json_lines, run, run_json, run_with_input, subscribed};
use crate::support::TestDb;

async fn log(db: &TestDb) -> Vec<(String, i64, String)> {
    let statement = "SELECT s.name, e.seq, e.payload::text FROM lanekeeper.event e
                     JOIN lanekeeper.session s USING (session_id) ORDER BY s.name, e.seq";
    let rows = db.connect().await.query(statement, &[]).await.unwrap();
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

#[tokio::test]
async fn an_event_comes_from_an_argument_a_file_or_standard_input() {
    let db = subscribed(&[]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[2]").unwrap();
    let path = file.path().to_str().unwrap();
    let args = ["enqueue", "runs", "s", "step"];

    let first = run(&db, &[&args[..], &["--payload", "[1]"]].concat()).await;
    assert!(
        first.text().starts_with("enqueued as seq 1, message "),
        "{first:?}"
    );
    run(&db, &[&args[..], &["--payload-file", path]].concat())
        .await
        .text();
    run_with_input(&db, &args, "[3]\n").await.text();
    let payloads: Vec<String> = log(&db).await.into_iter().map(|event| event.2).collect();
    assert_eq!(payloads, ["[1]", "[2]", "[3]"]);
}

#[tokio::test]
async fn a_repeated_dedupe_key_or_message_id_is_reported_with_the_first() {
    let db = subscribed(&[]).await;
    let id = Uuid::from_u128(7).to_string();
    let args = ["enqueue", "runs", "s", "step", "--payload", "1"];
    let keyed = [&args[..], &["--dedupe-key", "k"]].concat();
    let named = [&args[..], &["--message-id", &id]].concat();

    let first = run_json(&db, &keyed).await;
    let again = run_json(&db, &keyed).await;
    assert_eq!(first[0]["duplicate"], json!(false));
    assert_eq!(
        again,
        [json!({"message_id": first[0]["message_id"], "seq": 1, "duplicate": true})]
    );
    assert_eq!(run_json(&db, &named).await[0]["message_id"], json!(id));
    assert!(
        run(&db, &named)
            .await
            .text()
            .starts_with("duplicate of seq 2")
    );
    assert_eq!(log(&db).await.len(), 2);
}

#[tokio::test]
async fn headers_and_priority_travel_with_the_event() {
    let db = subscribed(&[]).await;
    let args = [
        "enqueue",
        "runs",
        "s",
        "step",
        "--payload",
        "1",
        "--priority",
        "-5",
        "--header",
        "a=1=2",
        "--header",
        "b=",
    ];
    run(&db, &args).await.text();
    let event = &run_json(&db, &["tail", "runs", "s"]).await[0];
    assert_eq!(event["headers"], json!({"a": "1=2", "b": ""}));
    assert_eq!(event["priority"], json!(-5));

    let twice = [&args[..], &["--header", "b=1"]].concat();
    run(&db, &twice)
        .await
        .refused(2, &["header b is given twice", "nothing was enqueued"]);
    let bad = [
        "enqueue",
        "runs",
        "s",
        "step",
        "--payload",
        "1",
        "--header",
        "x",
    ];
    run(&db, &bad).await.refused(2, &["NAME=VALUE"]);
}

#[tokio::test]
async fn what_is_refused_is_named_and_leaves_nothing_behind() {
    let db = subscribed(&[]).await;
    let deep = "[".repeat(50_000) + &"]".repeat(50_000);
    let large = format!("\"{}\"", "x".repeat(1_100_000));
    let nothing = "nothing was enqueued";
    for (stream, payload, says) in [
        ("runs", "{\"a\":", "not JSON"),
        ("runs", "plain text", "text needs its quotes"),
        ("runs", "\"\\u0000\"", "\\u0000"),
        ("runs", "\"\\ud800\"", "not JSON"),
        ("runs", &deep, "nested deeper"),
        ("runs", &large, "takes at most 1048576"),
        ("runz", "1", "Streams are: documents, hooks"),
    ] {
        let ran = run_with_input(&db, &["enqueue", stream, "s", "step"], payload).await;
        ran.refused(1, &[nothing, says]);
    }
    for blank in ["", " \n"] {
        let ran = run_with_input(&db, &["enqueue", "runs", "s", "step"], blank).await;
        ran.refused(2, &[nothing, "no payload was given", "--payload '"]);
    }
    let args = [
        "enqueue",
        "runs",
        &"s".repeat(513),
        "step",
        "--payload",
        "1",
    ];
    run(&db, &args)
        .await
        .refused(1, &[nothing, "at most 512 bytes"]);
    let args = [
        "enqueue",
        "runs",
        "s",
        "step",
        "--payload-file",
        "/nonexistent/file",
    ];
    run(&db, &args)
        .await
        .refused(2, &[nothing, "/nonexistent/file"]);
    let args = [
        "enqueue",
        "runs",
        "s",
        "step",
        "--payload",
        "1",
        "--priority",
        "101",
    ];
    run(&db, &args).await.refused(2, &["-100..=100"]);
    assert!(log(&db).await.is_empty());
}

#[tokio::test]
async fn json_that_is_deeper_than_most_parsers_go_passes_unharmed() {
    let db = subscribed(&[]).await;
    let deep = "[".repeat(1_000) + &"]".repeat(1_000);
    run_with_input(&db, &["enqueue", "runs", "s", "step"], &deep)
        .await
        .text();
    let line = json!({"session": "s", "event_type": "step", "payload": "P"}).to_string();
    let line = line.replace("\"P\"", &deep);
    run_with_input(&db, &["enqueue", "runs", "--lines"], &line)
        .await
        .text();
    assert_eq!(
        log(&db)
            .await
            .iter()
            .map(|event| &event.2)
            .collect::<Vec<_>>(),
        [&deep, &deep]
    );
    let shown = run(&db, &["tail", "runs", "s", "--output", "json"]).await;
    assert!(shown.text().lines().all(|line| line.contains(&deep)));
}

fn line(session: &str, n: usize) -> String {
    json!({"session": session, "event_type": "step", "payload": n}).to_string() + "\n"
}

#[tokio::test]
async fn lines_are_enqueued_in_their_order_over_many_batches() {
    let db = subscribed(&[]).await;
    let input: String = (1..=2_500).map(|n| line(["a", "b"][n % 2], n)).collect();
    let args = ["enqueue", "runs", "--lines", "--output", "json"];
    let results = run_with_input(&db, &args, &input).await.json();
    let seqs: Vec<_> = results
        .iter()
        .map(|result| result["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (0..2_500).map(|n| n / 2 + 1).collect::<Vec<_>>());
    for (session, seq, payload) in log(&db).await {
        let n = 2 * seq - i64::from(session == "b");
        assert_eq!(payload, n.to_string(), "{session} {seq}");
    }
}

#[tokio::test]
async fn the_first_line_that_is_refused_ends_it_with_all_before_it_enqueued() {
    let db = subscribed(&[]).await;
    let args = ["enqueue", "runs", "--lines"];
    for (number, bad, says) in [
        (700, "{\"session\":\"x\"}", "missing field"),
        (
            701,
            "{\"session\":\"x\",\"event_type\":\"t\",\"payload\":1,\"prio\":1}",
            "prio",
        ),
        (702, "nonsense", "not an event"),
        (
            703,
            "{\"session\":\"x\",\"event_type\":\"t\",\"payload\":\"\\u0000\"}",
            "\\u0000",
        ),
        (
            704,
            "{\"session\":\"\",\"event_type\":\"t\",\"payload\":1}",
            "not valid",
        ),
    ] {
        let session = format!("s{number}");
        let before: String = (1..number).map(|n| line(&session, n)).collect();
        let input = format!("{before}{bad}\n{}", line(&session, 9_999));
        let ran = run_with_input(&db, &args, &input).await;
        let named = format!("line {number} ");
        ran.refused(1, &[&named, "everything before it is enqueued", says]);
        assert_eq!(
            ran.out,
            format!("{} events enqueued, 0 duplicates\n", number - 1)
        );
        let kept = run_json(&db, &["tail", "runs", &session]).await;
        assert_eq!(kept.len(), number - 1);
        assert!(
            kept.iter()
                .zip(1..)
                .all(|(event, n)| event["payload"] == json!(n))
        );
    }
    run_with_input(&db, &["enqueue", "runz", "--lines"], &line("s", 1))
        .await
        .refused(1, &["unknown stream", "nothing was enqueued"]);
    run_with_input(&db, &["enqueue", "runs", "s", "--lines"], "")
        .await
        .refused(2, &["--lines"]);
}

#[tokio::test]
async fn what_tail_prints_can_be_enqueued_again() {
    let db = subscribed(&[]).await;
    let args = [
        "enqueue",
        "runs",
        "s",
        "step",
        "--payload",
        "{\"a\":1}",
        "--header",
        "h=v",
    ];
    run(&db, &args).await.text();
    let lines = run(&db, &["tail", "runs", "s", "--output", "json"]).await;
    run_with_input(&db, &["enqueue", "messages", "--lines"], lines.text())
        .await
        .text();
    let copied = run(&db, &["tail", "messages", "s", "--output", "json"]).await;
    let (from, to) = (json_lines(lines.text()), json_lines(copied.text()));
    for field in [
        "message_id",
        "event_type",
        "payload",
        "headers",
        "priority",
        "session",
    ] {
        assert_eq!(from[0][field], to[0][field], "{field}");
    }
}

#[tokio::test]
async fn a_library_user_enqueues_in_a_transaction_of_its_own() {
    let db = subscribed(&[]).await;
    let mut client = db.connect().await;
    let events = [
        NewEvent::new("s", "step", "1"),
        NewEvent::new("s", "step", "2"),
    ];
    let transaction = client.transaction().await.unwrap();
    append::enqueue(&transaction, "runs", &events[0])
        .await
        .unwrap();
    transaction.rollback().await.unwrap();
    assert!(log(&db).await.is_empty());

    let transaction = client.transaction().await.unwrap();
    let enqueued = append::enqueue_many(&transaction, "runs", &events)
        .await
        .unwrap();
    assert_eq!(
        enqueued.iter().map(|one| one.seq).collect::<Vec<_>>(),
        [1, 2]
    );
    transaction.commit().await.unwrap();
    assert_eq!(log(&db).await.len(), 2);

    let refused = append::enqueue_many(&client, "nope", &events).await;
    assert!(
        matches!(refused, Err(AppendError::UnknownStream(_))),
        "{refused:?}"
    );
    let broken = [NewEvent::new("s", "step", "1},{")];
    let refused = append::enqueue_many(&client, "runs", &broken).await;
    assert!(
        matches!(refused, Err(AppendError::NotJson(_))),
        "{refused:?}"
    );
    assert!(
        append::enqueue_many(&client, "runs", &[])
            .await
            .unwrap()
            .is_empty()
    );
}

/// Named statements belong to a server connection: a transaction pooler hands out another one.
#[tokio::test]
async fn producers_leave_no_named_statement_on_the_connection() {
    let db = subscribed(&[]).await;
    let mut config = Config::default();
    config.database.url = Some(Secret::new(db.url()));
    let client = connect::connect(&config.database).await.unwrap();
    let event = NewEvent::new("s", "step", "1");
    append::enqueue(&client, "runs", &event).await.unwrap();
    append::enqueue_many(&client, "runs", &[event])
        .await
        .unwrap();
    let named = "SELECT name FROM pg_prepared_statements";
    let rows = client.simple_query(named).await.unwrap();
    let found = rows
        .iter()
        .any(|row| matches!(row, tokio_postgres::SimpleQueryMessage::Row(_)));
    assert!(!found, "{rows:?}");
}
