//! What a worker counts and measures, as OpenTelemetry instruments.
//!
//! They come from the process's global meter provider, so that a program that has the engine as a library
//! exports them with its own. Without a provider they cost next to nothing. What is recorded for each delivery is
//! bound to its attributes beforehand: looking those up would cost more than everything else that the engine
//! does for an event of a long session.

use std::borrow::Cow;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::observed::{Cause as Reason, Observed};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, BoundHistogram, Counter, Histogram, Meter};

use super::names::{self, Name, key};

/// The instruments of one worker.
#[derive(Debug)]
pub struct Instruments {
    process_duration: Histogram<f64>,
    latency: Histogram<f64>,
    settled: Counter<u64>,
    claim_duration: Histogram<f64>,
    claim_lanes: Histogram<u64>,
    claims_empty: Counter<u64>,
    pub fetch_duration: Histogram<f64>,
    pub settle_duration: Histogram<f64>,
    pub settle_lanes: Histogram<u64>,
    wake_ups: Counter<u64>,
    pub taken_over: Counter<u64>,
    pub charged: Counter<u64>,
    pub archived: Counter<u64>,
    pub archived_size: Counter<u64>,
    pub archive_failures: Counter<u64>,
    limit_wait: Histogram<f64>,
    limit_postponed: Counter<u64>,
}

/// What made a lane connection look for lanes.
#[derive(Clone, Copy, Debug)]
pub enum Cause {
    /// Somebody rang, notified, or let go of what it had.
    Notification,
    /// A retry, a limit or a poll was due.
    Timer,
}

impl Instruments {
    pub fn new(meter: &Meter) -> Self {
        Self {
            process_duration: seconds(meter, names::PROCESS_DURATION),
            latency: histogram(meter, names::DELIVERY_LATENCY, &names::LATENCIES),
            settled: counter(meter, names::SETTLED),
            claim_duration: seconds(meter, names::CLAIM_DURATION),
            claim_lanes: sizes(meter, names::CLAIM_LANES),
            claims_empty: counter(meter, names::CLAIMS_EMPTY),
            fetch_duration: seconds(meter, names::FETCH_DURATION),
            settle_duration: seconds(meter, names::SETTLE_DURATION),
            settle_lanes: sizes(meter, names::SETTLE_LANES),
            wake_ups: counter(meter, names::WAKE_UPS),
            taken_over: counter(meter, names::TAKEN_OVER),
            charged: counter(meter, names::CHARGED),
            archived: counter(meter, names::ARCHIVED),
            archived_size: counter(meter, names::ARCHIVED_SIZE),
            archive_failures: counter(meter, names::ARCHIVE_FAILURES),
            limit_wait: seconds(meter, names::LIMIT_WAIT),
            limit_postponed: counter(meter, names::LIMIT_POSTPONED),
        }
    }

    /// Postgres took `seconds` to answer a claim, which took so many lanes.
    pub fn claimed(&self, seconds: f64, lanes: usize) {
        self.claim_duration.record(seconds, &[]);
        self.claim_lanes.record(lanes as u64, &[]);
        if lanes == 0 {
            self.claims_empty.add(1, &[]);
        }
    }

    pub fn woken(&self, cause: Cause) {
        let cause = match cause {
            Cause::Notification => "notification",
            Cause::Timer => "timer",
        };
        self.wake_ups.add(1, &[KeyValue::new(key::CAUSE, cause)]);
    }

    /// Those of one subscription's deliveries.
    pub fn of(&self, stream: &str, subscription: &str) -> RouteInstruments {
        let attributes = of_subscription(stream, subscription);
        let mut attempt = attributes.to_vec();
        attempt.push(KeyValue::new(key::MESSAGING_SYSTEM, names::SYSTEM));
        attempt.push(KeyValue::new(key::OPERATION_NAME, names::DELIVER));
        attempt.push(KeyValue::new(key::OPERATION_TYPE, names::PROCESS));
        let mut delivered = attributes.to_vec();
        delivered.push(KeyValue::new(key::OUTCOME, "delivered"));
        RouteInstruments {
            accepted: self.process_duration.bind(&attempt),
            delivered: self.settled.bind(&delivered),
            latency: self.latency.bind(&attributes),
            limit_wait: self.limit_wait.bind(&attributes),
            limit_postponed: self.limit_postponed.bind(&attributes),
            process_duration: self.process_duration.clone(),
            settled: self.settled.clone(),
            attempt,
            attributes,
        }
    }
}

/// What is recorded of one subscription's deliveries.
#[derive(Debug)]
pub struct RouteInstruments {
    accepted: BoundHistogram<f64>,
    delivered: BoundCounter<u64>,
    latency: BoundHistogram<f64>,
    limit_wait: BoundHistogram<f64>,
    limit_postponed: BoundCounter<u64>,
    process_duration: Histogram<f64>,
    settled: Counter<u64>,
    attempt: Vec<KeyValue>,
    attributes: [KeyValue; 2],
}

