//! B6: an event that cannot be recorded ends with its error stored, and the session goes on.

use serde_json::json;

use super::{LIMIT, Office};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_lacks_what_it_must_have_ends_with_its_error_and_the_lane_goes_on() {
    let office = Office::new().await;
    let session = json!({"session_id": "s"});
    office.enqueue("s", "session_start", &session).await;
    office.enqueue("s", "user_prompt_submit", &session).await;
    office.enqueue("s", "notification", &session).await;
    office.enqueue("s", "error", &session).await;
    office.enqueue("s", "agent_stop", &json!("text")).await;
    office
        .enqueue("s", "tool_use", &json!(["session_id"]))
        .await;
    office
        .enqueue(
            "s",
            "user_prompt_submit",
            &json!({"session_id": "s", "prompt": ["p"]}),
        )
        .await;
    let good = json!({"session_id": "s", "prompt": "p"});
    office.enqueue("s", "user_prompt_submit", &good).await;
    let worker = office.worker().await;
    wait_until(
        LIMIT,
        "everything is entered, and the lane idle",
        async || office.count("SELECT count(*) FROM lanekeeper.ready").await == 0,
    )
    .await;
    worker.stop().await;

    let outcomes = office.outcomes("s").await;
    let refused: Vec<i64> = outcomes.iter().map(|(seq, ..)| *seq).collect();
    assert_eq!(refused, [2, 3, 4, 5, 6, 7]);
    for ((_, kind, error), missing) in outcomes.iter().zip([
        "`prompt`",
        "`message`",
        "`message`",
        "session id",
        "session id",
        "`prompt`",
    ]) {
        assert_eq!(kind, "dropped");
        let error = error.as_deref().unwrap();
        assert!(error.contains(missing), "{error}");
        assert!(error.contains("session registry"), "{error}");
    }
    let entry = office.entry("s").await.unwrap();
    assert_eq!(
        (&entry["turn"], &entry["last_prompt"]),
        (&json!(1), &json!("p"))
    );
    assert_eq!(
        office.count("SELECT count(*) FROM lanekeeper.dead").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_nobodys_session_have_no_entry() {
    let office = Office::new().await;
    office
        .call("codex", &json!({"hook_event_name": "Stop"}))
        .await;
    office
        .call_with("codex", b"no JSON", &Default::default())
        .await;
    office.work().await;
    assert_eq!(office.entry("unattributed-codex").await, None);
    let outcomes = office.outcomes("unattributed-codex").await;
    assert_eq!(
        outcomes.len(),
        1,
        "the error is complete as it is: {outcomes:?}"
    );
    assert_eq!(outcomes[0].0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_postgres_or_the_schema_could_refuse_are_entered_all_the_same() {
    let office = Office::new().await;
    for prompt in [
        "a\u{0}b",
        "\u{10ffff}\u{1b}[2J",
        &"😀".repeat(100_000),
        &"\\".repeat(10_000),
    ] {
        let payload = json!({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": prompt,
                             "cwd": "/x".repeat(5_000), "transcript_path": "y".repeat(5_000), "model": prompt});
        office.call("claude-code", &payload).await;
    }
    office.work().await;
    assert_eq!(office.outcomes("s").await, []);
    let entry = office.entry("s").await.unwrap();
    assert_eq!(entry["turn"], 4);
    assert!(entry["transcript_path"].is_null() && entry["cwd"].is_null());
}
