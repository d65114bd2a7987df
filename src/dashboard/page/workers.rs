//! `/workers`: the processes that deliver, and the destinations whose circuit is open.

use std::collections::BTreeMap;

use axum::response::Response;
use jiff::Timestamp;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{self, WorkerStatus};
use lanekeeper_postgres::report::ReportedState;
use maud::{Markup, html};

use super::Asked;
use crate::layout::Page;
use crate::part::badge::{Tone, badge};
use crate::part::{command, format, link};
use crate::trouble::Trouble;

const WORKERS: i64 = 500;

/// A destination that is only probed.
struct Circuit {
    since: Timestamp,
    reason: Option<String>,
    subscriptions: Vec<String>,
}

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    if !asked.visitor.sees_all() {
        return Err(Trouble::forbidden(
            "Workers deliver every stream, and your token is for some of them only.",
        ));
    }
    let frozen_after = asked.dashboard.fleet.frozen_after;
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let workers = inspect::workers(&reading, WORKERS).await?;
    let subscriptions = asked.visitor.subscriptions(&reading).await?;
    let deliveries = inspect::deliveries(&reading, frozen_after).await?;
    drop(reading);
    lease.done();

    let mut circuits: BTreeMap<String, Circuit> = BTreeMap::new();
    for one in &subscriptions {
        let delivery = deliveries.of(one.id, one.paused);
        let open = delivery.reports.iter();
        for report in open.filter(|it| it.current && it.state == ReportedState::CircuitOpen) {
            let circuit = circuits.entry(one.place()).or_insert_with(|| Circuit {
                since: report.since,
                reason: report.reason.clone(),
                subscriptions: Vec::new(),
            });
            circuit.since = circuit.since.min(report.since);
            let name = one.name.to_string();
            if !circuit.subscriptions.contains(&name) {
                circuit.subscriptions.push(name);
            }
        }
    }
    let limited = subscriptions.iter().filter(|one| !one.limits.is_empty());
    let main = html! {
        section #workers data-part {
            div.title { h1 { "Workers" } p.muted { (format::plural(deliveries.live() as i64, "worker", "workers")) " with a heartbeat" } }
            @if workers.is_empty() { p.empty { "No worker runs: events are stored, and wait." } }
            @else { (table(&workers, frozen_after.as_secs_f64())) }
        }
        section #circuits data-part {
            h2 { "Open circuits" }
            @if circuits.is_empty() { p.empty { "None: no destination fails so often that it is only probed." } }
            @for (destination, circuit) in &circuits {
                div.card {
                    p { strong { (format::plain(destination)) } " " (badge(Tone::Bad, "open")) " since " (format::when(circuit.since)) }
                    @if let Some(reason) = &circuit.reason { p.error { (format::plain(reason)) } }
                    p { "Waiting for it: " @for name in &circuit.subscriptions { (link::to_subscription(name)) " " } }
                    p.muted.small { "It is probed by itself. To try everything at once:" }
                    (command::shown(&command::line(&["breaker", "reset", destination])))
                }
            }
        }
        section {
            h2 { "Limits" }
            dl.facts {
                @for one in limited {
                    div {
                        dt { (link::to_subscription(&one.name)) }
                        dd { @for limit in &one.limits { (limit.rate) " " } span.muted { (one.place()) } }
                    }
                }
            }
            @if subscriptions.iter().all(|one| one.limits.is_empty()) { p.empty { "No subscription has a limit of its own." } }
        }
    };
    let page = Page {
        title: "Workers",
        place: "/workers",
        renew_s: Some(5),
    };
    Ok(asked.answer(&page, &main))
}

fn table(workers: &[WorkerStatus], frozen_after_s: f64) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr {
                    th scope="col" { "Worker" } th scope="col" { "State" } th scope="col" { "Host" } th scope="col" { "Release" }
                    th scope="col" { "Started" } th scope="col" { "Last heartbeat" }
                    th.number scope="col" { "Connections" } th.number scope="col" { "Lanes held" }
                } }
                tbody {
                    @for worker in workers {
                        tr {
                            th scope="row" data-label="Worker" { (worker.worker_id) }
                            td data-label="State" {
                                @if worker.silent_s > frozen_after_s { (badge(Tone::Bad, "silent")) }
                                @else if worker.state == "running" { (badge(Tone::Good, "running")) }
                                @else { (badge(Tone::Busy, &worker.state)) }
                            }
                            td data-label="Host" { (format::short(&worker.host, 60)) span.muted { "pid " (worker.pid) } }
                            td data-label="Release" { (worker.release) }
                            td data-label="Started" { (format::when(worker.started_at)) }
                            td data-label="Last heartbeat" { (format::span(worker.silent_s)) " ago" }
                            td.number data-label="Connections" { (worker.lane_connections) }
                            td.number data-label="Lanes held" { (format::count(worker.held_lanes, false)) }
                        }
                    }
                }
            }
        }
    }
}
