//! The pages of docs/reference, generated from the code: each test renders one page and compares it with the file.
//!
//! `make docs` sets `UPDATE_DOCS=1`; then the tests write the files.

mod commands;
mod errors;
mod http;
mod metrics;
mod settings;
mod sql;

use std::fmt::Write as _;

use crate::document::repository;

/// What every page begins with.
fn page(title: &str, about: &str) -> String {
    format!("<!-- Made from the code by `make docs`: do not edit. -->\n\n# {title}\n\n{about}\n")
}

/// A table of Markdown, with an empty line before it.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut text = format!("\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in rows {
        // A bar would end the cell, in code too.
        let cells = row.map(|cell| cell.replace('|', "\\|"));
        writeln!(text, "| {} |", cells.join(" | ")).unwrap();
    }
    text
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Compares a page with its file, or writes the file.
fn keep(name: &str, text: &str) {
    let path = repository(&format!("docs/reference/{name}.md"));
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept != text {
        let line = kept
            .lines()
            .zip(text.lines())
            .position(|(kept, made)| kept != made)
            .unwrap_or_else(|| kept.lines().count().min(text.lines().count()));
        panic!(
            "docs/reference/{name}.md is not what the code says from line {} on:\n  file: {}\n  code: {}\nrun `make docs`",
            line + 1,
            kept.lines().nth(line).unwrap_or_default(),
            text.lines().nth(line).unwrap_or_default(),
        );
    }
}
