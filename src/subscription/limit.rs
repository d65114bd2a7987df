//! Reads a subscription's `limit`: one, or a list of them.

use lanekeeper_core::bucket::Rate;
use lanekeeper_core::subscription::limit::LIMIT;
use lanekeeper_core::subscription::{Limit, Problem};
use toml::de::DeValue;

use super::section::Section;
use super::value;

const MOST_LIMITS: usize = 8;
const LONGEST_KEY: usize = 200;

/// Takes the limits out of a section, one or a list of them, written `limit = …` or `[[section.limit]]`.
pub(super) fn take(section: &mut Section<'_>) -> Vec<Limit> {
    let Some(value) = section.remove(LIMIT) else {
        return Vec::new();
    };
    let path = format!("{}.{LIMIT}", section.path);
    let (limits, mut problems) = read(section.text, &path, value);
    section.problems.append(&mut problems);
    limits
}

/// Reads one limit, or a list of them.
fn read<'t>(
    text: &'t str,
    path: &str,
    value: &'t toml::Spanned<DeValue<'t>>,
) -> (Vec<Limit>, Vec<Problem>) {
    let mut limits = Vec::new();
    let mut problems = Vec::new();
    let mut one = |path: String, offset: usize, value: &'t DeValue<'t>| {
        let DeValue::Table(table) = value else {
            let mut section = empty(text, path, offset);
            section.refuse_whole("must be a table, such as { rate = \"30/s\" }, or a list of them");
            problems.append(&mut section.problems);
            return;
        };
        let mut section = Section::new(text, path, offset, table);
        limits.extend(limit(&mut section));
        problems.extend(section.finish());
    };
    let offset = value.span().start;
    match value.get_ref() {
        DeValue::Array(entries) if entries.is_empty() || entries.len() > MOST_LIMITS => {
            let mut section = empty(text, path.to_owned(), offset);
            section.refuse_whole(format!("must have between 1 and {MOST_LIMITS} limits"));
            problems.append(&mut section.problems);
        }
        DeValue::Array(entries) => {
            for (i, entry) in entries.iter().enumerate() {
                one(format!("{path}[{i}]"), entry.span().start, entry.get_ref());
            }
        }
        single => one(path.to_owned(), offset, single),
    }
    (limits, problems)
}

fn empty(text: &str, path: String, offset: usize) -> Section<'_> {
    Section::without_entries(text, path, offset)
}

fn limit(section: &mut Section<'_>) -> Option<Limit> {
    let rate = section.require("rate", |value| {
        value::text(value)?
            .parse::<Rate>()
            .map_err(|error| error.to_string())
    });
    let burst = section.take("burst", value::whole(1..=100_000));
    let key = section.take("key", key);
    Some(Limit {
        rate: rate?,
        burst: burst.unwrap_or(1),
        key,
    })
}

fn key(value: &DeValue<'_>) -> Result<String, String> {
    let key = value::text(value)?;
    if key.len() > LONGEST_KEY || key.chars().any(char::is_control) {
        return Err(format!("must be a name of at most {LONGEST_KEY} bytes"));
    }
    Ok(key)
}
