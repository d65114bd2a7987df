//! What commands print: text for people or JSON lines for scripts, on standard output, and what is
//! said beside it, on standard error.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use super::Failure;

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

/// Prints one line of text.
pub fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    write(text.as_ref())
}

/// Prints one JSON object on a line of its own.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    write(&serde_json::to_string(value).map_err(Failure::failed)?)
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
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    all()
        .map(|row| {
            let cells = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"));
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
}
