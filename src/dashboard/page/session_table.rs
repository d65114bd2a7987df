//! Sessions as a table: of the agent registry, or all.

use lanekeeper_postgres::inspect::SessionStatus;
use maud::{Markup, html};

use crate::part::badge::{Tone, badge};
use crate::part::{format, link};

/// Sessions and how far they got.
pub(super) fn all(sessions: &[SessionStatus]) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr {
                    th scope="col" { "Session" } th scope="col" { "Last event" }
                    th.number scope="col" { "Events" } th.number scope="col" { "Behind" }
                    th.number scope="col" { "Parked" } th scope="col" { "Created" } th scope="col" { "Agent" }
                } }
                tbody {
                    @for one in sessions {
                        tr {
                            th scope="row" data-label="Session" { (link::to_session(&one.stream, &one.session)) @if one.closed_at.is_some() { (badge(Tone::Calm, if one.draining { "draining" } else { "closed" })) } }
                            td data-label="Last event" { @match one.last_event_at { Some(at) => (format::when(at)), None => span.muted { "none kept" } } }
                            td.number data-label="Events" { (format::count(one.newest_seq, false)) }
                            td.number data-label="Behind" { (format::count(one.behind, false)) }
                            td.number data-label="Parked" { (one.parked) }
                            td data-label="Created" { (format::when(one.created_at)) }
                            td data-label="Agent" { (one.registry.as_ref().and_then(|entry| entry.cli.as_deref()).unwrap_or("–")) }
                        }
                    }
                }
            }
        }
    }
}

/// Sessions of the registry; without the texts of prompts where payloads are hidden.
pub(super) fn agents(sessions: &[SessionStatus], payloads: bool) -> Markup {
    let known = sessions
        .iter()
        .filter_map(|one| Some((one, one.registry.as_ref()?)));
    html! {
        div.scroll {
            table.agents {
                thead { tr {
                    th scope="col" { "Session" } th scope="col" { "Agent" } th scope="col" { "Host" } th scope="col" { "Turn" }
                    th.wide scope="col" { "Last prompt" } th scope="col" { "Last activity" } th.number scope="col" { "Behind" }
                } }
                tbody {
                    @for (one, entry) in known {
                        tr {
                            th scope="row" data-label="Session" { (link::to_session(&one.stream, &one.session)) }
                            td data-label="Agent" { (entry.cli.as_deref().unwrap_or("unknown")) @if let Some(model) = &entry.model { span.muted { (format::short(model, 40)) } } }
                            td data-label="Host" { (format::short(entry.host.as_deref().unwrap_or("–"), 40)) @if let Some(cwd) = &entry.cwd { span.muted title=(cwd) { (format::short(cwd, 40)) } } }
                            td data-label="Turn" { (turn(&entry.turn_state)) span.muted { (entry.turn) @if let Some(at) = entry.turn_started_at { ", began " (format::when(at)) } } }
                            td.wide data-label="Last prompt" {
                                @match &entry.last_prompt {
                                    Some(prompt) if payloads => (format::short(prompt, 140)),
                                    Some(_) => span.muted { "hidden" },
                                    None => span.muted { "–" },
                                }
                                @if let Some(error) = &entry.last_error { span.error { (format::short(error, 120)) } }
                            }
                            td data-label="Last activity" { (format::when(entry.last_activity_at)) span.muted { (entry.last_activity) } }
                            td.number data-label="Behind" { (format::count(one.behind, false)) }
                        }
                    }
                }
            }
        }
    }
}

fn turn(state: &str) -> Markup {
    let tone = match state {
        "running" => Tone::Busy,
        "stale" => Tone::Warn,
        _ => Tone::Calm,
    };
    badge(tone, state)
}
