//! Where a reader stands: offsets, and the cursors by which caches tell one wait from the next.
//!
//! An offset is the seq of the last event before it, with leading zeros, so that offsets sort as text. A cursor is the
//! number of 20-second intervals since 9 October 2024, as the protocol has it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// Digits of the largest seq.
const DIGITS: usize = 19;
const INTERVAL_S: u64 = 20;
/// 9 October 2024.
const EPOCH_S: u64 = 1_728_432_000;
/// What is added at most to a cursor that is not behind the clock: an hour.
const MOST_AHEAD: u128 = 3_600 / INTERVAL_S as u128;
/// A larger one is none of ours.
const LARGEST_CURSOR: u64 = 1 << 53;

/// A position in a stream: behind this seq.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(pub i64);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$}", self.0)
    }
}

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Beginning,
    Now,
    Behind(Offset),
}

impl Start {
    /// `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "-1" => Some(Self::Beginning),
            "now" => Some(Self::Now),
            _ if text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().ok().map(|seq| Self::Behind(Offset(seq)))
            }
            _ => None,
        }
    }
}

/// The cursor of an answer to a client that came with another one, if it did. It never goes back, so that a cache never
/// serves the same wait twice.
pub fn cursor(given: Option<&str>) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.map_or(0, |now| now.as_secs());
    let current = now_s.saturating_sub(EPOCH_S) / INTERVAL_S;
    let given = given.and_then(|given| given.parse::<u64>().ok());
    match given.filter(|given| *given <= LARGEST_CURSOR) {
        Some(given) if given >= current => {
            let chance = Uuid::new_v4().as_u128() % MOST_AHEAD;
            given + 1 + u64::try_from(chance).unwrap_or(0)
        }
        _ => current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_sort_as_text_and_are_read_as_they_are_written() {
        let mut texts: Vec<String> = [0, 1, 9, 10, 99, 1_000_000, i64::MAX]
            .map(|seq| Offset(seq).to_string())
            .into();
        let written = texts.clone();
        texts.sort();
        assert_eq!(texts, written);
        for text in texts {
            let Some(Start::Behind(offset)) = Start::parse(&text) else {
                panic!("{text}");
            };
            assert_eq!(offset.to_string(), text);
        }
        assert_eq!(Start::parse("-1"), Some(Start::Beginning));
        assert_eq!(Start::parse("now"), Some(Start::Now));
        let too_large = "9".repeat(DIGITS);
        for other in [
            "",
            "0",
            "7",
            "NOW",
            "-0000000000000000001",
            "+000000000000000001",
            "000000000000000000a",
            "0,1",
            &too_large,
        ] {
            assert_eq!(Start::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_cursor_is_always_ahead_of_the_one_that_was_given() {
        let current = cursor(None);
        assert!(current > 0);
        for given in [current, current + 1, current + 100_000] {
            let next = cursor(Some(&given.to_string()));
            assert!(next > given && next <= given + 180, "{given}: {next}");
        }
        for other in [
            "0",
            "",
            "x",
            "-5",
            "99999999999999999999",
            "18446744073709551615",
        ] {
            assert!(cursor(Some(other)) >= current, "{other}");
        }
    }
}
