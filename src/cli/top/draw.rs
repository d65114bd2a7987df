//! The picture: a line of figures, the rows of the view, and a line that says which keys there are.

use lanekeeper_postgres::inspect::LaneStatus;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, TableState, Wrap};

use super::data::Snapshot;
use super::state::{State, View};
use crate::{delivery, output};

/// Lines for the error of the selected lane.
const DETAIL_LINES: u16 = 3;

pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let detail = match state.view {
        View::Lanes => DETAIL_LINES,
        _ => 0,
    };
    let [head, body, below, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(3),
        Constraint::Length(detail),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(state), head);
    if let Some(snapshot) = &state.snapshot {
        rows(frame, body, state, snapshot);
    }
    if let Some(lane) = state.lane() {
        let error = lane.last_error.as_deref().unwrap_or("no error");
        let text = Paragraph::new(output::plain(error).into_owned()).wrap(Wrap { trim: true });
        frame.render_widget(text, below);
    }
    frame.render_widget(footing(state), foot);
}

fn heading(state: &State) -> Paragraph<'static> {
    let tab = |view, name: &'static str| match state.view == view {
        true => Span::styled(name, Style::new().add_modifier(Modifier::REVERSED)),
        false => Span::raw(name),
    };
    let mut views = vec![
        tab(View::Lanes, " 1 lanes "),
        tab(View::Subscriptions, " 2 subscriptions "),
        tab(View::Workers, " 3 workers "),
    ];
    if let (View::Session, Some((stream, session))) = (state.view, state.followed()) {
        let name = format!(" {stream} {session} ");
        let name = output::plain(&name).into_owned();
        views.push(Span::styled(
            name,
            Style::new().add_modifier(Modifier::REVERSED),
        ));
    }
    let figures = match (&state.stale, &state.snapshot) {
        (Some(reason), _) => Span::styled(
            format!("not current: {}", output::plain(reason)),
            Style::new().fg(Color::Red),
        ),
        (None, Some(snapshot)) => Span::raw(figures(snapshot)),
        (None, None) => Span::raw(""),
    };
    Paragraph::new(vec![Line::from(views), Line::from(figures)])
}

fn figures(snapshot: &Snapshot) -> String {
    let sum = |count: fn(&super::data::Subscription) -> i64| -> i64 {
        snapshot.subscriptions.iter().map(count).sum()
    };
    format!(
        " {} behind, {} blocked, {} parked, {} dead letters, {} workers, at {}",
        sum(|one| one.status.behind),
        sum(|one| one.status.lanes.blocked),
        sum(|one| one.status.lanes.parked),
        sum(|one| one.status.dead_letters),
        snapshot.workers.len(),
        output::time(snapshot.read_at),
    )
}

fn footing(state: &State) -> Paragraph<'static> {
    if let Some((_, what)) = &state.asked {
        let text = format!("{what}. Do it? y / n");
        return Paragraph::new(text).style(Style::new().fg(Color::Yellow));
    }
    if let Some(said) = &state.said {
        return Paragraph::new(output::plain(said).into_owned());
    }
    let keys = match state.view {
        View::Lanes => "r retry  s skip  p park  u unpark  enter follow  tab view  q leave",
        View::Subscriptions => "p pause  u resume  tab view  q leave",
        View::Workers => "tab view  q leave",
        View::Session => "esc back  q leave",
    };
    Paragraph::new(keys).style(Style::new().add_modifier(Modifier::DIM))
}

