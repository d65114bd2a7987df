//! The events of a session, a row each: what came when, and what became of it at each destination.

use std::collections::HashMap;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use lanekeeper_postgres::inspect::{Fate, LaneStatus, TimelineEvent};
use maud::{Markup, html};

use super::super::Asked;
use crate::part::badge::{self, Tone};
use crate::part::{format, link};

/// Lanes in columns of their own.
const COLUMNS: usize = 12;

/// What each mark means.
const LEGEND: [(&str, &str); 10] = [
    (
        "delivered",
        "delivered: the destination accepted it, or it is from before the subscription",
    ),
    ("sending", "being delivered, or sent and not acknowledged"),
    ("pending", "waits for its turn"),
    ("retrying", "failed, and is tried again"),
    ("parked", "holds a parked lane"),
    ("failed", "a dead letter"),
    ("requeued", "a dead letter that is delivered again"),
    (
        "skipped",
        "skipped, dropped, expired, cancelled or superseded",
    ),
    ("coalesced", "merged into a later event"),
    ("filtered", "not for this destination"),
];

pub(super) fn shown(
    asked: &Asked,
    (stream, name): (&str, &str),
    events: &[TimelineEvent],
    lanes: &[LaneStatus],
    fates: &[Fate],
) -> Markup {
    let fates: HashMap<(i64, i64), &Fate> = fates
        .iter()
        .map(|fate| ((fate.seq, fate.lane_id), fate))
        .collect();
    let lanes = &lanes[..lanes.len().min(COLUMNS)];
    let day = |event: &TimelineEvent| event.created_at.to_zoned(TimeZone::UTC).date();
    let mut shown_day: Option<Date> = None;
    let mut begins_day = |event: &TimelineEvent| shown_day.replace(day(event)) != Some(day(event));
    html! {
        div.scroll {
            table.timeline {
                thead {
                    tr {
                        th.number scope="col" { "Seq" }
                        th scope="col" { "At (UTC)" }
                        th scope="col" { "Event" }
                        @for lane in lanes { th.fate scope="col" { (lane.subscription) } }
                        th scope="col" { "Payload" }
                    }
                }
                tbody {
                    @for event in events {
                        @if begins_day(event) {
                            tr.day { th colspan=(4 + lanes.len()) scope="colgroup" { (format::day(event.created_at)) } }
                        }
                        tr id={ "seq-" (event.seq) } {
                            td.number data-label="Seq" { (event.seq) }
                            td data-label="At" { (format::at(event.created_at)) }
                            td data-label="Event" {
                                strong.type { (format::short(&event.event_type, 100)) }
                                span.muted.id title="Message id" { (event.message_id) }
                                @if let Some(id) = event.traceparent.as_deref().and_then(trace_id) { (trace(asked, id)) }
                            }
                            @for lane in lanes {
                                td.fate data-label=(lane.subscription) {
                                    @if let Some(fate) = fates.get(&(event.seq, lane.lane_id)) { (of(fate)) }
                                }
                            }
                            td data-label="Payload" { (payload(asked, stream, name, event)) }
                        }
                    }
                }
            }
        }
    }
}

fn of(fate: &Fate) -> Markup {
    let (tone, mark) = badge::fate(&fate.state);
    let word = fate.state.replace('_', " ");
    let class = match tone {
        Tone::Good => "mark good",
        Tone::Busy => "mark busy",
        Tone::Warn => "mark warn",
        Tone::Bad => "mark bad",
        Tone::Calm => "mark calm",
    };
    html! {
        span class=(class) title=(word) { span aria-hidden="true" { (mark) } " " span.word { (word) } }
        @if let Some(attempts) = fate.attempts.filter(|attempts| *attempts > 0) {
            span.muted { (format::plural(attempts.into(), "attempt", "attempts")) }
        }
        @if let Some(seq) = fate.replaced_by { span.muted { "by seq " (seq) } }
        @if let Some(error) = &fate.error { span.error { (format::short(error, 120)) } }
    }
}

fn payload(asked: &Asked, stream: &str, name: &str, event: &TimelineEvent) -> Markup {
    let size = format::bytes(event.size);
    if !asked.dashboard.config.payloads {
        return html! { span.muted title="dashboard.payloads is off" { (size) ", hidden" } };
    }
    let path = link::payload(stream, name, event.seq);
    html! { a href=(path) data-load=(path) aria-label={ "Payload of seq " (event.seq) ", " (size) } { (size) } }
}

fn trace(asked: &Asked, id: &str) -> Markup {
    let template = asked.dashboard.config.trace_url.as_deref();
    let url = template.map(|template| template.replace("{trace_id}", id));
    // Nothing but a web page: the setting is an operator's, and the id hexadecimal.
    let url = url.filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    html! {
        @match url {
            Some(url) => a.trace href=(url) rel="noreferrer noopener" { "trace " (id) },
            None => span.muted.id title="Trace id" { "trace " (id) }
        }
    }
}

/// The trace id of a `traceparent`, where it is one.
fn trace_id(traceparent: &str) -> Option<&str> {
    let mut parts = traceparent.split('-');
    let (_version, id) = (parts.next()?, parts.next()?);
    let is_hexadecimal = id
        .bytes()
        .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (id.len() == 32 && is_hexadecimal).then_some(id)
}

pub(super) fn legend() -> Markup {
    html! {
        details.legend {
            summary { "What the marks mean" }
            ul {
                @for (state, meaning) in LEGEND {
                    li { span.mark aria-hidden="true" { (badge::fate(state).1) } " " (meaning) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_id_is_taken_from_a_traceparent_alone() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(trace_id(&format!("00-{id}-b7ad6b7169203331-01")), Some(id));
        for bad in [
            "",
            "00",
            "00-xyz-1-01",
            "00-0AF7651916CD43DD8448EB211C80319C-1-01",
            "javascript:alert(1)",
        ] {
            assert_eq!(trace_id(bad), None, "{bad}");
        }
    }
}
