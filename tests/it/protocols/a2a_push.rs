//! A2A 1.0: what an agent tells a worker of its tasks, and who may.

use lanekeeper_adapters::{Environment, PushKey};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::site::{Answer, Site};
use crate::api::slow::hold;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn settings(variable: &str) -> Value {
    json!({
        "protocol": "a2a", "url": "http://127.0.0.1:9/", "acknowledge_on": "completed",
        "push_url": "http://127.0.0.1:9/", "push_secret_env": variable,
    })
}

fn key(subscription: &str) -> PushKey {
    let environment = Environment::with_variables(true, [("PUSH_SECRET", SECRET)]);
    PushKey::of(subscription, &settings("PUSH_SECRET"), &environment)
        .unwrap()
        .unwrap()
}

/// Messages that the subscriptions `alice` and `bob` sent, and that wait.
async fn sent(site: &Site) -> [Uuid; 2] {
    let client = &site.plant.client;
    client
        .batch_execute("INSERT INTO lanekeeper.stream (name) VALUES ('out')")
        .await
        .unwrap();
    let subscribe = "WITH t AS (
             UPDATE lanekeeper.stream SET lanes_version = lanes_version + 1 WHERE name = 'out' RETURNING stream_id)
         INSERT INTO lanekeeper.subscription (stream_id, name, adapter, settings, retry_schedule_ms, max_attempts,
                                              on_exhausted, coalesce, ack, paused_at, pause_reason)
         SELECT t.stream_id, $1::text, 'agent', $2::jsonb, '{1000}', 0, 'dead_letter', false, 'required', now(), 'a test' FROM t";
    for (name, settings) in [
        ("alice", settings("PUSH_SECRET")),
        ("bob", settings("PUSH_SECRET")),
        ("lost", settings("NO_SUCH_SECRET")),
        ("frames", json!({"url": "http://127.0.0.1:9/"})),
    ] {
        client
            .execute(subscribe, &[&name, &settings])
            .await
            .unwrap();
    }
    let mut ids = [Uuid::nil(); 2];
    for (name, id) in ["alice", "bob"].into_iter().zip(&mut ids) {
        let append = "SELECT message_id FROM lanekeeper.enqueue('out', 's', 'ask', '1')";
        *id = client.query_one(append, &[]).await.unwrap().get(0);
        let enter = "INSERT INTO lanekeeper.sent (message_id, lane_id, seq)
                     SELECT e.message_id, l.lane_id, e.seq FROM lanekeeper.event AS e
                     JOIN lanekeeper.lane AS l ON l.session_id = e.session_id
                     JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
                     WHERE e.message_id = $1 AND s.name = $2";
        assert_eq!(client.execute(enter, &[&*id, &name]).await.unwrap(), 1);
    }
    ids
}

async fn tell(site: &Site, subscription: &str, id: Uuid, token: &str, body: &Value) -> Answer {
    let request = site.request(Method::POST, &format!("/v1/a2a/{subscription}/{id}"));
    let request = request.bearer_auth(token).body(body.to_string());
    Answer::of(request.send().await.unwrap()).await
}

fn update(task: &str, state: &str) -> Value {
    json!({"statusUpdate": {"taskId": task, "contextId": "s", "status": {"state": state}}})
}

