//! Which events of a session's log a reader asks for.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use lanekeeper_postgres::log::{LoggedEvent, Reader};
use schemars::JsonSchema;
use serde::Deserialize;

/// Events of a page, where the request does not say how many.
const PAGE: usize = 100;

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "LogRange")]
#[serde(deny_unknown_fields)]
pub(super) struct Range {
    from: Option<i64>,
    limit: Option<usize>,
    /// Event types, separated by commas; without, all.
    types: Option<String>,
    /// Only events that were appended at this instant or later.
    since: Option<Timestamp>,
    /// Only events that were appended before this instant.
    until: Option<Timestamp>,
}

impl Range {
    fn from(&self) -> i64 {
        self.from.unwrap_or(1)
    }

    /// Begins at the seq, and on the day of the instant where one is asked for: earlier days are not read.
    pub fn reader(&self, session_id: i64) -> Reader {
        let from = self.from().max(1);
        match self.since {
            // An event's day is not before that of its instant, but for what is appended at midnight.
            Some(since) => {
                let day = since.to_zoned(TimeZone::UTC).date();
                Reader::since(session_id, from, day.yesterday().unwrap_or(day))
            }
            None => Reader::new(session_id, from),
        }
    }

    fn wants(&self, event: &LoggedEvent) -> bool {
        self.types.as_ref().is_none_or(|types| {
            let mut types = types.split(',').map(str::trim);
            types.any(|wanted| wanted == event.event_type)
        }) && self.since.is_none_or(|since| event.created_at >= since)
            && self.until.is_none_or(|until| event.created_at < until)
    }

    /// Those of a page of the log that are asked for, and the seq to go on from: behind what was looked at.
    pub fn of(&self, page: Vec<LoggedEvent>) -> (Vec<LoggedEvent>, i64) {
        let most = self.limit.unwrap_or(PAGE);
        let mut next = self.from();
        let mut wanted = Vec::new();
        for event in page {
            if wanted.len() == most {
                break;
            }
            next = event.seq + 1;
            if self.wants(&event) {
                wanted.push(event);
            }
        }
        (wanted, next)
    }
}
