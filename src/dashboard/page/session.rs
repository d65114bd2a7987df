//! `/session`: one session as a timeline, with what became of each event at every destination.

mod timeline;

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{self, LaneStatus, RegistryEntry, SessionStatus};
use maud::{Markup, html};

use super::Asked;
use crate::layout::Page;
use crate::part::act::Act;
use crate::part::badge::{Tone, badge};
use crate::part::{format, lane_table, link};
use crate::trouble::Trouble;

/// Events on a page.
const EVENTS: i64 = 40;

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let (stream, name) = (
        asked.query.required("stream")?,
        asked.query.required("name")?,
    );
    asked.visitor.require_stream(stream)?;
    let before = asked.query.number("before")?;
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let session_id = inspect::find_session(&reading, stream, name).await?;
    let stale_after_s = asked.dashboard.fleet.stale_after_s;
    let status = inspect::sessions(&reading, None, Some(&[session_id]), stale_after_s, 1).await?;
    let status = status.into_iter().next();
    let status = status.ok_or_else(|| Trouble::not_found("The session is gone."))?;
    let lane_ids = inspect::lanes_of_session(&reading, session_id, None).await?;
    let lanes = inspect::lanes(&reading, &lane_ids).await?;
    let below = before.unwrap_or(i64::MAX);
    let mut events = inspect::timeline(&reading, session_id, below, EVENTS + 1).await?;
    let has_more = events.len() as i64 > EVENTS;
    events.truncate(EVENTS as usize);
    let fates = match (events.last(), events.first()) {
        (Some(first), Some(last)) => {
            let range = (first.seq, last.seq);
            inspect::fates(&reading, (stream, name), range, &lane_ids).await?
        }
        _ => Vec::new(),
    };
    drop(reading);
    lease.done();

    let back = link::session(stream, name);
    let last = events.last().map(|event| event.seq.to_string());
    let main = html! {
        section #state data-part {
            div.title {
                h1 { span.stream { (stream) "/" } (format::plain(name)) }
                (state(&status, &lanes))
                @if asked.visitor.may_operate() { div.acts { (actions(&asked, &status, &back)) } }
            }
            @if let Some(at) = status.closed_at {
                p.notice.warn {
                    @if status.draining { "Closed " (format::when(at)) "; what is there is delivered first." }
                    @else { "Closed " (format::when(at)) "; it takes no events." }
                    @if let Some(reason) = &status.close_reason { " " (format::plain(reason)) }
                }
            }
            @if let Some(entry) = &status.registry { (agent(entry, asked.dashboard.config.payloads)) }
            @if lanes.is_empty() { p.empty { "No subscription receives this session." } }
            @else { (lane_table::table(&asked.visitor, &lanes, lane_table::Of::Destinations, &back)) }
        }
        section #timeline data-part {
            div.title {
                h2 { "Events" }
                p.muted { (format::plural(status.newest_seq, "event", "events")) ", the newest first" }
            }
            @if events.is_empty() {
                p.empty { @if before.is_some() { "There are no more." } @else { "None is kept." } }
            } @else {
                (timeline::shown(&asked, (stream, name), &events, &lanes, &fates))
                @if let Some(last) = last.filter(|_| has_more) {
                    (link::older("/session", &[("stream", stream), ("name", name), ("before", &last)], "Older events"))
                }
            }
        }
        (timeline::legend())
    };
    let page = Page {
        title: name,
        place: "/sessions",
        renew_s: before.is_none().then_some(2),
    };
    Ok(asked.answer(&page, &main))
}

fn state(status: &SessionStatus, lanes: &[LaneStatus]) -> Markup {
    let is_blocked = lanes.iter().any(|lane| lane.state == "blocked");
    match (status.closed_at, status.parked, status.behind) {
        (Some(_), ..) if status.draining => badge(Tone::Busy, "draining"),
        (Some(_), ..) => badge(Tone::Calm, "closed"),
        (None, 0, 0) => badge(Tone::Good, "delivered"),
        (None, 0, _) if is_blocked => badge(Tone::Warn, "blocked"),
        (None, 0, behind) => badge(
            Tone::Busy,
            &format!("{} behind", format::count(behind, false)),
        ),
        _ => badge(Tone::Bad, "parked"),
    }
}

fn actions(asked: &Asked, status: &SessionStatus, back: &str) -> Markup {
    let (stream, name) = (status.stream.as_str(), status.session.as_str());
    let act = |verb: &str, label: &str, explains: &str, words: &[&str], takes_reason| {
        let command = [&["session"], words, &[stream, name]].concat();
        Act {
            to: "/action/session",
            label,
            confirm: label,
            of: name,
            explains,
            is_final: verb == "close",
            fields: &[("stream", stream), ("name", name), ("action", verb)],
            command: &command,
            takes_reason,
        }
        .shown(&asked.visitor, back)
    };
    html! {
        @if status.lanes > status.parked {
            (act("pause", "Pause", "Every lane of the session is parked. Its events go on being recorded. Lanes that are parked already stay as they are.", &["pause"], true))
        }
        @if status.parked > 0 {
            (act("resume", "Resume", "Every lane of the session is unparked, those that were parked for another reason too.", &["resume"], true))
        }
        @match status.closed_at {
            None => {
                (act("drain", "Drain and close", "The session takes no more events, and what is there is delivered first.", &["close", "--drain"], true))
                (act("close", "Close", "The session takes no more events, and what is not delivered expires. A running delivery is cancelled. Dead letters stay.", &["close"], true))
            }
            Some(_) => {
                @if status.draining {
                    (act("close", "Close now", "What is not delivered yet expires.", &["close"], true))
                }
                (act("reopen", "Reopen", "The session takes events again. What has expired stays expired.", &["reopen"], false))
            }
        }
    }
}

fn agent(entry: &RegistryEntry, payloads: bool) -> Markup {
    let tone = match entry.turn_state.as_str() {
        "running" => Tone::Busy,
        "stale" => Tone::Warn,
        _ => Tone::Calm,
    };
    let hidden = || "hidden by dashboard.payloads".to_owned();
    let text = |text: &Option<String>| {
        text.as_ref().map(|text| {
            if payloads {
                format::short(text, 400)
            } else {
                hidden()
            }
        })
    };
    let facts = [
        ("Agent", entry.cli.clone()),
        ("Host", entry.host.clone()),
        ("Folder", entry.cwd.clone()),
        ("Model", entry.model.clone()),
        ("Last prompt", text(&entry.last_prompt)),
        ("Last notification", text(&entry.last_notification)),
        (
            "Last error",
            entry
                .last_error
                .as_ref()
                .map(|error| format::short(error, 400)),
        ),
    ];
    html! {
        dl.facts {
            div { dt { "Turn" } dd { (badge(tone, &entry.turn_state)) " " (entry.turn) ", last activity " (entry.last_activity) " " (format::when(entry.last_activity_at)) } }
            @for (name, value) in facts {
                @if let Some(value) = value { div { dt { (name) } dd { (format::plain(&value)) } } }
            }
        }
    }
}
