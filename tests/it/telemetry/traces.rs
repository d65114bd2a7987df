//! H2: from the producer's transaction to the webhook in one trace.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use super::collector::{Collector, text};
use crate::process::plant::{LIMIT, Plant};
use crate::support::{Instead, wait_until};
use crate::tls::server::Authority;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn enqueue(plant: &Plant, session: &str, flags: &str) {
    let statement = format!(
        "SELECT lanekeeper.enqueue('runs', '{session}', 'step', '{{}}',
             headers => '{{\"traceparent\": \"00-{TRACE}-{PARENT}-{flags}\", \"tracestate\": \"vendor=1\"}}')"
    );
    plant.client.batch_execute(&statement).await.unwrap();
}

async fn one_trace_over(collector: Collector, protocol: &str) {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant
        .worker(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
            ("OTEL_METRICS_EXPORTER", "none"),
        ])
        .await;
    plant.receiver.answer_once(Instead::Fail);
    enqueue(&plant, "a", "01").await;
    plant.settled().await;
    wait_until(LIMIT, "both attempts are traced", async || {
        collector.got().of("deliver runs").len() == 2
    })
    .await;
    let mut spans = collector.got().of("deliver runs");
    spans.sort_by_key(|span| span.start_time_unix_nano);
    let [failed, accepted]: [Span; 2] = spans.try_into().unwrap();

    // The first attempt continues the producer's trace, in the receiver's eyes too.
    assert_eq!(hex(&failed.trace_id), TRACE);
    assert_eq!(hex(&failed.parent_span_id), PARENT);
    assert_eq!(failed.trace_state, "vendor=1");
    assert_eq!(failed.name, "deliver runs");
    assert_eq!(failed.kind(), SpanKind::Consumer);
    assert_eq!(failed.status.as_ref().unwrap().code(), StatusCode::Error);
    let seen = plant.receiver.seen();
    let [first, second] = [&seen.turned_away[0], &seen.arrivals[0]];
    let header = format!("00-{TRACE}-{}-01", hex(&failed.span_id));
    assert_eq!(first.traceparent, Some(header));
    assert_eq!(first.tracestate.as_deref(), Some("vendor=1"));
    for (key, value) in [
        ("messaging.system", "lanekeeper"),
        ("messaging.operation.name", "deliver"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "runs"),
        ("messaging.consumer.group.name", "out"),
        ("messaging.message.id", &first.id.to_string()),
        ("messaging.message.conversation_id", "a"),
        ("lanekeeper.seq", "1"),
        ("lanekeeper.attempt", "1"),
        ("error.type", "500"),
        ("lanekeeper.verdict", "retry"),
        ("http.response.status_code", "500"),
        ("server.address", "127.0.0.1"),
    ] {
        assert_eq!(
            text(&failed.attributes, key).as_deref(),
            Some(value),
            "{key}"
        );
    }

    // A retry has a trace of its own, with a link to where the event was made.
    assert_ne!(accepted.trace_id, failed.trace_id);
    assert!(accepted.parent_span_id.is_empty());
    assert_eq!(accepted.links.len(), 1);
    assert_eq!(hex(&accepted.links[0].trace_id), TRACE);
    assert_eq!(hex(&accepted.links[0].span_id), PARENT);
    let header = format!(
        "00-{}-{}-01",
        hex(&accepted.trace_id),
        hex(&accepted.span_id)
    );
    assert_eq!(second.traceparent, Some(header));
    assert_eq!(text(&accepted.attributes, "error.type"), None);
    let status = text(&accepted.attributes, "http.response.status_code");
    assert_eq!(status.as_deref(), Some("204"));

    assert_eq!(worker.stop().await.code(), Some(0));
    let got = collector.got();
    assert!(got.services.iter().all(|service| service == "lanekeeper"));
    assert_eq!(got.instances.len(), 1, "one process: {:?}", got.instances);
    for (name, kind) in [("claim", "receive"), ("settle", "settle")] {
        let spans = got.of(name);
        assert!(!spans.is_empty(), "{name}");
        for span in spans {
            assert_eq!(span.kind(), SpanKind::Client);
            let of = |key| text(&span.attributes, key).unwrap();
            assert_eq!(of("messaging.operation.type"), kind);
            assert_eq!(of("messaging.batch.message_count"), "1");
            assert!(span.end_time_unix_nano > span.start_time_unix_nano);
        }
    }
    assert!(
        got.logs.iter().any(|line| line == "worker stopped"),
        "{:?}",
        got.logs
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_continues_its_producers_trace_and_a_retry_links_to_it_over_grpc() {
    one_trace_over(Collector::grpc().await, "grpc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_continues_its_producers_trace_and_a_retry_links_to_it_over_http() {
    one_trace_over(Collector::http().await, "http/protobuf").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_producer_did_not_sample_is_not_traced_and_its_context_goes_on() {
    let collector = Collector::grpc().await;
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant
        .worker(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b,service.name=tier-1"),
        ])
        .await;
    enqueue(&plant, "quiet", "00").await;
    enqueue(&plant, "traced", "01").await;
    plant.settled().await;
    // Ends with everything exported.
    assert_eq!(worker.stop().await.code(), Some(0));
    let got = collector.got();
    let sessions: Vec<_> = got
        .spans
        .iter()
        .filter_map(|span| text(&span.attributes, "messaging.message.conversation_id"))
        .collect();
    assert_eq!(sessions, ["traced"]);
    assert_eq!(got.services, ["tier-1"], "the configured name");
    let seen = plant.receiver.seen();
    let quiet = seen
        .arrivals
        .iter()
        .find(|one| one.session == "quiet")
        .unwrap();
    let context = quiet.traceparent.as_deref().unwrap();
    assert!(
        context.starts_with(&format!("00-{TRACE}-")) && context.ends_with("-00"),
        "{context}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_the_producers_context_goes_out_as_it_is_stored() {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    enqueue(&plant, "a", "01").await;
    plant.settled().await;
    let seen = plant.receiver.seen();
    let stored = format!("00-{TRACE}-{PARENT}-01");
    assert_eq!(seen.arrivals[0].traceparent, Some(stored));
    assert_eq!(seen.arrivals[0].tracestate.as_deref(), Some("vendor=1"));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_over_http_is_a_span_between_its_client_and_the_delivery() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let collector = Collector::grpc().await;
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant
        .worker(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("LANEKEEPER_HTTP__ALLOW_UNAUTHENTICATED", "true"),
        ])
        .await;
    let post = async |stream: &str| {
        let url = format!("{}/v1/streams/{stream}/sessions/a/events", worker.http());
        let request = reqwest::Client::new()
            .post(url)
            .header("traceparent", format!("00-{TRACE}-{PARENT}-01"))
            .body(r#"[{"event_type":"a","payload":1},{"event_type":"b","payload":2}]"#);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(post("runs").await, 201);
    assert_eq!(post("nowhere").await, 404);
    plant.settled().await;
    assert_eq!(worker.stop().await.code(), Some(0));
    let got = collector.got();
    let mut appends = got.of("POST /v1/streams/{stream}/sessions/{session}/events");
    appends.sort_by_key(|span| span.start_time_unix_nano);
    let [append, refused]: [Span; 2] = appends.try_into().unwrap();
    assert_eq!(
        (hex(&append.trace_id), hex(&append.parent_span_id)),
        (TRACE.into(), PARENT.into())
    );
    assert_eq!(append.kind(), SpanKind::Server);
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.response.status_code", "201"),
        ("messaging.operation.type", "send"),
        ("messaging.destination.name", "runs"),
        ("messaging.batch.message_count", "2"),
    ] {
        assert_eq!(
            text(&append.attributes, key).as_deref(),
            Some(value),
            "{key}"
        );
    }
    let status = text(&refused.attributes, "http.response.status_code");
    assert_eq!(status.as_deref(), Some("404"));
    let deliveries = got.of("deliver runs");
    assert_eq!(deliveries.len(), 2);
    for delivery in deliveries {
        assert_eq!(hex(&delivery.trace_id), TRACE);
        assert_eq!(delivery.parent_span_id, append.span_id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_over_tls_is_trusted_by_the_certificates_of_the_system() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authority = Authority::new();
    let collector = Collector::grpc_over_tls(&authority.issue(Some("localhost"), None)).await;
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, &authority.pem).unwrap();
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant
        .worker(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("SSL_CERT_FILE", roots.to_str().unwrap()),
        ])
        .await;
    enqueue(&plant, "a", "01").await;
    plant.settled().await;
    assert_eq!(worker.stop().await.code(), Some(0));
    assert_eq!(collector.got().of("deliver runs").len(), 1);
}
