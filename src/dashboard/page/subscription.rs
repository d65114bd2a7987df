//! `/subscription`: one destination of a stream, how it is delivered, and why not.

use axum::response::Response;
use jiff::Timestamp;
use lanekeeper_core::subscription::duration;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{self, Delivery, LaneFilter, SubscriptionStatus};
use lanekeeper_postgres::report::ReportedState;
use lanekeeper_postgres::subscription::Subscription;
use maud::{Markup, html};

use super::Asked;
use crate::form::query;
use crate::layout::Page;
use crate::part::act::Act;
use crate::part::badge::{self, Tone, badge};
use crate::part::{format, lane_table, link, spark};
use crate::trouble::Trouble;

/// Held-up lanes that are shown.
const LANES: i64 = 20;
/// More than `glance` needs: every subscription that has a name.
const SUBSCRIPTIONS: i64 = 1_000;

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let name = asked.query.required("name")?;
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let all = asked.visitor.subscriptions(&reading).await?;
    let found = all.iter().find(|it| *it.name == *name).ok_or_else(|| {
        Trouble::not_found(format!(
            "There is no subscription {name:?}, or your token is not for its stream."
        ))
    })?;
    let mut statuses = inspect::glance(&reading, SUBSCRIPTIONS).await?;
    statuses.retain(|it| it.subscription_id == found.id);
    let status = statuses.pop();
    let deliveries = inspect::deliveries(&reading, asked.dashboard.fleet.frozen_after).await?;
    let delivery = deliveries.of(found.id, found.paused);
    let held_up = LaneFilter {
        subscription_ids: Some(&[found.id]),
        held_up: true,
        after: None,
    };
    let lanes = inspect::active_lanes(&reading, held_up, LANES).await?;
    let lane_ids: Vec<i64> = lanes.iter().map(|(lane_id, _)| *lane_id).collect();
    let lanes = inspect::lanes(&reading, &lane_ids).await?;
    drop(reading);
    lease.done();

    let back = link::subscription(name);
    let main = html! {
        section #state data-part {
            div.title {
                h1 { (name) }
                (badge::delivery(delivery.state))
                p.muted { (found.stream) " → " (found.adapter) }
                @if asked.visitor.may_operate() { (pausing(&asked, found, &back)) }
            }
            @for reason in delivery.reasons() { p.notice.bad { (format::plain(&reason)) } }
            @if let Some(status) = &status {
                @if let Some(at) = status.paused_at {
                    p.notice.warn { "Paused " (format::when(at)) ": " (format::plain(status.pause_reason.as_deref().unwrap_or_default())) ". Its events wait in order." }
                }
                (figures(&asked, status))
            }
        }
        section #lanes data-part {
            div.title {
                h2 { "Sessions that are held up" }
                a href={ "/lanes?" (query([("subscription", name)])) } { "All of its lanes" }
            }
            @if lanes.is_empty() { p.empty { "None: every session goes on." } }
            @else { (lane_table::table(&asked.visitor, &lanes, lane_table::Of::Sessions, &back)) }
        }
        @if asked.visitor.sees_all() { section #reports data-part { h2 { "What workers report" } (reports(&delivery)) } }
        section { h2 { "As it was applied" } (definition(found)) }
    };
    let page = Page {
        title: name,
        place: "/",
        renew_s: Some(5),
    };
    Ok(asked.answer(&page, &main))
}

fn pausing(asked: &Asked, found: &Subscription, back: &str) -> Markup {
    let name: &str = &found.name;
    let (verb, label, explains) = match found.paused {
        true => (
            "resume",
            "Resume",
            "Its deliveries go on where they stopped, in order.",
        ),
        false => (
            "pause",
            "Pause",
            "Deliveries under way are finished, and then nothing more is sent. Its events wait in order; nothing is lost.",
        ),
    };
    Act {
        to: "/action/subscription",
        label,
        confirm: label,
        of: name,
        explains,
        is_final: false,
        fields: &[("name", name), ("action", verb)],
        command: &["subscription", verb, name],
        takes_reason: !found.paused,
    }
    .shown(&asked.visitor, back)
}

