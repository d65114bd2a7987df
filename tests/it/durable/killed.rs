//! Workers that are killed under a producer and a reader.

use std::time::Duration;

use reqwest::{Client, Method};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::header;
use crate::process::plant::Plant;

const COUNT: i64 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn a_producers_retries_over_killed_workers_leave_each_message_once_and_in_order() {
    // Fails only where it is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plant = Plant::new(Duration::ZERO).await;
    let variables = [
        ("LANEKEEPER_HTTP__ALLOW_UNAUTHENTICATED", "true"),
        ("LANEKEEPER_DURABLE_STREAMS__STREAMS", "runs"),
    ];
    let client = Client::new();
    let mut worker = plant.worker(&variables).await;
    let path = "/v1/ds/runs/r1";
    let created = client
        .put(worker.http() + path)
        .header("content-type", "application/json");
    assert_eq!(created.send().await.unwrap().status(), 201);
    let mut unanswered = 0;
    for seq in 0..COUNT {
        let kill = seq % 12 == 5;
        loop {
            let request = client
                .request(Method::POST, worker.http() + path)
                .header("content-type", "application/json")
                .header("producer-id", "p")
                .header("producer-epoch", "0")
                .header("producer-seq", seq)
                .timeout(Duration::from_secs(20))
                .body(json!({ "n": seq }).to_string());
            let sending = tokio::spawn(request.send());
            if kill && unanswered * 12 + 5 == seq {
                // Somewhere between the request and its answer.
                tokio::time::sleep(Duration::from_micros(300 * unanswered.unsigned_abs())).await;
                unanswered += 1;
                worker.signal(Signal::KILL);
                let _ = sending.await.unwrap();
                worker = plant.worker(&variables).await;
                continue;
            }
            let sent = sending.await.unwrap().unwrap();
            assert!(
                [200, 204].contains(&sent.status().as_u16()),
                "{}",
                sent.status()
            );
            assert_eq!(header(&sent, "producer-seq"), seq.to_string());
            break;
        }
    }
    assert_eq!(unanswered, COUNT / 12);
    let read = client.get(worker.http() + path).send().await.unwrap();
    let read: Vec<Value> = super::json(read).await;
    let expected: Vec<Value> = (0..COUNT).map(|n| json!({ "n": n })).collect();
    assert_eq!(read, expected);
    plant.settled().await;
    plant.assert_complete(1, COUNT);
}
