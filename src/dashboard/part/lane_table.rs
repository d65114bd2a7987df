//! Lanes as a table: what holds each up, when it is tried next, and what can be done.

use jiff::Timestamp;
use lanekeeper_postgres::inspect::LaneStatus;
use maud::{Markup, html};

use super::act::Act;
use super::{badge, format, link};
use crate::visitor::Visitor;

/// Which columns a page needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// Lanes of many sessions.
    Sessions,
    /// The lanes of one session: by their destination.
    Destinations,
}

/// `back`: the page that is shown after an action.
pub(crate) fn table(visitor: &Visitor, lanes: &[LaneStatus], of: Of, back: &str) -> Markup {
    html! {
        div.scroll {
            table.lanes {
                thead {
                    tr {
                        @if of == Of::Sessions { th scope="col" { "Session" } }
                        th scope="col" { "Destination" }
                        th scope="col" { "State" }
                        th scope="col" { "Head" }
                        th.wide scope="col" { "Why" }
                        th scope="col" { "Next try" }
                        th.number scope="col" { "Waiting" }
                        @if visitor.may_operate() { th scope="col" { span.hidden { "Actions" } } }
                    }
                }
                tbody {
                    @for lane in lanes { (row(visitor, lane, of, back)) }
                }
            }
        }
    }
}

fn row(visitor: &Visitor, lane: &LaneStatus, of: Of, back: &str) -> Markup {
    html! {
        tr {
            @if of == Of::Sessions { td data-label="Session" { (link::to_session(&lane.stream, &lane.session)) } }
            td data-label="Destination" { (link::to_subscription(&lane.subscription)) }
            td data-label="State" { (badge::lane(&lane.state)) }
            td.head data-label="Head" {
                @match lane.head_seq {
                    Some(seq) => {
                        span { "seq " (seq) }
                        @if let Some(age_s) = lane.head_age_s { span.muted { (format::span(age_s)) " old" } }
                    }
                    None => span.muted { "none" }
                }
            }
            td.wide.why data-label="Why" { (why(lane)) }
            td data-label="Next try" { (next_try(lane)) }
            td.number data-label="Waiting" { (format::count(lane.behind, false)) }
            @if visitor.may_operate() {
                td.actions { (actions(visitor, lane, back)) }
            }
        }
    }
}

fn why(lane: &LaneStatus) -> Markup {
    let failed = match (lane.attempts, lane.crashes) {
        (0, 0) => None,
        (attempts, 0) => Some(format::plural(attempts.into(), "attempt", "attempts")),
        (0, crashes) => Some(format!(
            "{} of a worker",
            format::plural(crashes.into(), "crash", "crashes")
        )),
        (attempts, crashes) => Some(format!("{attempts} attempts, {crashes} crashes")),
    };
    html! {
        @match &lane.last_error {
            Some(error) => span.error title=(format::short(error, 1_000)) { (format::short(error, 160)) }
            None => @match lane.state.as_str() {
                "idle" => span.muted { "Everything is delivered" },
                "ready" => span.muted { "Waits for a worker" },
                "held" => span.muted { "Is being delivered" },
                "sent" => span.muted { "Sent; the acknowledgement is awaited" },
                "paused" => span.muted { "The subscription is paused" },
                _ => span.muted { "–" },
            }
        }
        @if let Some(failed) = failed { span.muted { (failed) } }
    }
}

fn next_try(lane: &LaneStatus) -> Markup {
    if let Some(at) = lane.parked_at {
        return html! { span { "when unparked" } span.muted { "parked " (format::when(at)) } };
    }
    let is_to_come = |at: &Timestamp| format::since_s(*at) < 0.0;
    match lane.retry_at.filter(is_to_come).or(lane.ack_due_at) {
        Some(at) if is_to_come(&at) => format::when(at),
        _ if lane.head_seq.is_some() && lane.state != "paused" => html! { "now" },
        _ => html! { span.muted { "–" } },
    }
}

/// What can be done about a lane in its state.
pub(crate) fn actions(visitor: &Visitor, lane: &LaneStatus, back: &str) -> Markup {
    let id = lane.lane_id.to_string();
    let of = format!("{} to {}", lane.session, lane.subscription);
    let head = lane.head_seq.map(|seq| seq.to_string());
    let act = |verb: &str, label: &str, explains: &str| {
        let mut fields = vec![("lane", id.as_str()), ("action", verb)];
        // What was seen: an action on another head is refused. Parking has no head.
        if let Some(head) = head
            .as_deref()
            .filter(|_| verb != "park" && verb != "unpark")
        {
            fields.push(("head", head));
        }
        let mut command = vec!["lane", verb, id.as_str()];
        let confirm = match (&head, verb) {
            (Some(head), "skip") => {
                command.extend(["--seq", head.as_str(), "--yes"]);
                format!("Skip seq {head}")
            }
            _ => label.to_owned(),
        };
        Act {
            to: "/action/lane",
            label,
            confirm: &confirm,
            of: &of,
            explains,
            is_final: verb == "skip",
            fields: &fields,
            command: &command,
            takes_reason: true,
        }
        .shown(visitor, back)
    };
    let is_parked = lane.parked_at.is_some();
    html! {
        div.acts {
            @if head.is_some() && !is_parked && lane.state != "held" {
                (act("retry", "Retry now", "The head is tried at once, and its attempts are forgotten."))
            }
            @if is_parked {
                (act("unpark", "Unpark", "The lane goes on, and the attempts of its head are forgotten."))
            }
            @if head.is_some() {
                (act("skip", "Skip head", "The head is passed over without a delivery, and the events behind it go on. It keeps its place in the log with the outcome skipped. If the head is another event by then, nothing is done."))
            }
            @if !is_parked && lane.state != "removed" {
                (act("park", "Park", "The lane is held until somebody unparks it. Its events go on being recorded, and a running delivery is finished first."))
            }
        }
    }
}
