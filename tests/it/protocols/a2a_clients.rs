//! A2A 1.0: an agent behind a queue, called by the unmodified clients of a2a-sdk (PyPI) and @a2a-js/sdk (npm).

use serde_json::{Value, json};

use super::a2a_house::{House, PATH, state};
use super::sdk;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

/// What a client makes of these steps; `None` where its SDK is not installed.
async fn ask(script: &'static str, house: &House, token: &str, steps: Value) -> Option<Vec<Value>> {
    let url = house.site.worker.http() + PATH;
    let token = token.to_owned();
    let asking = tokio::task::spawn_blocking(move || sdk::ask(script, &[&url, &token], &steps));
    let answered = asking.await.unwrap()?;
    Some(answered.as_array().unwrap().clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_the_python_sdk_sends_asks_cancels_and_follows() {
    client_sends_asks_cancels_and_follows("a2a_client.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_the_javascript_sdk_sends_asks_cancels_and_follows() {
    client_sends_asks_cancels_and_follows("a2a_client.mjs").await;
}

async fn client_sends_asks_cancels_and_follows(script: &'static str) {
    let house = House::open().await;
    let token = house.sender("app", &[]).await;
    let steps = json!([
        {"do": "send", "id": "m1", "text": "hello", "context": "c"},
        {"do": "send", "id": "m1", "text": "hello", "context": "c"},
        {"do": "get", "id": "task-m1"},
        {"do": "stream", "id": "m2", "text": "and this", "context": "c"},
        {"do": "get", "id": "task-none"},
        {"do": "cancel", "id": "task-m1"},
        {"do": "subscribe", "id": "task-m1"},
    ]);
    let Some(came) = ask(script, &house, &token, steps).await else {
        return;
    };
    assert_eq!(
        (state(&came[0]), &came[0]["contextId"]),
        ("COMPLETED", &json!("c")),
        "{came:?}"
    );
    assert_eq!((&came[1], &came[2]), (&came[0], &came[0]));
    let followed = came[3].as_array().unwrap();
    let ended = followed.iter().any(|event| {
        [&event["task"], &event["statusUpdate"]]
            .iter()
            .any(|told| told["status"]["state"] == "TASK_STATE_COMPLETED")
    });
    assert!(
        followed[0]["task"]["id"] == "task-m2" && ended,
        "{followed:?}"
    );
    let errors: Vec<&Value> = came[4..].iter().map(|error| &error["error"]).collect();
    let expected = [
        "TaskNotFoundError",
        "TaskNotCancelableError",
        "UnsupportedOperationError",
    ];
    assert_eq!(errors, expected);
    assert_eq!(house.site.plant.receiver.accepted(), 2);

    house.pause(Some("a test")).await;
    let steps = json!([
        {"do": "send", "id": "m3", "text": "wait", "context": "c", "immediately": true},
        {"do": "send", "id": "m4", "text": "wait"},
        {"do": "cancel", "id": "task-m3"},
        {"do": "get", "id": "task-m3"},
    ]);
    let came = ask(script, &house, &token, steps).await.unwrap();
    let states: Vec<&str> = came.iter().map(state).collect();
    assert_eq!(states, ["SUBMITTED", "SUBMITTED", "CANCELED", "CANCELED"]);
    let context = came[1]["contextId"].as_str().unwrap();
    assert!(!context.is_empty() && context != "c");
    house.pause(None).await;
    wait_until(LIMIT, "the other one is handled", async || {
        state(&house.task(&token, "task-m4").await.unwrap()) == "COMPLETED"
    })
    .await;
    assert_eq!(
        house.count("SELECT count(*) FROM lanekeeper.event").await,
        4
    );
}
