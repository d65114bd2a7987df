//! `/agents`: the registry of agent sessions.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect::{self, RegistryFilter, TurnState};
use maud::html;

use super::{Asked, ROWS, session_table};
use crate::form::query;
use crate::layout::Page;
use crate::part::link;
use crate::trouble::Trouble;

const TURNS: [(&str, &str); 4] = [
    ("", "All"),
    ("running", "Running"),
    ("stale", "Stale"),
    ("idle", "Idle"),
];

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let (cli, before) = (asked.query.text("cli")?, asked.query.number("before")?);
    let chosen = asked.query.text("turn")?.unwrap_or_default();
    let turn = match chosen {
        "" => None,
        "running" => Some(TurnState::Running),
        "stale" => Some(TurnState::Stale),
        "idle" => Some(TurnState::Idle),
        _ => return Err(Trouble::invalid("A turn is running, stale or idle.")),
    };
    let stale_after_s = asked.dashboard.fleet.stale_after_s;
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let stream_ids = asked.visitor.stream_ids(&reading).await?;
    let filter = RegistryFilter {
        cli,
        turn,
        stream_ids: stream_ids.as_deref(),
        before,
    };
    let ids = inspect::registered(&reading, filter, stale_after_s, ROWS).await?;
    let sessions = inspect::sessions(&reading, None, Some(&ids), stale_after_s, ROWS).await?;
    drop(reading);
    lease.done();

    let next = ids.last().filter(|_| ids.len() as i64 == ROWS);
    let next = next.map(|id| id.to_string());
    let cli = cli.unwrap_or_default();
    let tab = |value: &'static str, text: &'static str| {
        let pairs = [("turn", value), ("cli", cli)];
        let pairs = query(pairs.into_iter().filter(|(_, value)| !value.is_empty()));
        html! { a href={ "/agents?" (pairs) } aria-current=[(value == chosen).then_some("true")] { (text) } }
    };
    let main = html! {
        div.title {
            h1 { "Agents" }
            nav.tabs aria-label="Whose turn" { @for (value, text) in TURNS { (tab(value, text)) } }
        }
        section #agents data-part {
            @if sessions.is_empty() {
                p.empty {
                    @if before.is_some() || turn.is_some() { "None." }
                    @else { "No agent has been seen. Wire one up: " code { "lanekeeper hook --help" } " says how." }
                }
            } @else { (session_table::agents(&sessions, asked.dashboard.config.payloads)) }
            @if let Some(next) = &next { (link::older("/agents", &[("turn", chosen), ("cli", cli), ("before", next)], "Older sessions")) }
        }
        p.muted.small { "What hook events of the stream " code { "hooks" } " told. A turn is stale when nothing has come of it for " (crate::part::format::span(f64::from(stale_after_s))) "." }
    };
    let page = Page {
        title: "Agents",
        place: "/agents",
        renew_s: before.is_none().then_some(5),
    };
    Ok(asked.answer(&page, &main))
}
