//! `/find`: what somebody pasted into the search box. One hit is shown at once.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{self, Place};
use maud::html;
use uuid::Uuid;

use super::Asked;
use crate::layout::Page;
use crate::notice::see_other;
use crate::part::{command, link};
use crate::trouble::Trouble;

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let Some(wanted) = asked.query.text("q")? else {
        return Ok(see_other("/"));
    };
    let message_id = wanted.parse::<Uuid>().ok();
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let stream_ids = asked.visitor.stream_ids(&reading).await?;
    let mut found = inspect::search_session(&reading, wanted, stream_ids.as_deref()).await?;
    if let Some(message_id) = message_id {
        let messages = inspect::search_message(&reading, message_id, stream_ids.as_deref()).await?;
        found.extend(messages);
    }
    drop(reading);
    lease.done();

    // One that is called exactly so, or one at all: nobody has to choose.
    let is_exact = |place: &&Place| place.seq.is_some() || place.session == wanted;
    let exact: Vec<&Place> = found.iter().filter(is_exact).collect();
    if let ([one], _) | (_, [one]) = (
        exact.as_slice(),
        found.iter().collect::<Vec<_>>().as_slice(),
    ) {
        return Ok(see_other(&address(one)));
    }
    let main = html! {
        div.title { h1 { "Search" } p.muted { "for " (crate::part::format::plain(wanted)) } }
        @if found.is_empty() {
            p.empty { "Nothing is called so." }
            p.muted { "A session is found by the beginning of its name; upper and lower case matter." }
            @if message_id.is_some() {
                p.muted { "A message is found by an id that its producer gave it, while it waits for an acknowledgement, and among the newest dead letters. The log has no index by message id, because every append would pay for it. With the session's name:" }
                (command::shown(&format!("{} | grep {wanted}", command::line(&["tail", "STREAM", "SESSION", "--from", "1", "--output", "json"]))))
            }
        } @else {
            ul.found {
                @for place in &found {
                    li { (link::to_session(&place.stream, &place.session)) @if let Some(seq) = place.seq { a href=(address(place)) { "seq " (seq) } } }
                }
            }
        }
    };
    let page = Page {
        title: "Search",
        place: "",
        renew_s: None,
    };
    Ok(asked.answer(&page, &main))
}

/// A session, from a message on backwards.
fn address(place: &Place) -> String {
    let session = link::session(&place.stream, &place.session);
    match place.seq {
        Some(seq) => format!("{session}&before={}#seq-{seq}", seq.saturating_add(1)),
        None => session,
    }
}
