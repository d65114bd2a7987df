//! What a measurement comes to, as JSON and as a line for people.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::cost::Cost;
use super::environment::Environment;
use super::measure::{Pairs, median, percentile};

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    Environment(Environment),
    Comparison(Comparison),
    Distribution(Distribution),
    Size(Size),
    Costs(Costs),
}

/// A rate beside the rate that it is compared with.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The median of the ratios of neighbouring runs.
    pub ratio: f64,
    /// The ratio that is asked for, at least.
    pub target: Option<f64>,
    pub met: Option<bool>,
    pub bench: &'static str,
    pub case: String,
    pub unit: &'static str,
    pub value: f64,
    pub against: String,
    pub reference: f64,
    pub values: Vec<f64>,
    pub references: Vec<f64>,
}

impl Comparison {
    pub(super) fn new(
        (bench, case): (&'static str, String),
        against: impl Into<String>,
        pairs: Pairs,
        target: Option<f64>,
    ) -> Self {
        let ratio = pairs.ratio();
        Self {
            ratio,
            target,
            met: target.map(|target| ratio >= target),
            bench,
            case,
            unit: "events/s",
            value: median(&pairs.values),
            against: against.into(),
            reference: median(&pairs.references),
            values: pairs.values,
            references: pairs.references,
        }
    }
}

/// Durations of many single events, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Distribution {
    pub met: Option<bool>,
    pub bench: &'static str,
    pub case: String,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub target_p50_ms: Option<f64>,
    pub target_p99_ms: Option<f64>,
    pub samples: usize,
}

impl Distribution {
    /// `targets`: the most that the median and the 99th percentile may be, in milliseconds.
    pub(super) fn new(
        bench: &'static str,
        case: impl Into<String>,
        mut samples: Vec<Duration>,
        targets: Option<(f64, f64)>,
    ) -> Self {
        let mut ms = |fraction| percentile(&mut samples, fraction).as_secs_f64() * 1e3;
        let (p50_ms, p95_ms, p99_ms, max_ms) = (ms(0.5), ms(0.95), ms(0.99), ms(1.0));
        Self {
            met: targets.map(|(p50, p99)| p50_ms < p50 && p99_ms < p99),
            bench,
            case: case.into(),
            p50_ms,
            p95_ms,
            p99_ms,
            max_ms,
            target_p50_ms: targets.map(|(p50, _)| p50),
            target_p99_ms: targets.map(|(_, p99)| p99),
            samples: samples.len(),
        }
    }
}

/// An amount of memory, in MiB.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    pub met: bool,
    pub bench: &'static str,
    pub case: String,
    pub mib: f64,
    pub target_mib: f64,
    pub values: Vec<f64>,
}

/// What an event costs, ours and that of what it is compared with.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    pub bench: &'static str,
    pub case: String,
    pub value: Cost,
    pub against: String,
    pub reference: Cost,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(environment) => environment.fmt(f),
            Self::Comparison(line) => line.fmt(f),
            Self::Distribution(line) => line.fmt(f),
            Self::Size(line) => line.fmt(f),
            Self::Costs(line) => line.fmt(f),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self
            .target
            .map(|target| format!("(≥ {target:.2}{})", missed(self.met)));
        write!(
            f,
            "{:6.2} x {:18} {} {}: {:.0} {} against {:.0}, {}",
            self.ratio,
            target.unwrap_or_default(),
            self.bench,
            self.case,
            self.value,
            self.unit,
            self.reference,
            self.against,
        )
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target_p50_ms.zip(self.target_p99_ms);
        let target = target
            .map(|(p50, p99)| format!("(p50 < {p50} ms, p99 < {p99} ms{})", missed(self.met)));
        write!(
            f,
            "p50 {:.2}, p95 {:.2}, p99 {:.2}, max {:.2} ms {} {} {}: {} samples",
            self.p50_ms,
            self.p95_ms,
            self.p99_ms,
            self.max_ms,
            target.unwrap_or_default(),
            self.bench,
            self.case,
            self.samples,
        )
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} MiB (< {:.0} MiB{}) {} {}",
            self.mib,
            self.target_mib,
            missed(Some(self.met)),
            self.bench,
            self.case,
        )
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "each event of {} {}: {} against {}, {}",
            self.bench, self.case, self.value, self.reference, self.against,
        )
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((server, client)) = self.server_cpu_us.zip(self.client_cpu_us) {
            write!(f, "{server:.1} + {client:.1} µs of CPU (server + client), ")?;
        }
        write!(f, "{:.0} bytes of WAL", self.wal_bytes)
    }
}

fn missed(met: Option<bool>) -> &'static str {
    if met == Some(false) { ", MISSED" } else { "" }
}
