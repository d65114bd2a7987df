//! `/lanes`: the lanes that are held up, and those that have something to do.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{self, LaneFilter, LanePlace};
use maud::html;

use super::{Asked, ROWS};
use crate::form::query;
use crate::layout::Page;
use crate::part::{lane_table, link};
use crate::trouble::Trouble;

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let held_up = asked.query.raw("show") != Some("all");
    let chosen = asked.query.text("subscription")?.map(str::to_owned);
    let after = asked.query.text("after")?.map(place).transpose()?;
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let subscriptions = asked.visitor.subscriptions(&reading).await?;
    let ids: Vec<i32> = subscriptions
        .iter()
        .filter(|it| chosen.as_deref().is_none_or(|name| *it.name == *name))
        .map(|it| it.id)
        .collect();
    if ids.is_empty() && chosen.is_some() {
        return Err(Trouble::not_found(
            "There is no such subscription, or your token is not for it.",
        ));
    }
    let filter = LaneFilter {
        subscription_ids: Some(&ids),
        held_up,
        after,
    };
    let mut found = inspect::active_lanes(&reading, filter, ROWS + 1).await?;
    let has_more = found.len() as i64 > ROWS;
    found.truncate(ROWS as usize);
    let last = found.last().map(|(_, place)| place.to_string());
    let lane_ids: Vec<i64> = found.iter().map(|(lane_id, _)| *lane_id).collect();
    let lanes = inspect::lanes(&reading, &lane_ids).await?;
    drop(reading);
    lease.done();

    let show = if held_up { "held-up" } else { "all" };
    let name = chosen.as_deref().unwrap_or_default();
    let tab = |value: &'static str, text: &'static str| {
        let of = [("show", value), ("subscription", name)];
        let pairs = of.into_iter().filter(|(_, value)| !value.is_empty());
        html! {
            a href={ "/lanes?" (query(pairs)) } aria-current=[(value == show).then_some("true")] { (text) }
        }
    };
    let main = html! {
        div.title {
            h1 { "Lanes" }
            nav.tabs aria-label="Which lanes" { (tab("held-up", "Held up")) (tab("all", "With something to do")) }
            form.filter method="get" action="/lanes" {
                input type="hidden" name="show" value=(show);
                label.hidden for="subscription" { "Destination" }
                select #subscription name="subscription" data-submit {
                    option value="" { "Every destination" }
                    @for one in &subscriptions {
                        option value=(one.name) selected[*one.name == *name] { (one.name) }
                    }
                }
                button type="submit" { "Show" }
            }
        }
        section #lanes data-part {
            @if lanes.is_empty() {
                p.empty {
                    @if after.is_some() { "There are no more." }
                    @else if held_up { "No lane is held up." }
                    @else { "No lane has anything to do." }
                }
            } @else {
                (lane_table::table(&asked.visitor, &lanes, lane_table::Of::Sessions, asked.path()))
                @if let Some(last) = last.filter(|_| has_more) {
                    (link::older("/lanes", &[("show", show), ("subscription", name), ("after", &last)], "More"))
                }
            }
        }
        p.muted.small { "Parked lanes come first, then those that are tried again soonest. A lane is one session on its way to one destination; what is held up here holds up nothing else." }
    };
    let page = Page {
        title: "Lanes",
        place: "/lanes",
        renew_s: after.is_none().then_some(5),
    };
    Ok(asked.answer(&page, &main))
}

/// Where the page before ended, as its link says.
fn place(text: &str) -> Result<LanePlace, Trouble> {
    text.parse()
        .map_err(|_| Trouble::invalid("There is no such place in the list."))
}
