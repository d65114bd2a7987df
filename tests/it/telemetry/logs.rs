//! The fields of log lines.

use std::time::Duration;

use serde_json::Value;

use super::collector::Collector;
use crate::command::run;
use crate::process::plant::{LIMIT, Plant};
use crate::support::{Instead, SECRET_ENV, wait_until};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[tokio::test(flavor = "multi_thread")]
async fn the_line_of_a_dead_letter_names_its_session_lane_and_message_and_its_trace() {
    let collector = Collector::grpc().await;
    let plant = Plant::new(Duration::ZERO).await;
    let subscription = format!(
        "[subscription.out]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"{}\"\n\
         secret_env = \"{SECRET_ENV}\"\nretry = {{ max_attempts = 1 }}\n",
        plant.receiver.url()
    );
    let database = [("DATABASE_URL", plant.url.as_str())];
    let ran = run(&["apply", "-f", "-"], &database, &subscription).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let worker = plant
        .worker(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("LANEKEEPER_LOG__FORMAT", "json"),
        ])
        .await;
    plant.receiver.answer_once(Instead::Fail);
    let statement = format!(
        "SELECT e.message_id::text FROM lanekeeper.enqueue('runs', 'the session', 'step', '{{}}',
             headers => '{{\"traceparent\": \"00-{TRACE}-b7ad6b7169203331-01\"}}') AS e"
    );
    let row = plant.client.query_one(&statement, &[]).await.unwrap();
    let message_id: String = row.get(0);
    wait_until(LIMIT, "it is a dead letter", async || {
        worker.logged("event exhausted")
    })
    .await;
    let lane = "SELECT lane_id FROM lanekeeper.lane_status
        WHERE session = 'the session' AND subscription = 'out'";
    let lane_id = plant.count(lane).await;
    let log = worker.log();
    let line = log
        .lines()
        .find(|line| line.contains("event exhausted"))
        .unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["subscription"], "out", "{line}");
    assert_eq!(line["session"], "the session", "{line}");
    assert_eq!(line["lane_id"], lane_id, "{line}");
    assert_eq!(line["message_id"], *message_id, "{line}");
    assert_eq!(line["trace_id"], TRACE, "{line}");
    assert!(worker.stop().await.success());
    let got = collector.got();
    let delivery = &got.of("deliver runs")[0];
    let span_id: String = delivery
        .span_id
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(line["span_id"], *span_id, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_of_an_opened_circuit_names_the_subscription() {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    plant.receiver.set_broken(true);
    plant.enqueue("s", 8, 1).await;
    wait_until(LIMIT, "the circuit opens", async || {
        worker.logged("circuit opened")
    })
    .await;
    let log = worker.log();
    let line = log
        .lines()
        .find(|line| line.contains("circuit opened"))
        .unwrap();
    assert!(
        line.contains("subscription=out") && line.contains("stream=runs"),
        "{line}"
    );
    assert!(
        line.contains(plant.receiver.url().split("/events").next().unwrap()),
        "{line}"
    );
    assert!(worker.stop().await.success());
}
