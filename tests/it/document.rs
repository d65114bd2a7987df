//! Reads the repository's documents for tests.

use std::path::PathBuf;

/// A path of the repository.
pub fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The text below a `## ` heading, up to the next one.
pub fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let start = format!("\n## {heading}\n");
    let (_, rest) = text
        .split_once(start.as_str())
        .unwrap_or_else(|| panic!("there is no section {heading:?}"));
    rest.split_once("\n## ")
        .map_or(rest, |(section, _)| section)
}

/// The fenced blocks of a language, in order.
pub fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let open = format!("\n```{language}\n");
    text.split(open.as_str())
        .skip(1)
        .map(|rest| {
            rest.split_once("\n```")
                .expect("a block that is opened is closed")
                .0
        })
        .collect()
}

/// The cells of each table row, without headings.
pub fn rows(text: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    let mut in_body = false;
    for line in text.lines() {
        let Some(inner) = line
            .strip_prefix("| ")
            .and_then(|line| line.strip_suffix('|'))
        else {
            in_body = line.starts_with("|---");
            continue;
        };
        if in_body {
            rows.push(inner.split('|').map(str::trim).collect());
        }
    }
    rows
}
