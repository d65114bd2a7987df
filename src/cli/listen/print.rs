//! Prints a line for each event, and for each answer.

use std::time::Duration;

use jiff::Timestamp;
use lanekeeper_core::event::Event;
use lanekeeper_postgres::log::{LineView, LoggedEvent};
use serde::Serialize;
use uuid::Uuid;

use super::super::Failure;
use super::super::output::{self, Output, plain};
use super::forward::Next;

/// Characters of a session's name.
const SESSION_WIDTH: usize = 36;

/// One request and its result.
pub(super) struct Answer<'a> {
    pub(super) event: &'a Event,
    pub(super) attempt: u32,
    /// `None`: there was no answer.
    pub(super) status: Option<u16>,
    pub(super) took: Duration,
    pub(super) next: &'a Next,
}

#[derive(Serialize)]
struct AnswerView<'a> {
    at: Timestamp,
    stream: &'a str,
    session: &'a str,
    seq: i64,
    message_id: Uuid,
    event_type: &'a str,
    attempt: u32,
    status: Option<u16>,
    took_ms: u64,
    delivered: bool,
    error: Option<&'a str>,
    /// Until the next attempt; none where there is no other.
    retry_in_ms: Option<u64>,
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An event that goes nowhere else.
pub(super) fn event(
    stream: &str,
    session: &str,
    event: &LoggedEvent,
    output: Output,
) -> Result<(), Failure> {
    match output {
        Output::Json => output::json_line(&LineView::new(stream, session, event)),
        Output::Text => output::line(format!(
            "{}  {}",
            place(event.created_at, session, event.seq, &event.event_type),
            plain(event.payload.get())
        )),
    }
}

pub(super) fn answer(answer: &Answer<'_>, output: Output) -> Result<(), Failure> {
    match output {
        Output::Json => output::json_line(&view(answer)),
        Output::Text => output::line(text(answer, Timestamp::now())),
    }
}

fn view<'a>(answer: &Answer<'a>) -> AnswerView<'a> {
    let event = answer.event;
    let (error, retry_in_ms) = match answer.next {
        Next::Delivered => (None, None),
        Next::Refused { error } => (Some(error.as_str()), None),
        Next::Again { error, after, .. } => (Some(error.as_str()), Some(ms(*after))),
    };
    AnswerView {
        at: Timestamp::now(),
        stream: &event.stream,
        session: &event.session,
        seq: event.seq,
        message_id: event.message_id,
        event_type: &event.event_type,
        attempt: answer.attempt,
        status: answer.status,
        took_ms: ms(answer.took),
        delivered: *answer.next == Next::Delivered,
        error,
        retry_in_ms,
    }
}

fn text(answer: &Answer<'_>, at: Timestamp) -> String {
    let event = answer.event;
    let status = match answer.status {
        Some(status) => status.to_string(),
        None => "---".to_owned(),
    };
    let mut line = format!(
        "{}  {status} in {} ms",
        place(at, &event.session, event.seq, &event.event_type),
        ms(answer.took)
    );
    if answer.attempt > 1 {
        line.push_str(&format!(", attempt {}", answer.attempt));
    }
    match answer.next {
        Next::Delivered => {}
        Next::Refused { error } => line.push_str(&format!(", not tried again: {}", plain(error))),
        Next::Again { error, after, .. } => line.push_str(&format!(
            ", again in {}: {}",
            output::age(after.as_secs_f64()),
            plain(error)
        )),
    }
    line
}

/// When, which session, which event of it, what kind.
fn place(at: Timestamp, session: &str, seq: i64, event_type: &str) -> String {
    let session = plain(session);
    format!(
        "{}  {:<SESSION_WIDTH$}  {seq:>5}  {:<18}",
        at.strftime("%H:%M:%S%.3f"),
        output::short(&session, SESSION_WIDTH),
        plain(event_type),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(status: Option<u16>, attempt: u32, next: &Next) -> String {
        let event = Event {
            message_id: Uuid::from_u128(1),
            stream: "hooks".into(),
            session: "a\u{1b}b".into(),
            seq: 7,
            event_type: "agent_stop".into(),
            created_at: Timestamp::UNIX_EPOCH,
            payload: "{}".to_owned(),
            headers: None,
        };
        let answer = Answer {
            event: &event,
            attempt,
            status,
            took: Duration::from_millis(12),
            next,
        };
        let line = text(&answer, Timestamp::UNIX_EPOCH);
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_line_says_which_event_and_what_came_of_it() {
        let start = "00:00:00.000 a\\u{1b}b 7 agent_stop";
        assert_eq!(
            line(Some(204), 1, &Next::Delivered),
            format!("{start} 204 in 12 ms")
        );
        let again = Next::Again {
            error: "no answer".to_owned(),
            after: Duration::from_secs(5),
            attempts: 2,
        };
        assert_eq!(
            line(None, 2, &again),
            format!("{start} --- in 12 ms, attempt 2, again in 5s: no answer")
        );
        let refused = Next::Refused {
            error: "404".to_owned(),
        };
        assert_eq!(
            line(Some(404), 1, &refused),
            format!("{start} 404 in 12 ms, not tried again: 404")
        );
    }
}
