//! Durations as people write them: a whole number and its unit, `500ms`, `15s`, `5m`, `1h`, `7d`.

use std::time::Duration;

/// The units with their milliseconds, the largest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Longer than any wait that makes sense, and still an `int` of milliseconds in the database.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// Reads a duration of at least a millisecond and at most 7 days.
pub fn parse(text: &str) -> Result<Duration, String> {
    parse_up_to(text, LONGEST)
}

/// Reads a duration of at least a millisecond and at most `longest`.
pub fn parse_up_to(text: &str, longest: Duration) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, millis)| *millis);
    let (Ok(number), Some(scale)) = (number.parse::<u64>(), scale) else {
        return Err(format!(
            "{text:?} is not a duration: write a whole number and its unit, one of ms, s, m, h, d, \
             such as \"500ms\" or \"15s\""
        ));
    };
    let duration = Duration::from_millis(number.saturating_mul(scale));
    if duration.is_zero() || duration > longest {
        let longest = written(longest);
        return Err(format!(
            "{text:?} must be at least 1ms and at most {longest}"
        ));
    }
    Ok(duration)
}

/// The shortest way to write a duration that [`parse`] reads back.
pub fn written(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (unit, scale) = UNITS
        .into_iter()
        .find(|(_, scale)| millis >= *scale && millis.is_multiple_of(*scale))
        .unwrap_or(("ms", 1));
    format!("{}{unit}", millis / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_with_its_unit_is_a_duration() {
        for (text, millis) in [
            ("500ms", 500),
            ("15s", 15_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
        ] {
            let duration = parse(text).unwrap();
            assert_eq!(duration, Duration::from_millis(millis));
            assert_eq!(written(duration), text);
        }
        assert_eq!(written(Duration::from_millis(1_500)), "1500ms");
        assert_eq!(written(parse("120s").unwrap()), "2m");
    }

    #[test]
    fn anything_else_is_refused_with_the_way_to_write_it() {
        for text in [
            "15",
            "s",
            "",
            "1.5s",
            "-1s",
            "15 s",
            "15S",
            "1h30m",
            "99999999999999999999s",
        ] {
            assert!(
                parse(text).unwrap_err().contains("such as \"500ms\""),
                "{text}"
            );
        }
        for text in ["0s", "8d", "18446744073709551615d"] {
            assert!(parse(text).unwrap_err().contains("at most 7d"), "{text}");
        }
    }
}
