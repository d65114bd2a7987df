//! docs/reference/metrics.md, generated from the names under which telemetry is recorded.

use lanekeeper_telemetry::names::{self, key};

use super::{code, keep, page, table};

#[test]
fn the_page_of_the_metrics_is_what_the_program_records() {
    let mut text = page(
        "Metrics and spans",
        "Every metric, span and attribute. [Observability](../observability.md) says how they are exported, and what \
         Prometheus calls them.",
    );
    text.push_str("\n## Metrics\n");
    let metrics = names::INSTRUMENTS
        .iter()
        .map(|metric| [code(metric.name), code(metric.unit), metric.says.to_owned()]);
    text.push_str(&table(["name", "unit", "meaning"], metrics));
    text.push_str("\n## Spans\n");
    let deliver = names::delivery_span("{stream}");
    let spans = [
        (&*deliver, "consumer", "One attempt to deliver an event"),
        (
            names::CLAIM,
            "client",
            "A claim that took lanes, from the question to Postgres' answer",
        ),
        (names::SETTLE, "client", "A settlement, the same"),
        (
            "POST /v1/streams/{stream}/sessions/{session}/events",
            "server",
            "A request that appends events",
        ),
    ];
    let spans = spans.map(|(name, kind, says)| [code(name), kind.to_owned(), says.to_owned()]);
    text.push_str(&table(["name", "kind", "meaning"], spans));
    text.push_str("\n## Attributes\n");
    let keys = key::KEYS
        .iter()
        .map(|(name, says)| [code(name), says.trim().to_owned()]);
    text.push_str(&table(["name", "meaning"], keys));
    keep("metrics", &text);
}
