//! `/sessions`: every session, the newest first.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect;
use maud::html;

use super::{Asked, ROWS, session_table};
use crate::layout::Page;
use crate::part::link;
use crate::trouble::Trouble;

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let before = asked.query.number("before")?;
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let stream_ids = asked.visitor.stream_ids(&reading).await?;
    let page = inspect::session_page(&reading, stream_ids.as_deref(), before, ROWS).await?;
    let stale_after_s = asked.dashboard.fleet.stale_after_s;
    let sessions = inspect::sessions(&reading, None, Some(&page.rows), stale_after_s, ROWS).await?;
    drop(reading);
    lease.done();

    let is_full = page.rows.len() as i64 == ROWS;
    let next = page
        .rows
        .last()
        .filter(|_| is_full)
        .copied()
        .or(page.scanned_to);
    let next = next.map(|id| id.to_string());
    let main = html! {
        div.title { h1 { "Sessions" } p.muted { "The newest first. Find one by its name with the search box." } }
        section #sessions data-part {
            @if sessions.is_empty() { p.empty { @if before.is_some() || next.is_some() { "None among these." } @else { "There is no session." } } }
            @else { (session_table::all(&sessions)) }
            @if let Some(next) = &next { (link::older("/sessions", &[("before", next)], "Older sessions")) }
        }
    };
    let page = Page {
        title: "Sessions",
        place: "/sessions",
        renew_s: before.is_none().then_some(5),
    };
    Ok(asked.answer(&page, &main))
}
