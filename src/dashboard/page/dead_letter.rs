//! `/dead/letter`: one dead letter, with what it carries.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{self, DeadLetter};
use maud::{Markup, html};

use super::{Asked, dead, payload};
use crate::layout::Page;
use crate::part::act::Act;
use crate::part::{command, format, link};
use crate::trouble::Trouble;

/// Characters of a payload that are shown.
const CHARACTERS: i32 = 65_536;

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let dead_id = asked.query.required_number("id")?;
    let payloads = asked.dashboard.config.payloads;
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let found =
        inspect::dead_letter_excerpt(&reading, dead_id, if payloads { CHARACTERS } else { 0 })
            .await?;
    drop(reading);
    lease.done();
    let (letter, text, size) = found
        .filter(|(letter, ..)| asked.visitor.reaches(&letter.stream))
        .ok_or_else(|| Trouble::not_found(format!("There is no dead letter {dead_id}.")))?;
    let id = dead_id.to_string();
    let facts = [
        ("Error", format::plain(&letter.error)),
        ("Event", letter.event_type.clone()),
        ("Message id", letter.message_id.to_string()),
        ("Appended", format::full(letter.created_at)),
        ("Died", format::full(letter.died_at)),
        ("Attempts", letter.attempts.to_string()),
        ("Crashes of workers", letter.crashes.to_string()),
    ];
    let main = html! {
        section #letter data-part {
            div.title {
                h1 { "Dead letter № " (dead_id) }
                (dead::resolution(&letter))
                @if asked.visitor.may_operate() && letter.waits() { div.acts { (actions(&asked, &letter)) } }
            }
            p { "seq " (letter.seq) " of " (link::to_session(&letter.stream, &letter.session)) ", to " (link::to_subscription(&letter.subscription)) }
            dl.facts { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } }
        }
        h2 { "Payload" }
        @if payloads { (payload::shown(&text, size, &command::line(&["dead", "show", &id]))) }
        @else { p.muted { "Hidden: dashboard.payloads is off." } }
    };
    let page = Page {
        title: "Dead letter",
        place: "/dead",
        renew_s: Some(5),
    };
    Ok(asked.answer(&page, &main))
}

fn actions(asked: &Asked, letter: &DeadLetter) -> Markup {
    let id = letter.dead_id.to_string();
    let of = format!("dead letter {id}");
    let back = link::dead_letter(letter.dead_id);
    let act = |verb: &str, label: &str, explains: &str| {
        Act {
            to: "/action/dead",
            label,
            confirm: label,
            of: &of,
            explains,
            is_final: verb == "drop",
            fields: &[("id", &id), ("action", verb)],
            command: &["dead", verb, &id, "--yes"],
            takes_reason: true,
        }
        .shown(&asked.visitor, &back)
    };
    html! {
        (act("requeue", "Requeue", "It is delivered again, before everything that its lane has not delivered yet, with the same message id and seq. If it fails again, it is a dead letter again."))
        (act("drop", "Drop", "It is given up for good. It stays on record as dropped, with its payload, for as long as the retention says."))
    }
}
