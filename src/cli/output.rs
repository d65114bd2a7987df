//! The output of commands: text for people or JSON lines for scripts on standard output, and notes on standard error.

use std::borrow::Cow;
use std::io::{self, Write as _};

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

use super::failure::Failure;

/// The form of what a command prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Text,
    /// One JSON object per line, for scripts
    Json,
}

/// Flattened into the arguments of every command that prints data. The option is global, so it
/// may also stand before the command's name.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct OutputArgs {
    /// How data is printed
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORM")]
    pub output: Output,
}

/// Says something beside the data, such as progress, on standard error.
pub fn note(text: impl AsRef<str>) {
    // Where nobody listens there is nobody to tell; `eprintln!` would panic.
    let _ = writeln!(io::stderr(), "{}", text.as_ref());
}

/// Says once why a command failed.
pub(crate) fn report(failure: &Failure) {
    if let Some(text) = failure.text() {
        note(text);
    }
}

/// Prints one line of text.
pub fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    write(text.as_ref())
}

/// Prints one JSON object on a line of its own.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    write(&serde_json::to_string(value).map_err(Failure::failed)?)
}

/// Text from events and errors as a terminal may show it: control characters, which could command
/// the terminal, are written out.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        if char.is_control() {
            plain.extend(char.escape_default());
        } else {
            plain.push(char);
        }
    }
    Cow::Owned(plain)
}

/// At most `width` characters of a text, marked where it goes on.
pub fn short(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some(_) => {
            let kept: String = text.chars().take(width.saturating_sub(1)).collect();
            format!("{kept}…")
        }
        None => text.to_owned(),
    }
}

/// A span of time in its largest unit, as people say it: `45s`, `3m`, `2h`, `5d`.
pub fn age(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 0.95 => format!("{:.0}ms", s * 1e3),
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7_200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3_600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// An instant to the second.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What stands in a cell that has nothing to say.
pub fn or_dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
}

/// Prints rows under their headings, each column as wide as its widest cell.
pub fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> Result<(), Failure> {
    for row in layout(headings, rows) {
        write(&row)?;
    }
    Ok(())
}

fn layout<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    let headings = headings.map(str::to_owned);
    let all = || std::iter::once(&headings).chain(rows);
    let width = |column: usize| {
        all()
            .map(|row| plain(&row[column]).chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    all()
        .map(|row| {
            let cells = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{:width$}", plain(cell)));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect()
}

fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::reader_gone(),
        _ => Failure::failed(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["a".to_owned(), "é".to_owned()],
            ["long".to_owned(), String::new()],
        ];
        assert_eq!(layout(["KEY", "V"], &rows), ["KEY   V", "a     é", "long"]);
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\u{9b}c\n"), "a\\u{1b}[2Jb\\u{9b}c\\n");
        assert!(matches!(plain("Zoë …"), Cow::Borrowed(_)));
    }

    #[test]
    fn ages_are_said_in_their_largest_unit() {
        let said = [0.2, 45.4, 200.0, 7_300.0, 500_000.0].map(age);
        assert_eq!(said, ["200ms", "45s", "3m", "2h", "6d"]);
    }

    #[test]
    fn long_text_is_cut_by_characters() {
        assert_eq!(short("überlang", 5), "über…");
        assert_eq!(short("kurz", 4), "kurz");
    }
}
