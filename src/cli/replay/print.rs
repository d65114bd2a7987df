//! Replays as people read them.

use lanekeeper_postgres::replay::Replay;

use crate::Failure;
use crate::output::{self, Output, or_dash};

/// A table of replays.
pub fn rows(replays: &[Replay]) -> Result<(), Failure> {
    let rows: Vec<_> = replays.iter().map(row).collect();
    output::table(
        [
            "REPLAY",
            "SUBSCRIPTION",
            "SESSIONS",
            "STATE",
            "DELIVERED",
            "EXHAUSTED",
            "LEFT",
            "RATE",
            "STARTED",
        ],
        &rows,
    )
}

fn row(replay: &Replay) -> [String; 9] {
    let left = match replay.ended_at {
        Some(_) => None,
        None => Some(replay.left().to_string()),
    };
    [
        replay.replay_id.to_string(),
        replay.subscription.clone(),
        output::short(replay.sessions.as_deref().unwrap_or("all"), 40),
        replay.state.clone(),
        replay.progress.delivered.to_string(),
        replay.progress.exhausted.to_string(),
        or_dash(left),
        or_dash(replay.rate.clone()),
        output::time(replay.started_at),
    ]
}

/// One replay in full.
pub(super) fn one(replay: &Replay, form: Output) -> Result<(), Failure> {
    if form == Output::Json {
        return output::json_line(replay);
    }
    let range = |unit: &str, from: Option<String>, to: Option<String>| {
        (from.is_some() || to.is_some())
            .then(|| format!("{unit} from {} to {}", or_dash(from), or_dash(to)))
    };
    let of = |at: jiff::Timestamp| at.to_string();
    let (planned, progress) = (replay.planned, replay.progress);
    let mut lines = vec![
        format!(
            "replay {} to {} (stream {}): {}",
            replay.replay_id, replay.subscription, replay.stream, replay.state
        ),
        format!("sessions: {}", replay.sessions.as_deref().unwrap_or("all")),
    ];
    lines.extend(range(
        "seq",
        replay.from_seq.map(|seq| seq.to_string()),
        replay.to_seq.map(|seq| seq.to_string()),
    ));
    lines.extend(range("appended", replay.from.map(of), replay.to.map(of)));
    lines.push(format!(
        "planned: {} events of {} sessions, {} bytes",
        planned.events, planned.sessions, planned.bytes
    ));
    lines.push(format!(
        "events: {} delivered, {} exhausted",
        progress.delivered, progress.exhausted
    ));
    lines.push(format!(
        "sessions: {} done, {} under way, {} waiting",
        progress.sessions_done, progress.sessions_active, progress.sessions_waiting
    ));
    lines.extend(replay.rate.as_ref().map(|rate| format!("rate: {rate}")));
    lines.push(format!(
        "started: {} by {}",
        output::time(replay.started_at),
        replay.started_by
    ));
    lines.extend(replay.reason.as_ref().map(|why| format!("reason: {why}")));
    let paused = replay.paused_at.filter(|_| replay.ended_at.is_none());
    lines.extend(paused.map(|at| format!("paused: {}", output::time(at))));
    lines.extend(
        replay
            .ended_at
            .map(|at| format!("ended: {}", output::time(at))),
    );
    lines.extend(
        replay
            .end_reason
            .as_ref()
            .map(|why| format!("because: {why}")),
    );
    lines
        .iter()
        .try_for_each(|line| output::line(output::plain(line)))
}
