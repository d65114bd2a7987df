//! What a limit is: so many sends per time, and under which name processes share it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The units of a rate, the largest first.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
const MOST_SENDS: u32 = 1_000_000;
const LONGEST: Duration = Duration::from_secs(86_400);
/// How much earlier than its time a send may go, so that a waiter that wakes a little late takes
/// nothing from those behind it. Below one interval: the bound of a window stays what it was.
const SLACK: Duration = Duration::from_millis(10);

/// So many sends in so much time, written `30/s`, `20/min`, `1000/h`, `5/10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    sends: u32,
    per: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not a rate: write a whole number of sends and a time of at most a day, such as \"30/s\", \
     \"20/min\", \"1000/h\" or \"5/10s\""
)]
pub struct RateError {
    given: String,
}

impl Rate {
    /// # Errors
    /// Where one of them is out of bounds.
    pub fn new(sends: u32, per: Duration) -> Result<Self, RateError> {
        let whole = per.subsec_nanos() == 0 && !per.is_zero();
        if sends == 0 || sends > MOST_SENDS || !whole || per > LONGEST {
            let given = format!("{sends}/{per:?}");
            return Err(RateError { given });
        }
        Ok(Self { sends, per })
    }

    pub fn sends(self) -> u32 {
        self.sends
    }

    /// The window in which so many sends are allowed.
    pub fn per(self) -> Duration {
        self.per
    }

    /// Between two sends at this rate.
    pub fn interval(self) -> Duration {
        self.per / self.sends
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let given = || RateError {
            given: text.to_owned(),
        };
        let (sends, per) = text.split_once('/').ok_or_else(given)?;
        let digits = per.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = per.split_at(digits);
        let unit = if unit == "m" { "min" } else { unit };
        let seconds = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(given)?
            .1;
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u32>().map_err(|_| given()),
            false => Err(given()),
        };
        let count = if count.is_empty() { 1 } else { number(count)? };
        let per = Duration::from_secs(seconds.saturating_mul(count.into()));
        Self::new(number(sends)?, per).map_err(|_| given())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.per.as_secs();
        let (unit, scale) = UNITS
            .into_iter()
            .find(|(_, scale)| seconds.is_multiple_of(*scale))
            .unwrap_or(("s", 1));
        match seconds / scale {
            1 => write!(f, "{}/{unit}", self.sends),
            count => write!(f, "{}/{count}{unit}", self.sends),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A token bucket. Whoever asks for the same key, in whichever process, draws on the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub key: Arc<str>,
    pub rate: Rate,
    /// Sends that may go at once after a pause. In any window of the rate's own length there are at
    /// most so many more than the rate says.
    pub burst: u32,
}

impl Bucket {
    /// How far a send may be ahead of the steady pace.
    pub fn tolerance(&self) -> Duration {
        let interval = self.rate.interval();
        interval * self.burst.saturating_sub(1) + slack(interval)
    }
}

pub fn slack(interval: Duration) -> Duration {
    SLACK.clamp(interval.mul_f64(0.3), interval.mul_f64(0.9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_and_written_in_the_largest_unit_that_fits() {
        for (text, sends, seconds) in [
            ("30/s", 30, 1),
            ("20/min", 20, 60),
            ("1000/h", 1000, 3_600),
            ("5/10s", 5, 10),
            ("1/d", 1, 86_400),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.sends(), rate.per().as_secs()), (sends, seconds));
            assert_eq!(rate.to_string(), text);
        }
        assert_eq!("20/m".parse::<Rate>().unwrap().to_string(), "20/min");
        assert_eq!("20/60s".parse::<Rate>().unwrap().to_string(), "20/min");
    }

    #[test]
    fn anything_else_is_refused_with_the_way_to_write_it() {
        for text in [
            "",
            "30",
            "30/",
            "/s",
            "0/s",
            "-1/s",
            "1.5/s",
            "+3/s",
            "30/x",
            "30/0s",
            "30/2d",
            "30 / s",
            "1000001/s",
            "99999999999/s",
            "1/99999999999s",
            "1/ms",
        ] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("such as \"30/s\""), "{text}: {error}");
        }
    }

    #[test]
    fn the_slack_stays_below_one_interval() {
        for interval in [1_u64, 10, 33, 1_000, 86_400_000].map(Duration::from_millis) {
            assert!(slack(interval) < interval);
        }
    }
}
