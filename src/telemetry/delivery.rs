//! The figures of deliveries, read from the registry behind `/metrics`.

use std::collections::BTreeMap;

use prometheus::proto::{Metric, MetricFamily};

/// The counter of settled events and the histogram of latencies, as the exporter names them.
const SETTLED: &str = "lanekeeper_events_settled_total";
const LATENCY: &str = "lanekeeper_delivery_latency_seconds";
const STREAM: &str = "messaging_destination_name";
const SUBSCRIPTION: &str = "messaging_consumer_group_name";
const OUTCOME: &str = "lanekeeper_outcome";

/// What a process has delivered of one subscription since it began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryFigures {
    pub stream: String,
    pub subscription: String,
    /// Events that the destination accepted.
    pub delivered: f64,
    /// From the append to the acceptance: the sum over all events that were measured, and their number.
    pub latency_sum_s: f64,
    pub latency_count: u64,
}

pub(super) fn read(families: &[MetricFamily]) -> Vec<DeliveryFigures> {
    let mut found: BTreeMap<(String, String), DeliveryFigures> = BTreeMap::new();
    let mut add = |metric: &Metric, fill: &dyn Fn(&mut DeliveryFigures)| {
        let (Some(stream), Some(subscription)) =
            (label(metric, STREAM), label(metric, SUBSCRIPTION))
        else {
            return;
        };
        let key = (stream.to_owned(), subscription.to_owned());
        let figures = found.entry(key).or_insert_with_key(|key| DeliveryFigures {
            stream: key.0.clone(),
            subscription: key.1.clone(),
            ..DeliveryFigures::default()
        });
        fill(figures);
    };
    for family in families {
        for metric in family.get_metric() {
            match family.name() {
                SETTLED if label(metric, OUTCOME) == Some("delivered") => {
                    add(metric, &|of| {
                        of.delivered += metric.get_counter().get_value()
                    });
                }
                LATENCY => add(metric, &|of| {
                    of.latency_sum_s += metric.get_histogram().get_sample_sum();
                    of.latency_count += metric.get_histogram().get_sample_count();
                }),
                _ => {}
            }
        }
    }
    found.into_values().collect()
}

fn label<'a>(metric: &'a Metric, name: &str) -> Option<&'a str> {
    let label = metric.get_label().iter().find(|label| label.name() == name);
    label.map(|label| label.value())
}

#[cfg(test)]
mod tests {
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::metrics::SdkMeterProvider;
    use prometheus::Registry;

    use super::*;
    use crate::instruments::Instruments;
    use crate::names;

    #[test]
    fn what_was_delivered_is_read_as_the_exporter_names_it() {
        let registry = Registry::new();
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .build()
            .unwrap();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        let instruments = Instruments::new(&provider.meter(names::SCOPE));
        let audit = instruments.of("runs", "audit");
        audit.delivered(3);
        audit.accepted_after(0.25);
        audit.accepted_after(0.75);
        assert_eq!(
            read(&registry.gather()),
            [DeliveryFigures {
                stream: "runs".to_owned(),
                subscription: "audit".to_owned(),
                delivered: 3.0,
                latency_sum_s: 1.0,
                latency_count: 2,
            }]
        );
    }
}
