//! Prints an entry of the agent registry: a line for each known field.

use jiff::Timestamp;
use lanekeeper_postgres::inspect::RegistryEntry;

use crate::Failure;
use crate::output::{self, plain, short, time};

/// Columns of a text.
const WIDTH: usize = 100;

/// The turn in a cell: `running 3`.
pub(super) fn turn(entry: &RegistryEntry) -> String {
    format!("{} {}", entry.turn_state, entry.turn)
}

pub(super) fn print(entry: &RegistryEntry) -> Result<(), Failure> {
    for (name, value) in lines(entry) {
        if let Some(value) = value {
            output::line(format!("{name:<18}{}", plain(&value)))?;
        }
    }
    Ok(())
}

fn lines(entry: &RegistryEntry) -> [(&'static str, Option<String>); 14] {
    let transcript =
        entry
            .transcript_path
            .as_ref()
            .map(|path| match entry.transcript_from.as_deref() {
                Some("lookup") => format!("{path} (found by its name)"),
                _ => path.clone(),
            });
    let error = entry.last_error.as_ref().map(|error| {
        let code = entry.last_error_code.as_ref();
        code.filter(|code| *code != error)
            .map_or_else(|| error.clone(), |code| format!("{code}: {error}"))
    });
    [
        ("cli", entry.cli.clone()),
        ("native session", Some(entry.native_session_id.clone())),
        ("host", entry.host.clone()),
        ("folder", entry.cwd.clone()),
        ("model", entry.model.clone()),
        ("transcript", transcript),
        ("started", entry.started_at.map(time)),
        ("ended", entry.ended_at.map(time)),
        ("turn", Some(turn_line(entry))),
        (
            "last activity",
            Some(format!(
                "{} {}",
                time(entry.last_activity_at),
                entry.last_activity
            )),
        ),
        (
            "last prompt",
            dated(entry.last_prompt_at, entry.last_prompt.as_deref()),
        ),
        (
            "last notification",
            dated(
                entry.last_notification_at,
                entry.last_notification.as_deref(),
            ),
        ),
        ("last error", dated(entry.last_error_at, error.as_deref())),
        ("turn id", entry.turn_id.clone()),
    ]
}

fn turn_line(entry: &RegistryEntry) -> String {
    let mut line = turn(entry);
    if let Some(at) = entry.turn_started_at {
        line += &format!(", since {}", time(at));
    }
    if let (Some(at), Some(by)) = (entry.turn_ended_at, &entry.turn_ended_by) {
        line += &format!(", ended {} by {by}", time(at));
    }
    line
}

fn dated(at: Option<Timestamp>, text: Option<&str>) -> Option<String> {
    Some(format!("{} {}", time(at?), short(text?, WIDTH)))
}
