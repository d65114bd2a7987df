//! What is counted and measured of live followers.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};

use super::instruments::{counter, seconds};
use super::names::{self, key};

/// The instruments of one worker's live followers.
#[derive(Debug)]
pub struct Instruments {
    disconnects: Counter<u64>,
    publish: Histogram<f64>,
}

impl Instruments {
    /// All that was followed has ended.
    pub const END: &'static str = "end";
    pub const CLIENT_LEFT: &'static str = "client_left";

    pub fn new(meter: &Meter) -> Self {
        Self {
            disconnects: counter(meter, names::LIVE_DISCONNECTS),
            publish: seconds(meter, names::LIVE_PUBLISH),
        }
    }

    pub fn disconnected(&self, reason: &'static str) {
        self.disconnects
            .add(1, &[KeyValue::new(key::REASON, reason)]);
    }

    /// An event was handed over this long after its append.
    pub fn published(&self, after: Duration) {
        self.publish.record(after.as_secs_f64(), &[]);
    }
}

/// Reports, each time metrics are collected, how many follow and how long the last of them has been behind.
pub fn watch(survey: impl Fn() -> (usize, Duration) + Clone + Send + Sync + 'static) {
    let meter = opentelemetry::global::meter(names::SCOPE);
    let (followers, lag) = (names::LIVE_FOLLOWERS, names::LIVE_LAG);
    let count = survey.clone();
    meter
        .u64_observable_gauge(followers.name)
        .with_unit(followers.unit)
        .with_description(followers.says)
        .with_callback(move |to| to.observe(count().0 as u64, &[]))
        .build();
    meter
        .f64_observable_gauge(lag.name)
        .with_unit(lag.unit)
        .with_description(lag.says)
        .with_callback(move |to| to.observe(survey().1.as_secs_f64(), &[]))
        .build();
}