impl RouteInstruments {
    /// An attempt was made; `seconds` is what the destination took.
    pub fn attempted(&self, verdict: &Verdict, observed: &Observed, seconds: f64) {
        match Trouble::of(verdict, observed) {
            None => self.accepted.record(seconds),
            Some(trouble) => {
                let mut attributes = self.attempt.clone();
                attributes.push(KeyValue::new(key::ERROR_TYPE, trouble.error_type));
                attributes.push(KeyValue::new(key::VERDICT, trouble.verdict));
                self.process_duration.record(seconds, &attributes);
            }
        }
    }

    /// An event was accepted so long after its append.
    pub fn accepted_after(&self, seconds: f64) {
        self.latency.record(seconds);
    }

    /// A held lane had its turn under a limit after so long.
    pub fn waited_for_limit(&self, seconds: f64) {
        self.limit_wait.record(seconds);
    }

    /// A lane was let go until its turn under a limit.
    pub fn postponed_by_limit(&self) {
        self.limit_postponed.add(1);
    }

    /// So many events were delivered, by a settlement that is committed.
    pub fn delivered(&self, events: u64) {
        if events > 0 {
            self.delivered.add(events);
        }
    }

    /// So many events ended otherwise.
    pub fn ended(&self, outcome: &'static str, events: u64) {
        if events == 0 {
            return;
        }
        let [stream, subscription] = self.attributes.clone();
        let outcome = KeyValue::new(key::OUTCOME, outcome);
        self.settled.add(events, &[stream, subscription, outcome]);
    }
}

/// Why an attempt was not accepted, for figures and spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub error_type: Cow<'static, str>,
    pub verdict: &'static str,
}

impl Trouble {
    /// `None` where it was accepted, or a step of it was.
    pub fn of(verdict: &Verdict, observed: &Observed) -> Option<Self> {
        let verdict = match verdict {
            Verdict::Accepted | Verdict::Sent | Verdict::Partial => return None,
            Verdict::Retry { .. } => "retry",
            Verdict::Throttled { .. } => "throttled",
            Verdict::NotSent { .. } => "not_sent",
            Verdict::Rejected { .. } => "rejected",
            Verdict::Gone { .. } => "gone",
        };
        // Some destinations answer 200 and say in the body what went wrong.
        let status = observed.status().filter(|status| *status >= 300);
        let error_type = match (observed.cause().map(Reason::as_str), status) {
            (Some(cause), _) => cause.into(),
            (None, Some(status)) => status.to_string().into(),
            (None, None) => verdict.into(),
        };
        Some(Self {
            error_type,
            verdict,
        })
    }
}

/// What every figure of a subscription is labelled with.
pub fn of_subscription(stream: &str, subscription: &str) -> [KeyValue; 2] {
    [
        KeyValue::new(key::DESTINATION, stream.to_owned()),
        KeyValue::new(key::CONSUMER_GROUP, subscription.to_owned()),
    ]
}

pub(super) fn seconds(meter: &Meter, name: Name) -> Histogram<f64> {
    histogram(meter, name, &names::SECONDS)
}

fn histogram(meter: &Meter, name: Name, boundaries: &[f64]) -> Histogram<f64> {
    meter
        .f64_histogram(name.name)
        .with_unit(name.unit)
        .with_description(name.says)
        .with_boundaries(boundaries.to_vec())
        .build()
}

fn sizes(meter: &Meter, name: Name) -> Histogram<u64> {
    meter
        .u64_histogram(name.name)
        .with_unit(name.unit)
        .with_description(name.says)
        .with_boundaries(names::SIZES.to_vec())
        .build()
}

pub(super) fn counter(meter: &Meter, name: Name) -> Counter<u64> {
    meter
        .u64_counter(name.name)
        .with_unit(name.unit)
        .with_description(name.says)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_type_is_the_cause_then_the_status_and_else_the_verdict() {
        let of = |verdict: &Verdict, status: u16, cause: Option<Reason>| {
            let observed = Observed::default();
            observed.answered(status);
            if let Some(cause) = cause {
                observed.failed_by(cause);
            }
            Trouble::of(verdict, &observed).map(|trouble| trouble.error_type.into_owned())
        };
        let retry = Verdict::retry("x");
        let rejected = Verdict::Rejected { error: "x".into() };
        let known = |error: &str| Some(error.to_owned());
        assert_eq!(of(&retry, 503, None), known("503"));
        assert_eq!(of(&retry, 0, Some(Reason::Tls)), known("tls"));
        assert_eq!(of(&retry, 0, None), known("retry"));
        assert_eq!(of(&rejected, 200, None), known("rejected"));
        assert_eq!(of(&Verdict::Accepted, 200, None), None);
    }
}
