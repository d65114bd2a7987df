//! Appends whose seq the producer expects: in SQL and Rust, over HTTP, and from the command line.

use lanekeeper_postgres::append::{AppendError, Enqueued, NewEvent, enqueue, enqueue_many};
use reqwest::Method;
use serde_json::json;
use tokio_postgres::GenericClient;
use uuid::Uuid;

use super::site::{Answer, Site};
use crate::command::run;
use crate::process::plant::LIMIT;
use crate::support::{TestDb, wait_until};

async fn append(
    client: &impl GenericClient,
    expected_seq: i64,
    dedupe_key: Option<&str>,
) -> Result<Enqueued, AppendError> {
    let event = NewEvent {
        expected_seq: Some(expected_seq),
        dedupe_key,
        ..NewEvent::new("r1", "step", "1")
    };
    enqueue(client, "runs", &event).await
}

/// The seq that there is, which a conflict tells.
fn conflict(refused: Result<Enqueued, AppendError>) -> i64 {
    match refused {
        Err(AppendError::SeqConflict(conflict)) => conflict.seq.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_event_is_appended_with_the_seq_that_its_producer_expects_or_not_at_all() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    assert_eq!(conflict(append(&client, 2, None).await), 0, "a new session");
    assert_eq!(append(&client, 1, None).await.unwrap().seq, 1);
    for expected in [1, 3] {
        assert_eq!(conflict(append(&client, expected, None).await), 1);
    }
    assert!(matches!(
        append(&client, 0, None).await,
        Err(AppendError::Invalid(_))
    ));
    let first = append(&client, 2, Some("k")).await.unwrap();
    let again = append(&client, 2, Some("k")).await.unwrap();
    assert_eq!(
        again,
        Enqueued {
            duplicate: true,
            ..first
        }
    );
    assert_eq!(
        conflict(append(&client, 3, Some("k")).await),
        2,
        "the key is another event's"
    );
    let events = [NewEvent {
        expected_seq: Some(3),
        ..NewEvent::new("r1", "step", "1")
    }];
    let refused = enqueue_many(&client, "runs", &events).await;
    assert!(
        matches!(refused, Err(AppendError::Invalid(_))),
        "{refused:?}"
    );
    let logged = client
        .query_one("SELECT count(*) FROM lanekeeper.event", &[])
        .await
        .unwrap();
    assert_eq!(logged.get::<_, i64>(0), 2);
}

#[tokio::test]
async fn a_conflict_undoes_nothing_but_itself_up_to_a_savepoint() {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    let mut transaction = client.transaction().await.unwrap();
    assert_eq!(append(&transaction, 1, None).await.unwrap().seq, 1);
    let savepoint = transaction.savepoint("s").await.unwrap();
    assert_eq!(conflict(append(&savepoint, 7, None).await), 1);
    savepoint.rollback().await.unwrap();
    assert_eq!(append(&transaction, 2, None).await.unwrap().seq, 2);
    transaction.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_producers_that_expect_the_same_seq_the_second_waits_and_learns_what_became_of_the_first()
 {
    let db = TestDb::new().await;
    let (mut first, second, watch) = (db.connect().await, db.connect().await, db.connect().await);
    let mut second = second;
    for (expected, commits) in [(1, false), (2, true)] {
        let open = first.transaction().await.unwrap();
        assert_eq!(append(&open, expected, None).await.unwrap().seq, expected);
        let waiting = tokio::spawn(async move {
            let appended = append(&second, expected, None).await;
            (appended, second)
        });
        wait_until(LIMIT, "the second waits for the first", async || {
            let waits = "SELECT count(*) FROM pg_stat_activity
                         WHERE datname = current_database() AND wait_event_type = 'Lock'";
            watch.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 1
        })
        .await;
        if commits {
            open.commit().await.unwrap();
        } else {
            open.rollback().await.unwrap();
        }
        let (appended, client) = waiting.await.unwrap();
        second = client;
        if commits {
            assert_eq!(conflict(appended), expected);
        } else {
            assert_eq!(appended.unwrap().seq, expected);
        }
    }
}

#[tokio::test]
async fn a_snapshot_that_is_older_than_the_newest_append_is_a_serialization_failure_and_no_wrong_seq()
 {
    let db = TestDb::new().await;
    let (client, other) = (db.connect().await, db.connect().await);
    append(&client, 1, None).await.unwrap();
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    append(&other, 2, None).await.unwrap();
    let refused = append(&client, 2, None).await;
    let Err(AppendError::Store(error)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(error.sqlstate(), Some("40001"));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_and_from_the_command_line_a_conflict_tells_the_seq_that_there_is() {
    let site = Site::open(&[]).await;
    let event = |seq: i64| json!({"event_type": "step", "payload": 1, "expected_seq": seq});
    assert_eq!(site.post("r1", &event(1).to_string()).await.body["seq"], 1);
    let refused = site.post("r1", &event(1).to_string()).await;
    refused.assert_problem(409, "seq_conflict");
    assert_eq!(refused.body["seq"], 1);
    let one = site.post("r1", &json!([event(2)]).to_string()).await;
    assert_eq!(one.body[0]["seq"], 2);
    site.post("r1", &json!([event(3), event(4)]).to_string())
        .await
        .assert_problem(422, "invalid");
    let id = Uuid::from_u128(7).to_string();
    let url = site.worker.http();
    for (variables, seq) in [
        ([("DATABASE_URL", site.plant.url.as_str())], 3),
        ([("LANEKEEPER_URL", url.as_str())], 4),
    ] {
        let wanted = seq.to_string();
        let mut arguments = vec![
            "enqueue",
            "runs",
            "r1",
            "step",
            "--payload",
            "1",
            "--expected-seq",
            &wanted,
        ];
        let ran = run(&arguments, &variables, "").await;
        assert!(
            ran.stdout.contains(&format!("enqueued as seq {seq}")),
            "{}",
            ran.stderr
        );
        arguments.extend(["--message-id", &id]);
        let ran = run(&arguments, &variables, "").await;
        assert_eq!(ran.code, Some(1));
        assert!(
            ran.stderr.contains(&format!("is at seq {seq}")),
            "{}",
            ran.stderr
        );
    }
    let read = site.events(Method::GET, "runs", "r1").send().await.unwrap();
    let read = Answer::of(read).await;
    assert_eq!(read.body["events"].as_array().unwrap().len(), 4);
}