async fn acked(site: &Site) -> i64 {
    let acked = "SELECT count(*) FROM lanekeeper.sent WHERE acked_at IS NOT NULL";
    site.plant.count(acked).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_task_acknowledges_its_message_and_nothing_else_does() {
    let site = Site::open(&[("PUSH_SECRET", SECRET)]).await;
    let [to_alice, to_bob] = sent(&site).await;
    let token = key("alice").token(to_alice);
    let complete = update("t", "TASK_STATE_COMPLETED");
    let other_message = key("alice").token(to_bob);
    let other_subscription = key("bob").token(to_alice);
    for (subscription, id, token) in [
        ("alice", to_alice, ""),
        ("alice", to_alice, "x"),
        ("alice", to_alice, &other_message),
        ("alice", to_alice, &other_subscription),
        ("alice", to_bob, &token),
        ("bob", to_alice, &token),
        ("lost", to_alice, &token),
        ("frames", to_alice, &token),
        ("nobody", to_alice, &token),
    ] {
        let answer = tell(&site, subscription, id, token, &complete).await;
        answer.assert_problem(401, "unauthorized");
    }
    let no_id = site
        .request(Method::POST, "/v1/a2a/alice/x")
        .send()
        .await
        .unwrap();
    Answer::of(no_id).await.assert_problem(401, "unauthorized");
    for body in [json!({}), json!([]), json!({"task": {}})] {
        tell(&site, "alice", to_alice, &token, &body)
            .await
            .assert_problem(422, "invalid");
    }
    for state in [
        "TASK_STATE_WORKING",
        "TASK_STATE_FAILED",
        "TASK_STATE_INPUT_REQUIRED",
    ] {
        let answer = tell(&site, "alice", to_alice, &token, &update("t", state)).await;
        assert_eq!(
            (answer.status, &answer.body["result"]),
            (200, &json!("noted")),
            "{state}"
        );
    }
    assert_eq!(acked(&site).await, 0);
    for result in ["acked", "already_acked"] {
        let answer = tell(&site, "alice", to_alice, &token, &complete).await;
        assert_eq!(
            (answer.status, &answer.body["result"]),
            (200, &json!(result)),
            "{}",
            answer.body
        );
        assert_eq!(acked(&site).await, 1);
    }
    // The one to bob waits on, and one that was never sent is unknown.
    let unknown = Uuid::now_v7();
    let answer = tell(
        &site,
        "alice",
        unknown,
        &key("alice").token(unknown),
        &complete,
    )
    .await;
    assert_eq!(
        (answer.status, &answer.body["result"]),
        (200, &json!("unknown"))
    );
    assert_eq!(acked(&site).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_about_another_task_than_the_message_became_acknowledges_nothing() {
    let site = Site::open(&[("PUSH_SECRET", SECRET)]).await;
    let [to_alice, _] = sent(&site).await;
    let remember = "INSERT INTO lanekeeper.sent_message (subscription_id, session_id, chat, key, part, reference)
                    SELECT l.subscription_id, l.session_id, 'a2a', 'tasks', w.seq % 64, w.seq || ' ' || w.message_id || ' t'
                    FROM lanekeeper.sent AS w JOIN lanekeeper.lane AS l ON l.lane_id = w.lane_id WHERE w.message_id = $1";
    assert_eq!(
        site.plant
            .client
            .execute(remember, &[&to_alice])
            .await
            .unwrap(),
        1
    );
    let token = key("alice").token(to_alice);
    let other = tell(
        &site,
        "alice",
        to_alice,
        &token,
        &update("u", "TASK_STATE_COMPLETED"),
    )
    .await;
    other.assert_problem(422, "invalid");
    assert_eq!(acked(&site).await, 0);
    let own = tell(
        &site,
        "alice",
        to_alice,
        &token,
        &update("t", "TASK_STATE_COMPLETED"),
    )
    .await;
    assert_eq!(own.body["result"], "acked");
    let left = site
        .plant
        .count("SELECT count(*) FROM lanekeeper.sent_message")
        .await;
    assert_eq!(left, 0, "what has ended is forgotten");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_slow_notifications_keep_neither_producers_nor_other_agents_waiting() {
    let patient = ("LANEKEEPER_HTTP__READ_TIMEOUT_MS", "60000");
    let site = Site::open(&[("PUSH_SECRET", SECRET), patient]).await;
    let [to_alice, to_bob] = sent(&site).await;
    let app = site.token(&["app", "--scope", "produce"]).await;
    let token = key("alice").token(to_alice);
    let complete = update("t", "TASK_STATE_COMPLETED");
    // As many as requests are served at once, and more.
    let begun = format!(
        "POST /v1/a2a/alice/{to_alice} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-length: 1000\r\n\r\n{{"
    );
    let held = hold(&site, 80, &begun).await;
    wait_until(LIMIT, "its share is taken", async || {
        tell(&site, "alice", to_alice, &token, &complete)
            .await
            .status
            == 429
    })
    .await;
    let append = site.events(Method::POST, "runs", "s").bearer_auth(&app);
    let append = append.body(r#"{"event_type":"a","payload":1}"#);
    assert_eq!(append.send().await.unwrap().status(), 201);
    let other = key("bob").token(to_bob);
    let told = tell(&site, "bob", to_bob, &other, &complete).await;
    assert_eq!((told.status, &told.body["result"]), (200, &json!("acked")));
    drop(held);
    let large = json!({"message": {"messageId": "x".repeat(1_048_576)}});
    let refused = tell(&site, "bob", to_bob, &other, &large).await;
    refused.assert_problem(413, "payload_too_large");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_strangers_ask_for_stay_in_nobodys_memory() {
    let site = Site::open(&[("PUSH_SECRET", SECRET)]).await;
    let resident_kb = || -> i64 {
        let status = format!("/proc/{}/status", site.worker.pid());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        line.unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    };
    let id = Uuid::now_v7();
    let ask = async |n: usize| {
        let name = format!("{n}{}", "x".repeat(60_000));
        let answer = tell(&site, &name, id, "x", &json!({})).await;
        answer.assert_problem(401, "unauthorized");
    };
    for n in 0..20 {
        ask(n).await;
    }
    let before = resident_kb();
    for n in 20..320 {
        ask(n).await;
    }
    // They are 18 MB all together.
    let grown = resident_kb() - before;
    assert!(grown < 9_000, "{grown} kB");
}
