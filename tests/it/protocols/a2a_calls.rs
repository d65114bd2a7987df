//! A2A 1.0: an agent behind a queue, as it is called: what becomes of messages and of repeats.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use super::a2a_house::{House, PATH, message, state};
use crate::agents::inbox::post;
use crate::api::site::Answer;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

const EVENTS: &str = "SELECT count(*) FROM lanekeeper.event";

#[tokio::test(flavor = "multi_thread")]
async fn a_message_becomes_an_event_of_its_context_once_and_its_task_is_complete_when_it_is_handled()
 {
    let house = House::with("event_type = \"note\"", "").await;
    let token = house.sender("app", &[]).await;
    let params = json!({"message": {
        "messageId": "m1", "contextId": "c ü/1", "role": "ROLE_USER",
        "parts": [{"text": "hello"}], "metadata": {"urgent": true},
    }});
    let sent = house
        .call(&token, "SendMessage", params.clone())
        .await
        .unwrap();
    let task = &sent["task"];
    assert_eq!(
        (state(task), &task["contextId"]),
        ("COMPLETED", &json!("c ü/1"))
    );
    let row = "SELECT n.name, e.event_type, e.payload::jsonb, e.headers FROM lanekeeper.event AS e
               JOIN lanekeeper.session AS n ON n.session_id = e.session_id";
    let row = house.site.plant.client.query_one(row, &[]).await.unwrap();
    let found: (String, String, Value, Value) = (row.get(0), row.get(1), row.get(2), row.get(3));
    let headers =
        json!({"a2a_message_id": "m1", "a2a_from": "app", "a2a_metadata": {"urgent": true}});
    let expected = (
        "c ü/1".to_owned(),
        "note".to_owned(),
        json!({"text": "hello"}),
        headers,
    );
    assert_eq!(found, expected);
    // Repeated, and in another context: the first one's task.
    let mut elsewhere = params.clone();
    elsewhere["message"]["contextId"] = json!("other");
    for again in [params, elsewhere] {
        assert_eq!(
            house.call(&token, "SendMessage", again).await.unwrap()["task"],
            *task
        );
    }
    assert_eq!(
        house
            .task(&token, task["id"].as_str().unwrap())
            .await
            .unwrap(),
        *task
    );
    assert_eq!(house.count(EVENTS).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_a_context_opens_one_and_its_repeat_is_in_the_same() {
    let house = House::open().await;
    let token = house.sender("app", &[]).await;
    let first = house.send(&token, "m1", "").await;
    assert_eq!(
        house.send(&token, "m1", "").await["contextId"],
        first["contextId"]
    );
    assert_ne!(
        house.send(&token, "m2", "").await["contextId"],
        first["contextId"]
    );
    assert_eq!(
        house.count("SELECT count(*) FROM lanekeeper.session").await,
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_waits_is_cancelled_and_is_never_delivered() {
    let house = House::open().await;
    let token = house.sender("app", &[]).await;
    house.pause(Some("a test")).await;
    let [first, second] = ["m1", "m2"].map(|id| format!("task-{id}"));
    for id in ["m1", "m2"] {
        assert_eq!(state(&house.send(&token, id, "c").await), "SUBMITTED");
    }
    // The second is cancelled before its turn; a repeat does nothing twice.
    for _ in 0..2 {
        let cancelled = house
            .call(&token, "CancelTask", json!({"id": second}))
            .await;
        assert_eq!(state(&cancelled.unwrap()), "CANCELED");
    }
    house.pause(None).await;
    wait_until(LIMIT, "the first is handled", async || {
        state(&house.task(&token, &first).await.unwrap()) == "COMPLETED"
    })
    .await;
    house.site.plant.settled().await;
    assert_eq!(
        state(&house.task(&token, &second).await.unwrap()),
        "CANCELED"
    );
    assert_eq!(house.site.plant.receiver.accepted(), 1);
    assert_eq!(
        house.call(&token, "CancelTask", json!({"id": first})).await,
        Err(-32002)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_is_under_way_is_cancelled_with_its_task() {
    let house = House::open().await;
    let token = house.sender("app", &[]).await;
    let sender = house.site.worker.sender;
    house.site.plant.receiver.hold(sender);
    house.send(&token, "m1", "c").await;
    wait_until(LIMIT, "it is being sent", async || {
        state(&house.task(&token, "task-m1").await.unwrap()) == "WORKING"
    })
    .await;
    let cancelled = house
        .call(&token, "CancelTask", json!({"id": "task-m1"}))
        .await
        .unwrap();
    assert_eq!(state(&cancelled), "CANCELED");
    house.site.plant.receiver.release(sender);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_fails_its_task_which_does_not_say_how() {
    let house = House::with("", "retry = { max_attempts = 1 }").await;
    let token = house.sender("app", &[]).await;
    house.site.plant.receiver.set_broken(true);
    let sent = house
        .call(&token, "SendMessage", message("m1", "c", false))
        .await
        .unwrap();
    assert_eq!(state(&sent["task"]), "FAILED");
    let said = sent["task"]["status"]["message"]["parts"][0]["text"]
        .as_str()
        .unwrap();
    assert_eq!(said, "the message could not be delivered to the agent");
    assert_eq!(house.count("SELECT count(*) FROM lanekeeper.dead").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_and_a_full_context_reject_messages_and_known_ones_are_answered_all_the_same() {
    let house = House::with("", "max_pending = 1\non_full = \"refuse\"").await;
    let token = house.sender("app", &[]).await;
    house.pause(Some("a test")).await;
    assert_eq!(state(&house.send(&token, "m1", "c").await), "SUBMITTED");
    let full = house.send(&token, "m2", "c").await;
    assert_eq!(
        (state(&full), &full["contextId"]),
        ("REJECTED", &json!("c"))
    );
    assert_eq!(
        house.task(&token, "task-m2").await,
        Err(-32001),
        "nothing was enqueued"
    );
    let close = "SELECT lanekeeper.close_session('inbox', 'c', 'a test')";
    house.site.plant.client.query_one(close, &[]).await.unwrap();
    assert_eq!(state(&house.send(&token, "m3", "c").await), "REJECTED");
    // What waited has expired with the close.
    wait_until(LIMIT, "it has expired", async || {
        state(&house.send(&token, "m1", "c").await) == "REJECTED"
    })
    .await;
    assert_eq!(
        house
            .count("SELECT count(*) FROM lanekeeper.event WHERE event_type = 'message'")
            .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_repeated_after_its_worker_was_killed_finds_its_first_message_at_another() {
    let mut house = House::with("wait = \"60s\"", "").await;
    let token = house.sender("app", &[]).await;
    house.pause(Some("a test")).await;
    let mut calls = Vec::new();
    for context in ["c", ""] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message(&format!("m{context}"), context, false)});
        let request = house.site.request(Method::POST, PATH).bearer_auth(&token);
        let request = request.header("A2A-Version", "1.0").body(body.to_string());
        calls.push(tokio::spawn(request.send()));
    }
    wait_until(LIMIT, "both are appended", async || {
        house.count(EVENTS).await == 2
    })
    .await;
    let other = house.site.plant.worker(&[]).await;
    let first = std::mem::replace(&mut house.site.worker, other);
    first.kill().await;
    for call in calls {
        call.await.unwrap().unwrap_err();
    }
    house.pause(None).await;
    for context in ["c", ""] {
        let sent = house.call(
            &token,
            "SendMessage",
            message(&format!("m{context}"), context, false),
        );
        assert_eq!(state(&sent.await.unwrap()["task"]), "COMPLETED");
    }
    assert_eq!(house.count(EVENTS).await, 2);
    assert_eq!(house.site.plant.receiver.accepted(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_followed_from_where_it_is_to_its_end() {
    let house = House::open().await;
    let token = house.sender("app", &[]).await;
    house.pause(Some("a test")).await;
    let follow = |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": "f", "method": method, "params": params});
        let request = house.site.request(Method::POST, PATH).bearer_auth(&token);
        request
            .header("A2A-Version", "1.0")
            .body(body.to_string())
            .send()
    };
    let first = follow("SendStreamingMessage", message("m1", "c", false))
        .await
        .unwrap();
    let second = follow("SubscribeToTask", json!({"id": "task-m1"}))
        .await
        .unwrap();
    house.pause(None).await;
    for answer in [first, second] {
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let text = timeout(LIMIT, answer.text()).await.unwrap().unwrap();
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let results: Vec<Value> = events
            .map(|event| {
                let event: Value = serde_json::from_str(event).unwrap();
                assert_eq!(event["id"], "f");
                event["result"].clone()
            })
            .collect();
        assert_eq!(state(&results[0]["task"]), "SUBMITTED", "{text}");
        let last = &results.last().unwrap()["statusUpdate"];
        assert_eq!(
            (state(last), &last["taskId"]),
            ("COMPLETED", &json!("task-m1")),
            "{text}"
        );
    }
    let ended = house
        .call(&token, "SubscribeToTask", json!({"id": "task-m1"}))
        .await;
    assert_eq!(ended, Err(-32004));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_an_answer_completes_a_task_it_has_what_the_agent_answered() {
    let house = House::open().await;
    house
        .apply(&format!(
            "[stream.quotes]\n[stream.quotes.a2a]\nurl = \"{}\"\ndescription = \"Quotes\"\ncomplete_on = \"response\"\n\
             [subscription.bob]\nstream = \"quotes\"\nadapter = \"agent\"\nurl = \"http://127.0.0.1:9/\"\npeer = \"bob\"\n",
            house.site.worker.http()
        ))
        .await;
    let token = house.sender("app", &[]).await;
    let bob = house.site.token(&["bob", "--scope", "produce"]).await;
    let call = async |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = house.site.request(Method::POST, "/v1/agents/quotes/a2a");
        let request = request
            .bearer_auth(&token)
            .header("A2A-Version", "1.0")
            .body(body.to_string());
        let body = Answer::of(request.send().await.unwrap()).await.body;
        (body["result"].clone(), body["error"]["code"].as_i64())
    };
    for (id, kind, expected) in [("m1", "RESPONSE", "COMPLETED"), ("m2", "ERROR", "FAILED")] {
        let (sent, _) = call("SendMessage", message(id, id, true)).await;
        let request = sent["task"]["metadata"]["lanekeeper"]["message_id"].clone();
        let mut answer = json!({
            "v": 1, "type": kind, "id": Uuid::now_v7(), "session": id, "name": "quoted",
            "correlation_id": request, "data": {"text": "twelve"},
        });
        if kind == "ERROR" {
            answer["data"] = json!({"text": "not for sale"});
        }
        assert_eq!(
            post(&house.site, "runs", &bob, answer.to_string())
                .await
                .status,
            200
        );
        // A repeat says what the first one's task is.
        for (method, params) in [
            ("GetTask", json!({"id": format!("task-{id}")})),
            ("SendMessage", message(id, id, true)),
        ] {
            let (found, _) = call(method, params).await;
            let task = if method == "GetTask" {
                &found
            } else {
                &found["task"]
            };
            assert_eq!(state(task), expected, "{task}");
            let parts = match kind {
                "ERROR" => &task["status"]["message"]["parts"],
                _ => &task["artifacts"][0]["parts"],
            };
            let text = if kind == "ERROR" {
                "not for sale"
            } else {
                "twelve"
            };
            assert_eq!(*parts, json!([{"text": text}]), "{task}");
        }
    }
    let asked = "SELECT count(*) FROM lanekeeper.event WHERE headers ->> 'frame' = 'REQUEST'";
    assert_eq!(house.count(asked).await, 2);
    // What nobody answered is known for a day.
    call("SendMessage", message("m3", "m3", true)).await;
    let age = "UPDATE lanekeeper.event SET created_at = created_at - interval '25 hours'";
    house.site.plant.client.execute(age, &[]).await.unwrap();
    assert_eq!(
        call("GetTask", json!({"id": "task-m3"})).await.1,
        Some(-32001)
    );
    let (found, _) = call("GetTask", json!({"id": "task-m1"})).await;
    assert_eq!(state(&found), "COMPLETED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_no_longer_than_the_agent_says_and_a_stopping_worker_ends_those_who_follow() {
    let house = House::with("wait = \"200ms\"", "").await;
    let token = house.sender("app", &[]).await;
    house.pause(Some("a test")).await;
    let sent = timeout(
        Duration::from_secs(20),
        house.call(&token, "SendMessage", message("m1", "c", false)),
    );
    assert_eq!(state(&sent.await.unwrap().unwrap()["task"]), "SUBMITTED");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": "task-m1"}});
    let request = house.site.request(Method::POST, PATH).bearer_auth(&token);
    let request = request.header("A2A-Version", "1.0").body(body.to_string());
    let following = request.send().await.unwrap();
    let stopping = tokio::spawn(house.site.worker.stop());
    let text = timeout(LIMIT, following.text()).await.unwrap().unwrap();
    assert!(text.contains("TASK_STATE_SUBMITTED"), "{text}");
    stopping.await.unwrap();
}
