//! C9: frames are taken into a stream, once each, and acknowledged.

use lanekeeper_core::frame;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::site::{Answer, Site};

pub(super) fn message(id: Uuid, session: &str, data: &Value) -> Value {
    json!({"v": 1, "type": "EVENT", "id": id, "session": session, "name": "note", "data": data})
}

fn batch(frames: &[Value]) -> Value {
    json!({"v": 1, "type": "BATCH", "frames": frames})
}

pub(crate) async fn post(site: &Site, stream: &str, token: &str, body: String) -> Answer {
    let path = format!("/v1/agents/{stream}/frames");
    let request = site.request(Method::POST, &path).bearer_auth(token);
    Answer::of(request.body(body).send().await.unwrap()).await
}

async fn send(site: &Site, token: &str, frame: &Value) -> Answer {
    post(site, "runs", token, frame.to_string()).await
}

fn ids(answer: &Answer) -> Vec<Uuid> {
    assert_eq!(
        (answer.status, &answer.body["type"]),
        (200, &json!("ACK")),
        "{}",
        answer.body
    );
    serde_json::from_value(answer.body["ids"].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_appended_once_for_each_sender_session_and_id() {
    let site = Site::open(&[]).await;
    let alice = site.token(&["alice", "--scope", "produce"]).await;
    let mallory = site.token(&["mallory", "--scope", "produce"]).await;
    let id = Uuid::now_v7();
    // Whoever learns of an id cannot use it up for its sender.
    assert_eq!(
        ids(&send(&site, &mallory, &message(id, "s", &json!("forged"))).await),
        [id]
    );
    for _ in 0..3 {
        assert_eq!(
            ids(&send(&site, &alice, &message(id, "s", &json!({"n": 1}))).await),
            [id]
        );
    }
    assert_eq!(
        ids(&send(&site, &alice, &message(id, "other", &json!(2))).await),
        [id]
    );
    assert_eq!(site.logged_events().await, 3);
    let row = "SELECT headers - 'traceparent' AS headers FROM lanekeeper.event
               WHERE payload::jsonb = '{\"n\": 1}' AND event_type = 'note'";
    let headers: Value = site.plant.client.query_one(row, &[]).await.unwrap().get(0);
    assert_eq!(
        headers,
        json!({"frame": "EVENT", "frame_id": id, "frame_from": "alice"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_frame_is_refused_and_nothing_is_appended() {
    let site = Site::open(&[]).await;
    let token = site.token(&["alice", "--scope", "produce"]).await;
    let whole = message(Uuid::now_v7(), "s", &json!({"a": [1, 2]})).to_string();
    let deep = whole.replace(
        "[1,2]",
        &format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
    );
    for body in [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        whole.replace("\"v\":1", "\"v\":2"),
        whole.replace("EVENT", "GREETING"),
        deep,
        batch(&[]).to_string(),
        json!({"v": 1, "type": "ACK", "ids": vec![Uuid::nil(); 100_000]}).to_string(),
    ] {
        let answer = post(&site, "runs", &token, body).await;
        answer.assert_problem(422, "invalid");
        assert_eq!(answer.body["accepted"], 0);
    }
    let large = json!("x".repeat(9 * 1024 * 1024));
    let answer = send(&site, &token, &message(Uuid::now_v7(), "s", &large)).await;
    answer.assert_problem(413, "payload_too_large");
    let unknown = post(&site, "nowhere", &token, whole.clone()).await;
    unknown.assert_problem(404, "unknown_stream");
    let reader = site.token(&["reader", "--scope", "read"]).await;
    let elsewhere = site
        .token(&["elsewhere", "--scope", "produce", "--stream", "hooks"])
        .await;
    for token in [&reader, &elsewhere] {
        let answer = post(&site, "runs", token, whole.clone()).await;
        answer.assert_problem(403, "forbidden");
    }
    assert_eq!(site.logged_events().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_whose_third_frame_is_refused_the_first_two_are_taken_and_acknowledged() {
    let site = Site::open(&[]).await;
    let token = site.token(&["alice", "--scope", "produce"]).await;
    let nul = json!("a\u{0}b");
    let large = json!("x".repeat(2 * 1024 * 1024));
    let unreadable = json!({"v": 7});
    let expected = [
        (&nul, "nul_character"),
        (&large, "payload_too_large"),
        (&unreadable, "invalid"),
    ];
    for (round, (bad, code)) in (1..).zip(expected) {
        let session = format!("s{round}");
        let good: Vec<Uuid> = (0..3).map(|_| Uuid::now_v7()).collect();
        let bad = match code {
            "invalid" => (*bad).clone(),
            _ => message(Uuid::now_v7(), &session, bad),
        };
        let frames = [
            message(good[0], &session, &json!(1)),
            message(good[1], &session, &json!(2)),
            bad,
            message(good[2], &session, &json!(4)),
        ];
        let answer = send(&site, &token, &batch(&frames)).await;
        let status = if code == "payload_too_large" {
            413
        } else {
            422
        };
        answer.assert_problem(status, code);
        assert_eq!(answer.body["accepted"], 2, "{code}");
        assert_eq!(answer.body["ack"], json!(good[..2]), "{code}");
        assert_eq!(site.logged_events().await, 2 * round);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_batch_is_one_request_and_keeps_its_order() {
    let site = Site::open(&[]).await;
    let token = site.token(&["alice", "--scope", "produce"]).await;
    let frames: Vec<Value> = (1..=frame::MOST_FRAMES)
        .map(|n| message(Uuid::now_v7(), "s", &json!(n)))
        .collect();
    assert_eq!(
        ids(&send(&site, &token, &batch(&frames)).await).len(),
        frame::MOST_FRAMES
    );
    let wrong = "SELECT count(*) FROM lanekeeper.event WHERE payload::int <> seq";
    assert_eq!(site.plant.count(wrong).await, 0);
    let more = [&frames[..], &frames[..1]].concat();
    let answer = send(&site, &token, &batch(&more)).await;
    answer.assert_problem(422, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_session_takes_no_frame() {
    let site = Site::open(&[]).await;
    let token = site.token(&["alice", "--scope", "produce"]).await;
    let first = message(Uuid::now_v7(), "s", &json!(1));
    assert_eq!(ids(&send(&site, &token, &first).await).len(), 1);
    let close = "SELECT lanekeeper.close_session('runs', 's')";
    site.plant.client.execute(close, &[]).await.unwrap();
    let second = message(Uuid::now_v7(), "s", &json!(2));
    let answer = send(&site, &token, &second).await;
    answer.assert_problem(409, "session_closed");
    assert_eq!(site.logged_events().await, 1);
}
