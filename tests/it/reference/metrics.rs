//! docs/reference/metrics.md, from the names under which telemetry is recorded.

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
    let span = [
        code(&names::delivery_span("{stream}")),
        "consumer".to_owned(),
        "One attempt to deliver an event".to_owned(),
    ];
    text.push_str(&table(["name", "kind", "meaning"], [span]));
    text.push_str("\n## Attributes\n");
    let keys = key::KEYS
        .iter()
        .map(|(name, says)| [code(name), says.trim().to_owned()]);
    text.push_str(&table(["name", "meaning"], keys));
    keep("metrics", &text);
}
