//! The Retry-After header: seconds or an HTTP date (RFC 9110, section 10.2.3).
//!
//! A pause burns no attempt, so it is bounded at both ends: `Retry-After: 0` answered for ever must
//! not become a hot loop, and a wrong year must not silence a lane for ever.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause that the response asks for; `None` where it asks for none that can be understood.
pub(super) fn pause(headers: &HeaderMap) -> Option<Duration> {
    let asked = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        asked.parse().map_or(LONGEST, Duration::from_secs)
    } else {
        let until = httpdate::parse_http_date(asked).ok()?;
        until.duration_since(now(headers)).unwrap_or_default()
    };
    Some(pause.clamp(SHORTEST, LONGEST))
}

/// The destination's clock, if it sends a Date header: its Retry-After date comes from that clock.
fn now(headers: &HeaderMap) -> SystemTime {
    headers
        .get(DATE)
        .and_then(|date| date.to_str().ok())
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .unwrap_or_else(SystemTime::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(retry_after: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        pause(&headers)
    }

    #[test]
    fn seconds_and_all_three_date_forms_are_understood() {
        let two_minutes = Some(Duration::from_secs(120));
        assert_eq!(asked("120"), two_minutes);
        assert_eq!(asked("Sun, 06 Nov 1994 08:51:37 GMT"), two_minutes);
        assert_eq!(asked("Sunday, 06-Nov-94 08:51:37 GMT"), two_minutes);
        assert_eq!(asked("Sun Nov  6 08:51:37 1994"), two_minutes);
    }

    #[test]
    fn date_is_measured_by_the_local_clock_when_the_response_names_none() {
        let mut headers = HeaderMap::new();
        let until = SystemTime::now() + Duration::from_secs(600);
        headers.insert(RETRY_AFTER, httpdate::fmt_http_date(until).parse().unwrap());
        let pause = pause(&headers).unwrap().as_secs();
        assert!((590..=600).contains(&pause), "{pause}");
    }

    #[test]
    fn pause_is_bounded_at_both_ends() {
        assert_eq!(asked("0"), Some(SHORTEST));
        assert_eq!(asked("Sun, 06 Nov 1994 08:00:00 GMT"), Some(SHORTEST));
        assert_eq!(asked("99999999999999999999999"), Some(LONGEST));
        assert_eq!(asked("Sat, 06 Nov 2094 08:00:00 GMT"), Some(LONGEST));
    }

    #[test]
    fn nonsense_asks_for_nothing() {
        for nonsense in ["", "soon", "-5", "1.5", "+3"] {
            assert_eq!(asked(nonsense), None, "{nonsense:?}");
        }
        assert_eq!(pause(&HeaderMap::new()), None);
    }
}
