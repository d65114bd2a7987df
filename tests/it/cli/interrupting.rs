//! E9: `session interrupt` and `cancel`.

use serde_json::json;

use super::{append, run, run_json, subscribed};

#[tokio::test]
async fn a_session_is_interrupted_and_a_message_cancelled() {
    let db = subscribed(&["audit"]).await;
    append(&db, "s", 2).await;
    let interrupt = ["session", "interrupt", "runs", "s", "stop"];
    let again = [&interrupt[..], &["--dedupe-key", "k", "--keep-waiting"]].concat();
    let ran = run(&db, &again).await;
    let text = ran.text();
    assert!(
        text.starts_with("enqueued as seq 3")
            && text.ends_with(": 2 superseded, 2 appended again\n"),
        "{text}"
    );
    let text = run(&db, &again).await.text().to_owned();
    assert!(text.starts_with("duplicate of seq 3"), "{text}");
    let barrier = [&interrupt[..], &["--barrier", "--payload", "{\"why\":1}"]].concat();
    let done = run_json(&db, &barrier).await;
    assert_eq!(done[0]["seq"], 6);
    assert_eq!(
        (&done[0]["superseded"], &done[0]["duplicate"]),
        (&json!(3), &json!(false))
    );
    let id = done[0]["message_id"].as_str().unwrap();
    run(&db, &[&interrupt[..], &["--payload", "{"]].concat())
        .await
        .refused(1, &["not JSON"]);
    let expected = json!({"message_id": id, "result": "cancelled"});
    assert_eq!(run_json(&db, &["cancel", id]).await, [expected]);
    let text = run(&db, &["cancel", id, "--in", "runs", "s"])
        .await
        .text()
        .to_owned();
    assert_eq!(text, format!("{id}: already_settled\n"));
    let unknown = "019c0000-0000-7000-8000-000000000001";
    let text = run(&db, &["cancel", unknown]).await.text().to_owned();
    assert_eq!(text, format!("{unknown}: unknown\n"));
}
