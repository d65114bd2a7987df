//! Commands in a chat, of a polled source and of signed requests.

use serde_json::json;

use super::{Chat, LIMIT};
use crate::command::run;
use crate::support::platform::Seen;

const MORE: &str = r#"
commands = { "/stop" = "interrupt", "/new" = "barrier", "/status" = "status" }

[subscription.agent]
stream  = "inbound"
adapter = "exec"
command = ["true"]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_takes_the_place_of_what_waits_and_status_is_answered_in_the_chat() {
    let chat = Chat::with(MORE).await;
    let url = [("DATABASE_URL", chat.plant.url.as_str())];
    let paused = run(
        &["subscription", "pause", "agent", "--reason", "test"],
        &url,
        "",
    )
    .await;
    assert_eq!(paused.code, Some(0), "{}", paused.stderr);
    let updates = &chat.telegram.updates;
    for text in [
        "one",
        "two",
        "/stop@fake_bot that",
        "three",
        "/stopping is a word",
        "/NEW story",
    ] {
        updates.text(77, text);
    }
    // Of another person's chat, which has a queue of its own.
    updates.write(-100, 5, json!({"text": "left alone"}));
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    let states = "SELECT m.content, m.message_state FROM lanekeeper.inbound_message AS m
                  WHERE m.subscription = 'agent' ORDER BY m.session, m.seq";
    let rows = chat.plant.client.query(states, &[]).await.unwrap();
    let states: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = [
        ("left alone", "pending"),
        ("one", "superseded"),
        ("two", "superseded"),
        ("/stop@fake_bot that", "superseded"),
        ("three", "superseded"),
        ("/stopping is a word", "superseded"),
        ("/NEW story", "pending"),
    ];
    let expected: Vec<(String, String)> = expected
        .iter()
        .map(|(content, state)| ((*content).to_owned(), (*state).to_owned()))
        .collect();
    assert_eq!(states, expected);

    let before = chat
        .plant
        .count("SELECT count(*) FROM lanekeeper.event")
        .await;
    updates.text(77, "/status");
    let answered = "Session tg-77-0: no agent has reported itself. 1 message waits.";
    let told = |seen: &Seen| seen.texts() == [answered];
    chat.telegram.wait_until(LIMIT, "it is told", told).await;
    assert_eq!(
        chat.telegram.seen().messages[0].reply_to.as_deref(),
        Some("8")
    );
    updates.confirmed(LIMIT).await;
    // A stranger learns nothing.
    updates.write(5, 5, json!({"text": "/status"}));
    updates.confirmed(LIMIT).await;
    let after = chat
        .plant
        .count("SELECT count(*) FROM lanekeeper.event")
        .await;
    assert_eq!((before, chat.telegram.seen().texts().len()), (after, 1));

    let resumed = run(&["subscription", "resume", "agent"], &url, "").await;
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert!(worker.stop().await.success());
}
