//! Prints lanes for people and scripts.

use lanekeeper_postgres::inspect::LaneStatus;

use crate::Failure;
use crate::output::{self, Output, or_dash};

/// Lanes as a table, or a JSON line each.
pub(crate) fn print_lanes(lanes: &[LaneStatus], form: Output) -> Result<(), Failure> {
    if form == Output::Json {
        return lanes.iter().try_for_each(output::json_line);
    }
    if lanes.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = lanes.iter().map(row).collect();
    output::table(
        [
            "LANE",
            "STREAM",
            "SESSION",
            "SUBSCRIPTION",
            "STATE",
            "HEAD",
            "AGE",
            "BEHIND",
            "ATTEMPTS",
            "RETRY AT",
            "ERROR",
        ],
        &rows,
    )
}

fn row(lane: &LaneStatus) -> [String; 11] {
    [
        lane.lane_id.to_string(),
        lane.stream.clone(),
        output::short(&lane.session, 40),
        lane.subscription.clone(),
        lane.state.clone(),
        or_dash(lane.head_seq.map(|seq| seq.to_string())),
        or_dash(lane.head_age_s.map(output::age)),
        lane.behind.to_string(),
        lane.attempts.to_string(),
        or_dash(lane.retry_at.map(output::time)),
        or_dash(lane.last_error.as_deref().map(|e| output::short(e, 60))),
    ]
}

/// A lane as a block of fields.
pub(super) fn print_in_full(lane: &LaneStatus) -> Result<(), Failure> {
    let fields = [
        ("lane", lane.lane_id.to_string()),
        ("stream", lane.stream.clone()),
        ("session", lane.session.clone()),
        ("subscription", lane.subscription.clone()),
        ("state", lane.state.clone()),
        ("settled up to", lane.cursor.to_string()),
        ("newest seq", lane.newest_seq.to_string()),
        ("behind", lane.behind.to_string()),
        ("head", or_dash(lane.head_seq.map(|seq| seq.to_string()))),
        ("head's age", or_dash(lane.head_age_s.map(output::age))),
        ("attempts", lane.attempts.to_string()),
        ("crashes", lane.crashes.to_string()),
        ("retry at", or_dash(lane.retry_at.map(output::time))),
        (
            "sent up to",
            or_dash(lane.sent_seq.map(|seq| seq.to_string())),
        ),
        ("ack due at", or_dash(lane.ack_due_at.map(output::time))),
        ("parked at", or_dash(lane.parked_at.map(output::time))),
        (
            "held by worker",
            or_dash(lane.held_by.map(|id| id.to_string())),
        ),
        ("changed at", output::time(lane.changed_at)),
        ("last error", or_dash(lane.last_error.clone())),
    ];
    for (name, value) in fields {
        output::line(format!("{name:15} {}", output::plain(&value)))?;
    }
    output::line("")
}
