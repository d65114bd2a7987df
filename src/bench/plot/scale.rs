//! From values to places on an axis, and where its ticks are.

/// An axis that covers a range of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

/// A logarithmic axis is for values that differ by more than this.
const WIDE: f64 = 20.0;
/// About so many ticks.
const TICKS: f64 = 5.0;

impl Scale {
    /// From nothing to the largest value, with room above it.
    pub fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let high = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let high = if high > 0.0 { high } else { 1.0 };
        let step = step(high);
        Self {
            low: 0.0,
            high: (high / step).ceil() * step,
            logarithmic: false,
        }
    }

    /// What the values need; logarithmic where they are far apart.
    pub fn around(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let logarithmic = low > 0.0 && high / low > WIDE;
        if !logarithmic {
            low = low.min(0.0);
        }
        if low == high {
            high = low + 1.0;
        }
        Self {
            low,
            high,
            logarithmic,
        }
    }

    /// Where a value is: 0 at the axis' begin, 1 at its end.
    pub fn place(&self, value: f64) -> f64 {
        if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Round values on the axis.
    pub fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (first, last) = (self.low.log10().ceil(), self.high.log10().floor());
            let powers = (first as i32..=last as i32).map(|power| 10_f64.powi(power));
            return powers.collect();
        }
        let step = step(self.high - self.low);
        let first = (self.low / step).ceil() as i64;
        // A little more: the last may miss the end by a rounding.
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// 1, 2 or 5 times a power of ten.
fn step(range: f64) -> f64 {
    let rough = range / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// A tick in few characters: 1500 is 1.5k.
pub fn label(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let y = Scale::from_zero([380_000.0, 112_345.0].into_iter());
        assert_eq!(y.ticks(), [0.0, 100_000.0, 200_000.0, 300_000.0, 400_000.0]);
        let replicas = Scale::around([1.0, 2.0, 4.0, 8.0].into_iter());
        assert_eq!(replicas.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0]);
        let small = Scale::from_zero([0.31].into_iter());
        assert_eq!(small.ticks().len(), 5);
    }

    #[test]
    fn values_far_apart_get_a_logarithmic_axis() {
        let x = Scale::around([10_000.0, 100_000.0, 1_000_000.0].into_iter());
        assert_eq!(x.ticks(), [1e4, 1e5, 1e6]);
        for (value, place) in [(1e4, 0.0), (1e5, 0.5), (1e6, 1.0)] {
            assert!((x.place(value) - place).abs() < 1e-9, "{value}");
        }
        // Not where there is a zero among them.
        assert_eq!(Scale::around([0.0, 1e6].into_iter()).place(5e5), 0.5);
    }

    #[test]
    fn nothing_and_a_single_value_have_an_axis() {
        assert_eq!(Scale::from_zero(std::iter::empty()).place(0.5), 0.5);
        assert_eq!(Scale::around(std::iter::empty()).place(1.0), 1.0);
        assert_eq!(Scale::around([0.0].into_iter()).place(0.0), 0.0);
    }

    #[test]
    fn labels_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (20.0, "20"),
            (1_500.0, "1.5k"),
            (1e6, "1M"),
        ] {
            assert_eq!(label(value), text);
        }
    }
}
