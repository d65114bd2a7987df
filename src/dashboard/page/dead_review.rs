//! `/dead/review`: what requeueing or dropping many dead letters would do, counted before it is done.

use std::collections::BTreeMap;

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{self, DeadLetter, DeadLetterPage};
use maud::{Markup, html};

use super::{Asked, dead};
use crate::forgery;
use crate::form::query;
use crate::layout::Page;
use crate::part::{command, format, link};
use crate::trouble::Trouble;

/// Dead letters that are dealt with at once, as on the command line.
pub(crate) const MOST: usize = 1_000;
/// Errors that are told apart.
const ERRORS: usize = 8;

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let (verb, is_all) = match asked.query.raw("action") {
        Some("requeue") => ("requeue", false),
        Some("drop") => ("drop", false),
        Some("requeue-all") => ("requeue", true),
        Some("drop-all") => ("drop", true),
        _ => return Err(Trouble::invalid("An action is requeue or drop.")),
    };
    let (chosen, text) = (asked.query.text("subscription")?, asked.query.text("text")?);
    let ids = asked.query.numbers("id")?;
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let mut has_more = false;
    let mut letters = if is_all {
        let subscriptions = asked.visitor.subscriptions(&reading).await?;
        let of = dead::chosen_ids(&subscriptions, chosen)?;
        let page = DeadLetterPage {
            subscription_ids: Some(&of),
            text,
            ..DeadLetterPage::default()
        };
        let found = inspect::dead_letter_page(&reading, page, MOST as i64).await?;
        has_more = found.scanned_to.is_some() || found.rows.len() == MOST;
        found.rows
    } else {
        let ids = &ids[..ids.len().min(MOST)];
        inspect::dead_letters_by_id(&reading, ids).await?
    };
    drop(reading);
    lease.done();
    letters.retain(|it| it.waits() && asked.visitor.reaches(&it.stream));
    for letter in letters.iter().take(1) {
        asked.visitor.require_operate(&letter.stream)?;
    }

    let back = back(chosen, text);
    let main = match letters.is_empty() {
        true => html! {
            h1 { "Nothing is chosen" }
            p { "None of the chosen dead letters waits for a decision. Choose some with the boxes at their left." }
            p { a.button href=(back) { "Back to the dead letters" } }
        },
        false => review(&asked, verb, &letters, has_more, &back),
    };
    let page = Page {
        title: "Review",
        place: "/dead",
        renew_s: None,
    };
    Ok(asked.answer(&page, &main))
}

/// The list that the visitor came from.
fn back(chosen: Option<&str>, text: Option<&str>) -> String {
    let pairs = [("subscription", chosen), ("text", text)];
    let pairs = pairs
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    format!("/dead?{}", query(pairs))
}

fn review(asked: &Asked, verb: &str, letters: &[DeadLetter], has_more: bool, back: &str) -> Markup {
    let (does, explains) = match verb {
        "requeue" => (
            "Requeue",
            "Each is delivered again, before everything that its lane has not delivered yet, in the order of its session. What fails again is a dead letter again.",
        ),
        _ => (
            "Drop",
            "They are given up for good. They stay on record as dropped, with their payloads.",
        ),
    };
    let how_many = format::plural(letters.len() as i64, "dead letter", "dead letters");
    let mut ids: Vec<i64> = letters.iter().map(|it| it.dead_id).collect();
    ids.sort_unstable();
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    let mut words = vec!["dead", verb];
    words.extend(ids.iter().map(String::as_str));
    words.push("--yes");
    let mut sessions: Vec<(&str, &str)> = letters
        .iter()
        .map(|it| (it.stream.as_str(), it.session.as_str()))
        .collect();
    sessions.sort_unstable();
    sessions.dedup();
    html! {
        section {
        div.title { h1 { (does) " " (how_many) "?" } }
        p { (explains) }
        p { "They are of " (format::plural(sessions.len() as i64, "session", "sessions")) @if has_more { ". More of them wait: these are the newest " (letters.len()) ", and the rest can be dealt with afterwards" } "." }
        (counted("Destination", letters.iter().map(|it| it.subscription.as_str())))
        (counted("Error", letters.iter().map(|it| it.error.as_str())))
        }
        form.panel.open method="post" action="/action/dead" {
            input type="hidden" name=(forgery::FIELD) value=(forgery::token(&asked.visitor.key));
            input type="hidden" name="back" value=(back);
            input type="hidden" name="action" value=(verb);
            @for id in &ids { input type="hidden" name="id" value=(id); }
            label { span { "Reason, for the record" } input name="reason" maxlength="500" autocomplete="off"; }
            p.muted.small { "The same on the command line:" }
            (command::shown(&command::line(&words)))
            div.acts {
                button.primary.danger[verb == "drop"] type="submit" { (does) " " (how_many) }
                a.button href=(back) { "Cancel" }
            }
        }
        details { summary { "Which ones" }
            ul.found { @for letter in letters {
                li { a href=(link::dead_letter(letter.dead_id)) { "№ " (letter.dead_id) } " seq " (letter.seq) " of " (link::to_session(&letter.stream, &letter.session)) }
            } }
        }
    }
}

/// How many there are of each.
fn counted<'a>(name: &str, values: impl Iterator<Item = &'a str>) -> Markup {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for value in values {
        *counts.entry(format::short(value, 120)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    html! {
        table.counted {
            thead { tr { th scope="col" { (name) } th.number scope="col" { "Count" } } }
            tbody { @for (value, count) in counts.iter().take(ERRORS) { tr { td { (value) } td.number { (format::count(*count, false)) } } } }
        }
        @if counts.len() > ERRORS { p.muted.small { "and " (counts.len() - ERRORS) " others" } }
    }
}
