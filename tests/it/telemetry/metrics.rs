//! H2: the same metrics over OTLP and for Prometheus.

use std::time::Duration;

use lanekeeper_telemetry::names;
use tokio::time::Instant;

use super::collector::{Collector, keys};
use crate::process::plant::{LIMIT, Plant};
use crate::support::{Instead, Receiver, WorkerProcess, wait_until};

async fn scrape(http: &str) -> String {
    let answer = reqwest::get(format!("{http}/metrics")).await.unwrap();
    assert_eq!(answer.status(), 200);
    let kind = answer.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    answer.text().await.unwrap()
}

/// The sum of a name's series whose labels have all of these.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let series = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, given) = series.split_once('{')?;
        let wanted = found == name && labels.iter().all(|label| given.contains(label));
        wanted.then(|| value.parse::<f64>().unwrap())
    });
    series.reduce(|sum, value| sum + value)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_does_is_counted_for_prometheus_and_over_otlp() {
    // The providers of tests are made without TLS for the requests of their own.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let collector = Collector::grpc().await;
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant
        .worker(&[
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
        ])
        .await;
    plant.receiver.answer_once(Instead::Fail);
    let since = Instant::now();
    plant.enqueue("session-", 3, 4).await;
    plant.settled().await;
    let http = worker.http();
    wait_until(
        LIMIT,
        "twelve deliveries are counted, and the lag is looked at",
        async || {
            let text = scrape(&http).await;
            value(&text, "lanekeeper_events_settled_total", &["delivered"]) == Some(12.0)
                && value(&text, "lanekeeper_lag_events", &["out"]).is_some()
        },
    )
    .await;
    let text = scrape(&http).await;
    let accepted = value(
        &text,
        "messaging_process_duration_seconds_count",
        &["out", "runs"],
    );
    assert_eq!(
        accepted,
        Some(13.0),
        "twelve that were accepted and one that failed"
    );
    let failed = ["error_type=\"500\"", "lanekeeper_verdict=\"retry\""];
    let failed = value(&text, "messaging_process_duration_seconds_count", &failed);
    assert_eq!(failed, Some(1.0));
    let latency = |part: &str| {
        let name = format!("lanekeeper_delivery_latency_seconds_{part}");
        value(&text, &name, &["out", "runs"])
    };
    assert_eq!(latency("count"), Some(12.0), "of what was accepted");
    // Both clocks are of this machine here.
    let elapsed = since.elapsed().as_secs_f64();
    let sum = latency("sum").unwrap();
    assert!(sum > 0.0 && sum < 12.0 * elapsed, "{sum} s of {elapsed} s");
    assert!(
        !text.contains("_ratio"),
        "what is 0 or 1 is no ratio: {text}"
    );
    assert_eq!(value(&text, "lanekeeper_workers", &[]), Some(1.0));
    for some in [
        "lanekeeper_claim_duration_seconds_count",
        "lanekeeper_settle_lanes_count",
        "lanekeeper_wakeups_total",
        "lanekeeper_lanes",
    ] {
        assert!(
            value(&text, some, &[]).is_some_and(|value| value > 0.0),
            "{some}\n{text}"
        );
    }
    assert!(!text.contains("session-"), "no session is a label: {text}");

    wait_until(LIMIT, "they are exported too", async || {
        let got = collector.got();
        got.metrics.contains_key("messaging.process.duration")
            && got.metrics.contains_key("lanekeeper.lag.events")
    })
    .await;
    assert!(worker.stop().await.success());
    let got = collector.got();
    assert!(
        got.spans.is_empty() && got.logs.is_empty(),
        "only metrics were asked for"
    );
    for (name, metric) in &got.metrics {
        let known = names::INSTRUMENTS.iter().find(|known| known.name == name);
        let known = known.unwrap_or_else(|| panic!("{name} is not among the names"));
        assert_eq!(
            (&*metric.unit, &*metric.description),
            (known.unit, known.says)
        );
        for key in keys(metric) {
            let per_event = [
                "messaging.message.id",
                "messaging.message.conversation_id",
                "lanekeeper.seq",
            ];
            assert!(!per_event.contains(&&*key), "{name} has {key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_route_and_what_they_appended_and_were_refused_for() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plant = Plant::new(Duration::ZERO).await;
    let open = [("LANEKEEPER_HTTP__ALLOW_UNAUTHENTICATED", "true")];
    let worker = plant.worker(&open).await;
    let http = worker.http();
    let client = reqwest::Client::new();
    let post = async |stream: &str| {
        let url = format!("{http}/v1/streams/{stream}/sessions/secret-session/events");
        let body =
            r#"[{"event_type":"a","payload":1,"dedupe_key":"k"},{"event_type":"a","payload":2}]"#;
        let answer = client.post(url).body(body).send().await.unwrap();
        answer.status().as_u16()
    };
    assert_eq!(post("runs").await, 201);
    assert_eq!(post("runs").await, 201);
    assert_eq!(post("nowhere").await, 404);
    assert_eq!(
        client
            .get(format!("{http}/v2"))
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
    let route = "http_route=\"/v1/streams/{stream}/sessions/{session}/events\"";
    let requests = "http_server_request_duration_seconds_count";
    wait_until(LIMIT, "every answer is measured", async || {
        let text = scrape(&http).await;
        value(&text, requests, &[route, "status_code=\"201\""]) == Some(2.0)
            && value(&text, requests, &[route, "status_code=\"404\""]) == Some(1.0)
    })
    .await;
    let text = scrape(&http).await;
    let events = "lanekeeper_http_events_total";
    let of = |duplicate: &str| value(&text, events, &["\"runs\"", duplicate]);
    assert_eq!(of("duplicate=\"false\""), Some(3.0));
    assert_eq!(of("duplicate=\"true\""), Some(1.0));
    for reason in ["unknown_stream", "not_found"] {
        let refused = value(&text, "lanekeeper_http_refused_total", &[reason]);
        assert_eq!(refused, Some(1.0), "{reason}");
    }
    assert_eq!(
        value(&text, "http_server_active_requests", &["GET"]),
        Some(1.0),
        "this one"
    );
    let busy = value(&text, "lanekeeper_http_connections", &["busy"]);
    assert_eq!(busy, Some(1.0));
    assert!(
        !text.contains("secret-session") && !text.contains("nowhere"),
        "{text}"
    );
    assert!(worker.stop().await.success());
}

/// With a handler beside it that has nothing to do, the session registry: it scans for itself, at the intervals of a
/// worker that is not notified, and is woken by no delivery.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_find_nothing_are_counted_those_for_handlers_too() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plant = Plant::new(Duration::from_millis(2)).await;
    plant.enqueue("s", 500, 1).await;
    let worker = plant.worker(&[]).await;
    plant.settled().await;
    let text = scrape(&worker.http()).await;
    let [claims, empty, settlements] = [
        "lanekeeper_claim_lanes_count",
        "lanekeeper_claim_empty_total",
        "lanekeeper_settle_lanes_count",
    ]
    .map(|name| value(&text, name, &[]).unwrap_or(0.0));
    println!("{claims} claims, {empty} of them empty, {settlements} settlements");
    assert!(empty > 0.0 && empty < claims, "{text}");
    assert!(settlements > 0.0, "{text}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_without_an_answer_is_counted_by_its_cause() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut plant = Plant::new(Duration::ZERO).await;
    let (sender, secret) = plant.receiver.new_secret();
    // From now on nobody listens where the subscription sends to.
    plant.receiver = Receiver::start(Duration::ZERO).await;
    let worker = WorkerProcess::spawn(&plant.url, sender, &secret, &[]);
    worker.serves().await;
    let statement = "SELECT lanekeeper.enqueue('runs', 's', 'step', '{}')";
    plant.client.batch_execute(statement).await.unwrap();
    let http = worker.http();
    let refused = [
        "error_type=\"connection_refused\"",
        "lanekeeper_verdict=\"retry\"",
    ];
    wait_until(LIMIT, "a refused connection is counted", async || {
        let text = scrape(&http).await;
        value(&text, "messaging_process_duration_seconds_count", &refused) >= Some(1.0)
    })
    .await;
    assert!(worker.stop().await.success());
}
