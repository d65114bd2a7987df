//! H2: a failing collector does not disturb deliveries.

use std::time::Duration;

use tokio::time::Instant;

use super::collector::Collector;
use crate::command::run;
use crate::process::plant::Plant;

async fn delivers_and_ends(endpoint: &str, protocol: &str) {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant
        .worker(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
            ("OTEL_BLRP_SCHEDULE_DELAY", "50"),
        ])
        .await;
    // More than the queue of spans holds.
    plant.enqueue("s", 50, 60).await;
    plant.settled().await;
    assert_eq!(plant.assert_complete(50, 60), 0);
    let since = Instant::now();
    assert_eq!(worker.stop().await.code(), Some(0));
    // A few seconds for the last telemetry, and no more.
    assert!(
        since.elapsed() < Duration::from_secs(10),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_collector_that_hangs_everything_is_delivered_and_the_worker_ends() {
    let collector = Collector::silent().await;
    delivers_and_ends(&collector.url, "grpc").await;
    delivers_and_ends(&collector.url, "http/protobuf").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_collector_that_is_away_everything_is_delivered_and_the_worker_ends() {
    let collector = Collector::silent().await;
    let url = collector.url.clone();
    drop(collector);
    delivers_and_ends(&url, "grpc").await;
    delivers_and_ends(&url, "http/protobuf").await;
}

#[tokio::test]
async fn a_wrong_variable_exits_2_and_names_what_is_known() {
    let variables = [
        ("DATABASE_URL", "postgres://nowhere.invalid/x"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ];
    let ran = run(&["worker"], &variables, "").await;
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("OTEL_TRACES_EXPORTER = zipkin is not one of otlp, none"),
        "{}",
        ran.stderr
    );
}
