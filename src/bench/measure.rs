//! Medians, percentiles, and pairs of runs.

use std::time::Duration;

/// Turns of a measurement and of what it is compared with, taken alternately.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    pub values: Vec<f64>,
    pub references: Vec<f64>,
}

impl Pairs {
    pub fn push(&mut self, value: f64, reference: f64) {
        self.values.push(value);
        self.references.push(reference);
    }

    /// The median of the ratios of neighbouring runs: what weighed on the machine at the time
    /// weighed on both.
    pub fn ratio(&self) -> f64 {
        let ratios = self.values.iter().zip(&self.references);
        median(
            &ratios
                .map(|(value, reference)| value / reference)
                .collect::<Vec<_>>(),
        )
    }
}

/// The middle value, or the mean of the middle two; NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The smallest sample that `fraction` of all samples do not exceed.
pub fn percentile(samples: &mut [Duration], fraction: f64) -> Duration {
    samples.sort_unstable();
    let rank = (samples.len() as f64 * fraction).ceil() as usize;
    match samples.len() {
        0 => Duration::ZERO,
        n => samples[rank.clamp(1, n) - 1],
    }
}

pub fn percentile_ms(samples: &mut [Duration], fraction: f64) -> f64 {
    percentile(samples, fraction).as_secs_f64() * 1e3
}

pub fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_ratio_compares_neighbouring_runs_not_medians() {
        let mut pairs = Pairs::default();
        // The machine was half as fast in the second pair: the ratio stays.
        pairs.push(300.0, 100.0);
        pairs.push(150.0, 50.0);
        pairs.push(320.0, 100.0);
        assert_eq!(pairs.ratio(), 3.0);
    }

    #[test]
    fn a_percentile_is_a_sample() {
        let mut samples: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&mut samples, 0.5), Duration::from_millis(100));
        assert_eq!(percentile(&mut samples, 0.99), Duration::from_millis(198));
        assert_eq!(percentile(&mut samples, 1.0), Duration::from_millis(200));
        assert_eq!(percentile(&mut [], 0.5), Duration::ZERO);
    }
}
