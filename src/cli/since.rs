//! Instants as operators write them.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};
use lanekeeper_postgres::inspect::Since;

/// An instant, or a span of time back from Postgres' now.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Since::At(at));
    }
    let span = text.parse::<Span>().ok();
    span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok())
        .and_then(|duration| Duration::try_from(duration).ok())
        .map(Since::Ago)
        .ok_or_else(|| {
            "write an instant such as 2026-01-02T03:04:05Z, or how long ago, such as 90m, 2h or 3d"
                .to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_an_instant_or_how_long_ago() {
        let at = "2026-01-02T03:04:05Z";
        assert_eq!(since(at), Ok(Since::At(at.parse().unwrap())));
        for (text, minutes) in [("90m", 90), ("2h", 120), ("3d", 3 * 24 * 60)] {
            let ago = Duration::from_secs(minutes * 60);
            assert_eq!(since(text), Ok(Since::Ago(ago)), "{text}");
        }
        for text in ["", "yesterday", "-2h", "2", "1 month"] {
            assert!(since(text).is_err(), "{text}");
        }
    }
}
