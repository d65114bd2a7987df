//! `If-Match` and `If-None-Match`: what a request expects of the document that it meets.

use axum::http::{HeaderMap, HeaderName, header};
use lanekeeper_postgres::document::Expect;

use super::super::problem::Problem;
use super::super::problem_type;

/// What a change expects.
///
/// # Errors
/// Both headers at once, or something in them that no answer gave: a request whose condition is not understood must not
/// be carried out.
pub fn expected(headers: &HeaderMap) -> Result<Expect, Problem> {
    let (matching, none) = (
        one(headers, header::IF_MATCH)?,
        one(headers, header::IF_NONE_MATCH)?,
    );
    match (matching, none) {
        (None, None) => Ok(Expect::Anything),
        (Some("*"), None) => Ok(Expect::Present),
        (None, Some("*")) => Ok(Expect::Absent),
        (Some(tag), None) => version(tag)
            .map(Expect::Version)
            .ok_or_else(|| refused("If-Match takes one ETag of this document, as \"7\", or *")),
        (None, Some(_)) => Err(refused("If-None-Match of a change takes * alone")),
        (Some(_), Some(_)) => Err(refused("If-Match and If-None-Match exclude each other")),
    }
}

/// Whether a reader has this version already.
pub fn has_version(headers: &HeaderMap, there: i64) -> bool {
    let mut tags = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|tags| tags.to_str().ok())
        .flat_map(|tags| tags.split(','))
        .map(str::trim);
    // A weak comparison: a proxy that compressed the answer made its tag weak.
    tags.any(|tag| tag == "*" || version(tag.strip_prefix("W/").unwrap_or(tag)) == Some(there))
}

/// A header that may come once.
fn one(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(&name).iter();
    let (first, second) = (values.next(), values.next());
    match (first, second) {
        (None, _) => Ok(None),
        (Some(value), None) => value
            .to_str()
            .map(|value| Some(value.trim()))
            .map_err(|_| refused("a condition is not text")),
        (Some(_), Some(_)) => Err(refused("a condition is given twice")),
    }
}

/// The version that a strong tag names.
fn version(tag: &str) -> Option<i64> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|version| *version > 0)
}

fn refused(why: &str) -> Problem {
    let detail = format!("{why}: nothing was done");
    Problem::new(problem_type::INVALID, detail)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(given: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_condition_is_understood_or_refused_and_never_passed_over() {
        for (given, expect) in [
            (&[][..], Expect::Anything),
            (&[("if-match", "*")], Expect::Present),
            (&[("if-none-match", "*")], Expect::Absent),
            (&[("if-match", "\"7\"")], Expect::Version(7)),
        ] {
            assert_eq!(expected(&headers(given)).ok(), Some(expect), "{given:?}");
        }
        for tag in [
            "7",
            "W/\"7\"",
            "\"0\"",
            "\"-1\"",
            "\"7\", \"8\"",
            "\"x\"",
            "\"\"",
            "",
            "\"+7\"",
        ] {
            assert!(expected(&headers(&[("if-match", tag)])).is_err(), "{tag}");
        }
        for given in [
            &[("if-none-match", "\"7\"")][..],
            &[("if-match", "\"7\""), ("if-none-match", "*")],
            &[("if-match", "\"7\""), ("if-match", "\"8\"")],
        ] {
            assert!(expected(&headers(given)).is_err(), "{given:?}");
        }
    }

    #[test]
    fn a_reader_that_has_the_version_is_recognised_by_any_of_its_tags() {
        let has = |tags| has_version(&headers(&[("if-none-match", tags)]), 7);
        assert!(has("\"7\"") && has("W/\"7\"") && has("*") && has("\"3\", \"7\""));
        assert!(!has("\"3\"") && !has("7") && !has(""));
    }
}