fn figures(asked: &Asked, status: &SubscriptionStatus) -> Markup {
    let series = asked.dashboard.figures.of(&status.subscription);
    let lanes = &status.lanes;
    let dead = query([("subscription", status.subscription.as_str())]);
    html! {
        dl.figures {
            div.broad { dt { "Delivered by this worker, ten minutes" } dd { (spark::spark(&series.rates, &status.subscription)) } }
            div { dt { "Rate" } dd { (series.rate.map_or("–".to_owned(), format::rate)) } }
            div { dt { "Latency" } dd { (series.latency_s.map_or("–".to_owned(), format::span)) } }
            div { dt { "Behind" } dd { (format::count(status.behind, status.partial)) } }
            div { dt { "Oldest" } dd { (status.oldest_undelivered_age_s.map_or("–".to_owned(), format::span)) } }
            div { dt { "Ready" } dd { (format::count(lanes.ready, status.partial)) } }
            div { dt { "Being delivered" } dd { (format::count(lanes.held, false)) } }
            div { dt { "Blocked" } dd { (format::count(lanes.blocked, status.partial)) } }
            div { dt { "Parked" } dd { (format::count(lanes.parked, status.partial)) } }
            div { dt { "Dead letters" } dd { a href={ "/dead?" (dead) } { (format::count(status.dead_letters, status.dead_letters_partial)) } } }
        }
    }
}

fn reports(delivery: &Delivery) -> Markup {
    html! {
        @if delivery.reports.is_empty() { p.empty { "No worker has reported yet." } }
        @else {
            div.scroll { table {
                thead { tr { th scope="col" { "Worker" } th scope="col" { "Says" } th scope="col" { "Since" } th.wide scope="col" { "Reason" } } }
                tbody {
                    @for report in &delivery.reports {
                        tr {
                            td data-label="Worker" { (report.worker_id) " " span.muted { (report.host) } }
                            td data-label="Says" { (reported(report.state)) @if !report.current { span.muted { "of an older version" } } }
                            td data-label="Since" { (format::when(report.since)) }
                            td.wide data-label="Reason" { (format::plain(report.reason.as_deref().unwrap_or("–"))) }
                        }
                    }
                }
            } }
        }
    }
}

fn reported(state: ReportedState) -> Markup {
    match state {
        ReportedState::Delivering => badge(Tone::Good, "delivering"),
        ReportedState::Refused => badge(Tone::Bad, "refused"),
        ReportedState::CircuitOpen => badge(Tone::Bad, "circuit open"),
    }
}

/// Without the adapter's settings, which may carry a credential: the destination's name has what may be shown.
fn definition(found: &Subscription) -> Markup {
    let schedule: Vec<String> = found
        .retry_schedule
        .iter()
        .map(|it| duration::written(*it))
        .collect();
    let attempts = match found.max_attempts {
        0 => "for ever".to_owned(),
        most => format!(
            "{most} attempts, then {}",
            found.on_exhausted.as_str().replace('_', " ")
        ),
    };
    let events = found
        .events
        .as_ref()
        .map_or("all of the stream".to_owned(), |events| events.join(", "));
    let limits: Vec<String> = found
        .limits
        .iter()
        .map(|limit| limit.rate.to_string())
        .collect();
    let rows = [
        ("Destination", found.place()),
        ("Version", found.version.to_string()),
        ("Events", events),
        ("Tried", attempts),
        ("Waits between", schedule.join(", ")),
        ("Acknowledgement", found.ack.as_str().to_owned()),
        (
            "Limits",
            if limits.is_empty() {
                "none".to_owned()
            } else {
                limits.join(", ")
            },
        ),
        ("At once, per worker", found.concurrency.to_string()),
        (
            "Merges repeated events",
            if found.coalesce { "yes" } else { "no" }.to_owned(),
        ),
    ];
    html! {
        dl.facts { @for (name, value) in rows { div { dt { (name) } dd { (value) } } } }
        p.muted.small { "Changed with " code { "lanekeeper apply" } ". As of " (format::clock(Timestamp::now())) " UTC." }
    }
}
