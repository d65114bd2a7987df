//! `/`: what needs somebody first, and how each subscription stands.

mod attention;

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{
    self, Deliveries, Delivery, ForeignLock, LaneFilter, LaneStatus, SubscriptionStatus,
    WorkerStatus,
};
use maud::{Markup, html};
use tokio_postgres::Transaction;

use super::Asked;
use crate::layout::Page;
use crate::part::badge::{self, Tone, badge};
use crate::part::{format, lane_table, link, spark};
use crate::trouble::Trouble;

/// Subscriptions, workers and lanes that are shown.
const SUBSCRIPTIONS: i64 = 200;
const WORKERS: i64 = 200;
const LANES: i64 = 8;
const FOREIGN_LOCKS: i64 = 5;

/// What the page is made from.
pub(super) struct Overview {
    pub(super) subscriptions: Vec<(SubscriptionStatus, Delivery)>,
    /// Empty where the visitor's token is for some streams only.
    pub(super) workers: Vec<WorkerStatus>,
    pub(super) live: usize,
    pub(super) foreign_locks: Vec<ForeignLock>,
    /// The first of those that are held up.
    pub(super) lanes: Vec<LaneStatus>,
}

async fn read(asked: &Asked, reading: &Transaction<'_>) -> Result<Overview, Trouble> {
    let deliveries: Deliveries =
        inspect::deliveries(reading, asked.dashboard.fleet.frozen_after).await?;
    let mut statuses = inspect::glance(reading, SUBSCRIPTIONS).await?;
    statuses.retain(|it| asked.visitor.reaches(&it.stream));
    let ids: Vec<i32> = statuses.iter().map(|it| it.subscription_id).collect();
    let held_up = LaneFilter {
        subscription_ids: Some(&ids),
        held_up: true,
        after: None,
    };
    let found = inspect::active_lanes(reading, held_up, LANES).await?;
    let lane_ids: Vec<i64> = found.iter().map(|(lane_id, _)| *lane_id).collect();
    let (mut workers, mut foreign_locks) = (Vec::new(), Vec::new());
    if asked.visitor.sees_all() {
        workers = inspect::workers(reading, WORKERS).await?;
        foreign_locks = inspect::foreign_locks(reading, FOREIGN_LOCKS).await?;
    }
    let with_delivery = |status: SubscriptionStatus| {
        let delivery = deliveries.of(status.subscription_id, status.paused_at.is_some());
        (status, delivery)
    };
    Ok(Overview {
        live: deliveries.live(),
        subscriptions: statuses.into_iter().map(with_delivery).collect(),
        workers,
        foreign_locks,
        lanes: inspect::lanes(reading, &lane_ids).await?,
    })
}

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let overview = read(&asked, &reading).await?;
    drop(reading);
    lease.done();

    let concerns = attention::concerns(&overview, asked.dashboard.fleet.frozen_after);
    let main = html! {
        section #attention data-part aria-labelledby="headline" {
            (attention::shown(&overview, &concerns))
            @if !overview.lanes.is_empty() {
                div.title {
                    h2 { "Sessions that are held up" }
                    a href="/lanes" { "All of them" }
                }
                (lane_table::table(&asked.visitor, &overview.lanes, lane_table::Of::Sessions, "/"))
            }
        }
        section #subscriptions data-part {
            div.title { h2 { "Subscriptions" } }
            (subscriptions(&asked, &overview))
            p.muted.small { "Rate, latency and the lines are those of the worker that serves this page, over the last ten minutes; everything else is of all workers. A + marks a lower bound." }
        }
    };
    let page = Page {
        title: "Overview",
        place: "/",
        renew_s: Some(5),
    };
    Ok(asked.answer(&page, &main))
}

fn subscriptions(asked: &Asked, overview: &Overview) -> Markup {
    if overview.subscriptions.is_empty() {
        return html! {
            p.empty { "There is no subscription. Write one into a file, and apply it with " code { "lanekeeper apply -f subscriptions.toml" } "." }
        };
    }
    html! {
        div.scroll {
            table.subscriptions {
                thead {
                    tr {
                        th scope="col" { "Subscription" }
                        th scope="col" { "State" }
                        th scope="col" { "Delivered" }
                        th.number scope="col" { "Rate" }
                        th.number scope="col" { "Latency" }
                        th.number scope="col" { "Behind" }
                        th.number scope="col" { "Oldest" }
                        th.number scope="col" { "Held up" }
                        th.number scope="col" { "Dead" }
                    }
                }
                tbody {
                    @for (status, delivery) in &overview.subscriptions {
                        (subscription(asked, status, delivery))
                    }
                }
            }
        }
    }
}

fn subscription(asked: &Asked, status: &SubscriptionStatus, delivery: &Delivery) -> Markup {
    let series = asked.dashboard.figures.of(&status.subscription);
    let held_up = status.lanes.blocked + status.lanes.parked;
    let name = &status.subscription;
    html! {
        tr {
            th scope="row" data-label="Subscription" {
                (link::to_subscription(name))
                span.muted { (status.stream) " → " (status.adapter) }
            }
            td data-label="State" { (badge::delivery(delivery.state)) }
            td data-label="Delivered" { (spark::spark(&series.rates, name)) }
            td.number data-label="Rate" { (or_dash(series.rate.map(format::rate))) }
            td.number data-label="Latency" { (or_dash(series.latency_s.map(format::span))) }
            td.number data-label="Behind" { (format::count(status.behind, status.partial)) }
            td.number data-label="Oldest" { (or_dash(status.oldest_undelivered_age_s.map(format::span))) }
            td.number data-label="Held up" {
                @match held_up {
                    0 => "0",
                    _ => a href={ "/lanes?" (crate::form::query([("subscription", name.as_str())])) } { (format::count(held_up, status.partial)) }
                }
            }
            td.number data-label="Dead" {
                @match status.dead_letters {
                    0 => "0",
                    dead => a href={ "/dead?" (crate::form::query([("subscription", name.as_str())])) } { (format::count(dead, status.dead_letters_partial)) }
                }
            }
        }
    }
}

fn or_dash(text: Option<String>) -> Markup {
    match text {
        Some(text) => html! { (text) },
        None => html! { span.muted { "–" } },
    }
}

/// The tone of a concern as a word for those who hear the page.
fn weight(tone: Tone) -> Markup {
    match tone {
        Tone::Bad => badge(tone, "now"),
        Tone::Warn => badge(tone, "soon"),
        _ => badge(tone, "note"),
    }
}
