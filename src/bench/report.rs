//! What a measurement comes to, as JSON and as a line for people. `table` reads the JSON again, and so does scripts/draw.py.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cost::Cost;
use super::environment::Environment;
use super::measure::{Pairs, median, percentile_ms};

/// One line of the report.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    Environment(Environment),
    Comparison(Comparison),
    Distribution(Distribution),
    Size(Size),
    Costs(Costs),
    Trend(Trend),
}

/// The position of a figure on the horizontal axis of its series.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Place {
    pub axis: String,
    pub at: f64,
}

/// A rate beside the rate that it is compared with.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Comparison {
    /// The median of the ratios of neighbouring runs.
    pub ratio: f64,
    /// The ratio that is asked for, at least.
    pub target: Option<f64>,
    pub met: Option<bool>,
    pub bench: String,
    pub case: String,
    pub unit: String,
    pub value: f64,
    pub against: String,
    pub reference: f64,
    pub values: Vec<f64>,
    pub references: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

impl Comparison {
    pub(super) fn new(
        (bench, case): (&str, String),
        against: impl Into<String>,
        pairs: Pairs,
        target: Option<f64>,
    ) -> Self {
        let ratio = pairs.ratio();
        Self {
            ratio,
            target,
            met: target.map(|target| ratio >= target),
            bench: bench.to_owned(),
            case,
            unit: "events/s".to_owned(),
            value: median(&pairs.values),
            against: against.into(),
            reference: median(&pairs.references),
            values: pairs.values,
            references: pairs.references,
            place: None,
        }
    }

    /// As a figure of a series.
    pub(super) fn at(mut self, axis: &str, at: usize) -> Self {
        self.place = Some(Place {
            axis: axis.to_owned(),
            at: at as f64,
        });
        self
    }
}

/// Durations of many single events, in milliseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Distribution {
    pub met: Option<bool>,
    pub bench: String,
    pub case: String,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub target_p50_ms: Option<f64>,
    pub target_p99_ms: Option<f64>,
    pub samples: usize,
}

/// The most that the median and the 99th percentile may be, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Targets {
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

impl Targets {
    fn any(self) -> bool {
        self.p50_ms.is_some() || self.p99_ms.is_some()
    }
}

impl Distribution {
    pub(super) fn new(
        bench: &str,
        case: impl Into<String>,
        mut samples: Vec<Duration>,
        targets: Targets,
    ) -> Self {
        let ms = |fraction| percentile_ms(&mut samples, fraction);
        let [p50_ms, p95_ms, p99_ms, max_ms] = [0.5, 0.95, 0.99, 1.0].map(ms);
        let under = |value: f64, target: Option<f64>| target.is_none_or(|target| value < target);
        Self {
            met: targets
                .any()
                .then(|| under(p50_ms, targets.p50_ms) && under(p99_ms, targets.p99_ms)),
            bench: bench.to_owned(),
            case: case.into(),
            p50_ms,
            p95_ms,
            p99_ms,
            max_ms,
            target_p50_ms: targets.p50_ms,
            target_p99_ms: targets.p99_ms,
            samples: samples.len(),
        }
    }
}

/// An amount of memory, in MiB.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Size {
    pub met: bool,
    pub bench: String,
    pub case: String,
    pub mib: f64,
    pub target_mib: f64,
    pub values: Vec<f64>,
}

/// What an event costs, ours and that of what it is compared with.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Costs {
    pub bench: String,
    pub case: String,
    pub value: Cost,
    pub against: String,
    pub reference: Cost,
}

/// How latency develops while something goes on, beside the same load without it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Trend {
    /// p99 of the last window over p99 of the first: the median of the runs'.
    pub ratio: f64,
    /// The most that it may be.
    pub target: f64,
    pub met: bool,
    /// The same of what it is compared with.
    pub reference_ratio: f64,
    /// Deliveries of the last window, over what was asked for.
    pub rate_kept: f64,
    pub bench: String,
    pub case: String,
    pub asked_per_second: f64,
    pub against: String,
    pub ratios: Vec<f64>,
    pub reference_ratios: Vec<f64>,
    /// Of the run whose ratio is the median.
    pub windows: Vec<Window>,
    pub reference_windows: Vec<Window>,
}

/// A few seconds of a load.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Window {
    /// Since the beginning of what is measured.
    pub from_s: f64,
    pub to_s: f64,
    pub delivered_per_second: f64,
    /// From the answer to the enqueue to the start of the delivery.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// From the call.
    pub call_p50_ms: f64,
    pub call_p99_ms: f64,
    /// What an event cost, append and delivery.
    pub cost: Option<Cost>,
    /// At the end of the window, by table.
    pub tables: BTreeMap<String, Table>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Table {
    /// As the server's statistics have it.
    pub dead_rows: i64,
    /// With its indexes.
    pub mib: f64,
}
