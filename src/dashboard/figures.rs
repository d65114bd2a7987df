//! What this worker delivered in the last ten minutes, by subscription.
//!
//! They are this worker's own figures, from the registry behind its `/metrics`: other workers have theirs, and a page
//! says whose it shows. Nothing is asked of Postgres for them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_telemetry::{DeliveryFigures, Metrics};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Time between two samples.
pub(crate) const EVERY: Duration = Duration::from_secs(5);
/// Samples that are kept of each subscription.
const SAMPLES: usize = 121;
/// Subscriptions of which samples are kept.
const SUBSCRIPTIONS: usize = 1_000;
/// Samples that the present rate and latency are made from: half a minute.
const PRESENT: usize = 7;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sample {
    delivered: f64,
    latency_sum_s: f64,
    latency_count: u64,
}

type Samples = HashMap<String, VecDeque<Sample>>;

/// The samples of this process.
#[derive(Clone, Default)]
pub struct Figures(Arc<Mutex<Samples>>);

/// What is shown of one subscription.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series {
    /// Events per second, the oldest first.
    pub(crate) rates: Vec<f64>,
    /// Events per second over the last half minute. `None`: this worker has not sampled it twice.
    pub(crate) rate: Option<f64>,
    /// From the append to the acceptance, on average over the same time. `None`: nothing was accepted.
    pub(crate) latency_s: Option<f64>,
}

impl Figures {
    /// Samples until `ended`.
    pub fn start(metrics: Metrics, ended: CancellationToken) -> Self {
        let figures = Self::default();
        let sampled = figures.clone();
        tokio::spawn(async move {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = ended.cancelled() => return,
                    _ = ticks.tick() => sampled.add(metrics.deliveries()),
                }
            }
        });
        figures
    }

    fn add(&self, deliveries: Vec<DeliveryFigures>) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for now in deliveries {
            if samples.len() >= SUBSCRIPTIONS && !samples.contains_key(&now.subscription) {
                continue;
            }
            let of = samples.entry(now.subscription).or_default();
            if of.is_empty() {
                // It counts from 0, and that was at the sample before at the latest.
                of.push_back(Sample::default());
            }
            if of.len() == SAMPLES {
                of.pop_front();
            }
            of.push_back(Sample {
                delivered: now.delivered,
                latency_sum_s: now.latency_sum_s,
                latency_count: now.latency_count,
            });
        }
    }

    /// Of one subscription.
    pub(crate) fn of(&self, subscription: &str) -> Series {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.get(subscription).map(series).unwrap_or_default()
    }
}

fn series(samples: &VecDeque<Sample>) -> Series {
    let seconds = EVERY.as_secs_f64();
    let between =
        |(one, next): (&Sample, &Sample)| (next.delivered - one.delivered).max(0.0) / seconds;
    let rates: Vec<f64> = samples
        .iter()
        .zip(samples.iter().skip(1))
        .map(between)
        .collect();
    let first = samples.len().saturating_sub(PRESENT);
    let (Some(first), Some(last)) = (samples.get(first), samples.back()) else {
        return Series::default();
    };
    let present = &rates[rates.len().saturating_sub(PRESENT - 1)..];
    let measured = last.latency_count.saturating_sub(first.latency_count);
    let sum_s = (last.latency_sum_s - first.latency_sum_s).max(0.0);
    Series {
        rate: (!present.is_empty()).then(|| present.iter().sum::<f64>() / present.len() as f64),
        latency_s: (measured > 0).then(|| sum_s / measured as f64),
        rates,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(delivered: f64) -> DeliveryFigures {
        DeliveryFigures {
            stream: "runs".to_owned(),
            subscription: "audit".to_owned(),
            delivered,
            latency_sum_s: delivered / 10.0,
            latency_count: delivered as u64,
        }
    }

    #[test]
    fn rate_and_latency_are_those_of_the_last_half_minute() {
        let ring = Figures::default();
        assert_eq!(ring.of("audit"), Series::default());
        for delivered in [50.0, 50.0, 60.0] {
            ring.add(vec![figures(delivered)]);
        }
        let series = ring.of("audit");
        assert_eq!(series.rates, [10.0, 0.0, 2.0]);
        assert_eq!(series.rate, Some(4.0));
        assert!(
            series
                .latency_s
                .is_some_and(|latency| (latency - 0.1).abs() < 1e-9)
        );
        for _ in 0..PRESENT {
            ring.add(vec![figures(60.0)]);
        }
        let series = ring.of("audit");
        assert_eq!((series.rate, series.latency_s), (Some(0.0), None));
        assert_eq!(ring.of("other"), Series::default());
    }

    #[test]
    fn no_more_than_ten_minutes_are_kept() {
        let ring = Figures::default();
        for n in 0..1_000 {
            ring.add(vec![figures(f64::from(n))]);
        }
        assert_eq!(ring.of("audit").rates.len(), SAMPLES - 1);
    }
}