fn rows(frame: &mut Frame<'_>, area: Rect, state: &State, snapshot: &Snapshot) {
    let (head, rows, widths): (Vec<&str>, Vec<Row<'_>>, Vec<Constraint>) = match state.view {
        View::Lanes => (
            vec![
                "LANE",
                "SUBSCRIPTION",
                "SESSION",
                "STATE",
                "HEAD",
                "TRIES",
                "BEHIND",
                "AGE",
            ],
            snapshot.lanes.iter().map(lane_row).collect(),
            [8, 14, 0, 8, 7, 5, 7, 6].map(width).to_vec(),
        ),
        View::Subscriptions => (
            vec![
                "SUBSCRIPTION",
                "STREAM",
                "STATE",
                "BLOCKED",
                "PARKED",
                "BEHIND",
                "OLDEST",
                "DEAD",
            ],
            snapshot
                .subscriptions
                .iter()
                .map(|one| {
                    let status = &one.status;
                    let state = delivery::cell(&one.delivery, status.pause_reason.as_deref());
                    let age = status.oldest_undelivered_age_s.map(output::age);
                    let style = match one.delivery.is_held_up() || status.paused_at.is_some() {
                        true => Style::new().fg(Color::Yellow),
                        false => Style::new(),
                    };
                    cells([
                        status.subscription.clone(),
                        status.stream.clone(),
                        state,
                        status.lanes.blocked.to_string(),
                        status.lanes.parked.to_string(),
                        status.behind.to_string(),
                        output::or_dash(age),
                        status.dead_letters_text(),
                    ])
                    .style(style)
                })
                .collect(),
            [16, 10, 0, 7, 6, 8, 6, 6].map(width).to_vec(),
        ),
        View::Workers => (
            vec![
                "WORKER", "HOST", "PID", "RELEASE", "STATE", "LANES", "SILENT",
            ],
            snapshot
                .workers
                .iter()
                .map(|worker| {
                    cells([
                        worker.worker_id.to_string(),
                        worker.host.clone(),
                        worker.pid.to_string(),
                        worker.release.clone(),
                        worker.state.clone(),
                        worker.held_lanes.to_string(),
                        output::age(worker.silent_s),
                    ])
                })
                .collect(),
            [7, 0, 8, 10, 9, 6, 7].map(width).to_vec(),
        ),
        View::Session => (
            vec!["SEQ", "TYPE", "AT"],
            snapshot
                .followed
                .iter()
                .flat_map(|followed| &followed.events)
                .map(|(seq, kind, at)| cells([seq.to_string(), kind.clone(), output::time(*at)]))
                .collect(),
            [10, 0, 26].map(width).to_vec(),
        ),
    };
    let empty = rows.is_empty();
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows, widths)
        .header(head)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::new());
    let mut selection = TableState::new().with_selected((!empty).then_some(state.selected));
    frame.render_stateful_widget(table, area, &mut selection);
    if empty {
        let text = match state.view {
            View::Lanes => "no lane has anything to do",
            View::Subscriptions => "there is no subscription: add one with `lanekeeper apply`",
            View::Workers => "no worker is running: events wait until one does",
            View::Session => "its events are gone",
        };
        let below = Rect {
            y: area.y + 1,
            height: area.height.saturating_sub(1),
            ..area
        };
        frame.render_widget(Paragraph::new(text), below);
    }
}

fn lane_row(lane: &LaneStatus) -> Row<'static> {
    let style = match &*lane.state {
        "blocked" => Style::new().fg(Color::Red),
        "parked" => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    };
    cells([
        lane.lane_id.to_string(),
        lane.subscription.clone(),
        lane.session.clone(),
        lane.state.clone(),
        output::or_dash(lane.head_seq.map(|seq| seq.to_string())),
        lane.attempts.to_string(),
        lane.behind.to_string(),
        output::or_dash(lane.head_age_s.map(output::age)),
    ])
    .style(style)
}

fn cells<const N: usize>(texts: [String; N]) -> Row<'static> {
    Row::new(texts.map(|text| Cell::from(output::plain(&text).into_owned())))
}

/// 0: what is left.
fn width(columns: u16) -> Constraint {
    match columns {
        0 => Constraint::Min(10),
        columns => Constraint::Length(columns),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::tests::{lane, snapshot};
    use super::*;

    fn picture(state: &State) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_blocked_lane_is_shown_with_its_error_in_80_by_24_and_commands_no_terminal() {
        let mut state = State::default();
        assert!(picture(&state).contains("1 lanes"));
        state.refresh(Ok(snapshot(vec![lane(1, "blocked")])));
        let shown = picture(&state);
        for text in [
            "session-1",
            "blocked",
            "audit",
            "503 of",
            "r retry",
            "q leave",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        assert!(!shown.contains('\u{1b}'), "{shown}");
        state.refresh(Err("Postgres is away".to_owned()));
        let shown = picture(&state);
        assert!(shown.contains("not current: Postgres is away") && shown.contains("session-1"));
    }

    #[test]
    fn a_question_stands_in_the_last_line() {
        let mut state = State::default();
        state.refresh(Ok(snapshot(vec![lane(1, "blocked")])));
        state.press(ratatui::crossterm::event::KeyCode::Char('s').into());
        let shown = picture(&state);
        assert!(shown.contains("skip seq 7 of lane 1"), "{shown}");
        assert!(shown.contains("Do it? y / n"), "{shown}");
    }
}
