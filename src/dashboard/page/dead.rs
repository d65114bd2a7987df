//! `/dead`: dead letters, to be found, read, requeued and dropped, many at once.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{self, DeadLetter, DeadLetterPage};
use maud::{Markup, html};

use super::{Asked, ROWS};
use crate::layout::Page;
use crate::part::badge::{Tone, badge};
use crate::part::{format, link};
use crate::trouble::Trouble;

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let (chosen, text) = (asked.query.text("subscription")?, asked.query.text("text")?);
    let (before, resolved) = (asked.query.number("before")?, asked.query.flag("resolved"));
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let subscriptions = asked.visitor.subscriptions(&reading).await?;
    let ids = chosen_ids(&subscriptions, chosen)?;
    let page = DeadLetterPage {
        subscription_ids: Some(&ids),
        session_id: None,
        resolved,
        before,
        text,
    };
    let found = inspect::dead_letter_page(&reading, page, ROWS).await?;
    drop(reading);
    lease.done();

    let letters = &found.rows;
    let is_full = letters.len() as i64 == ROWS;
    let next = letters.last().filter(|_| is_full).map(|it| it.dead_id);
    let next = next.or(found.scanned_to).map(|id| id.to_string());
    let (name, text) = (chosen.unwrap_or_default(), text.unwrap_or_default());
    let main = html! {
        div.title {
            h1 { "Dead letters" }
            form.filter method="get" action="/dead" {
                label.hidden for="subscription" { "Destination" }
                select #subscription name="subscription" data-submit {
                    option value="" { "Every destination" }
                    @for one in &subscriptions { option value=(one.name) selected[*one.name == *name] { (one.name) } }
                }
                label.hidden for="text" { "Text in the error or type" }
                input #text name="text" type="search" value=(text) placeholder="In the error or type" maxlength="200";
                label.check { input type="checkbox" name="resolved" value="1" checked[resolved] data-submit; " dealt with too" }
                button type="submit" { "Show" }
            }
        }
        section #letters data-part {
            @if letters.is_empty() {
                p.empty {
                    @if next.is_some() { "None among these; there are older ones." }
                    @else if before.is_some() { "There are no more." }
                    @else { "No dead letter waits." }
                }
            } @else {
                form method="get" action="/dead/review" {
                    @if asked.visitor.may_operate() { (choices(name, text)) }
                    (table(&asked, letters))
                }
            }
            @if let Some(next) = &next {
                @let resolved = if resolved { "1" } else { "" };
                (link::older("/dead", &[("subscription", name), ("text", text), ("resolved", resolved), ("before", next)], "Older dead letters"))
            }
        }
    };
    let page = Page {
        title: "Dead letters",
        place: "/dead",
        renew_s: None,
    };
    Ok(asked.answer(&page, &main))
}

/// The ids of the subscription of this name, or of all.
pub(super) fn chosen_ids(
    subscriptions: &[lanekeeper_postgres::subscription::Subscription],
    chosen: Option<&str>,
) -> Result<Vec<i32>, Trouble> {
    let fits = |name: &str| chosen.is_none_or(|chosen| chosen == name);
    let found = subscriptions.iter().filter(|it| fits(&it.name));
    let ids: Vec<i32> = found.map(|it| it.id).collect();
    match chosen {
        Some(_) if ids.is_empty() => Err(Trouble::not_found(
            "There is no such subscription, or your token is not for its stream.",
        )),
        _ => Ok(ids),
    }
}

/// What can be done with those that are chosen, or with all that fit.
fn choices(name: &str, text: &str) -> Markup {
    html! {
        div.choices {
            input type="hidden" name="subscription" value=(name);
            input type="hidden" name="text" value=(text);
            label.check { input type="checkbox" data-all="id"; " All on this page" }
            span.muted data-count="id" {}
            button type="submit" name="action" value="requeue" { "Requeue the chosen" }
            button type="submit" name="action" value="drop" { "Drop the chosen" }
            button.plain type="submit" name="action" value="requeue-all" { "Requeue all that fit…" }
            button.plain type="submit" name="action" value="drop-all" { "Drop all that fit…" }
        }
    }
}

fn table(asked: &Asked, letters: &[DeadLetter]) -> Markup {
    let may_operate = asked.visitor.may_operate();
    html! {
        div.scroll {
            table.dead {
                thead { tr {
                    @if may_operate { th scope="col" { span.hidden { "Chosen" } } }
                    th scope="col" { "Dead letter" } th scope="col" { "Session" } th scope="col" { "Destination" }
                    th scope="col" { "Event" } th.wide scope="col" { "Error" } th.number scope="col" { "Attempts" } th scope="col" { "Died" }
                } }
                tbody {
                    @for letter in letters {
                        tr {
                            @if may_operate { td.choose {
                                @if letter.waits() { input type="checkbox" name="id" value=(letter.dead_id) aria-label={ "Dead letter " (letter.dead_id) }; }
                            } }
                            th scope="row" data-label="Dead letter" { a href=(link::dead_letter(letter.dead_id)) { "№ " (letter.dead_id) } (resolution(letter)) }
                            td data-label="Session" { (link::to_session(&letter.stream, &letter.session)) }
                            td data-label="Destination" { (link::to_subscription(&letter.subscription)) }
                            td data-label="Event" { (format::short(&letter.event_type, 60)) span.muted { "seq " (letter.seq) } }
                            td.wide data-label="Error" { span.error title=(format::short(&letter.error, 1_000)) { (format::short(&letter.error, 160)) } }
                            td.number data-label="Attempts" { (letter.attempts) }
                            td data-label="Died" { (format::when(letter.died_at)) }
                        }
                    }
                }
            }
        }
    }
}

/// What became of it; nothing where it waits for an operator.
pub(super) fn resolution(letter: &DeadLetter) -> Markup {
    match (letter.resolution.as_deref(), letter.requeued_at) {
        (Some(resolution), _) => badge(Tone::Calm, resolution),
        (None, Some(_)) => badge(Tone::Busy, "being delivered again"),
        (None, None) => html! {},
    }
}
