//! E6: `session close` and `session reopen`.

use serde_json::json;

use super::{append, run, run_json, subscribed};

#[tokio::test]
async fn a_session_is_closed_shown_and_reopened() {
    let db = subscribed(&["audit"]).await;
    append(&db, "s", 2).await;
    let close = ["session", "close", "runs", "s"];
    let ran = run(&db, &[&close[..], &["--reason", "it has ended"]].concat()).await;
    assert_eq!(ran.text(), "runs/s: closed, 2 events expired\n");
    let shown = run_json(&db, &["session", "show", "runs", "s"]).await;
    assert_eq!(shown[0]["close_reason"], "it has ended");
    assert!(shown[0]["closed_at"].is_string() && shown[0]["draining"] == json!(false));
    let shown = run(&db, &["session", "show", "runs", "s"]).await;
    assert!(shown.text().contains("closed since 2"), "{shown:?}");
    let append_one = ["enqueue", "runs", "s", "step", "--payload", "1"];
    run(&db, &append_one)
        .await
        .refused(1, &["closed since", "it has ended", "session reopen"]);
    let expected = json!({"stream": "runs", "session": "s", "drain": false, "expired": 0});
    assert_eq!(run_json(&db, &close).await, [expected]);
    let reopen = ["session", "reopen", "runs", "s"];
    assert_eq!(run(&db, &reopen).await.text(), "runs/s: open again\n");
    assert_eq!(
        run(&db, &reopen).await.text(),
        "runs/s: it was not closed\n"
    );
    run(&db, &append_one).await.text();
    let drained = run(&db, &[&close[..], &["--drain"]].concat()).await;
    assert_eq!(
        drained.text(),
        "runs/s: closed; what is there is delivered first\n"
    );
    let shown = run(&db, &["session", "show", "runs", "s"]).await;
    assert!(shown.text().contains("draining since 2"), "{shown:?}");
    run(&db, &["session", "close", "runs", "none"])
        .await
        .refused(1, &["there is no session 'none'", "session list"]);
}
