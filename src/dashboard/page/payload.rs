//! `/payload`: what one event carries, where `dashboard.payloads` allows it. A large one is shown in part.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect;
use maud::{Markup, html};

use super::Asked;
use crate::layout::Page;
use crate::part::{command, format, link};
use crate::trouble::Trouble;

/// Characters of a payload that are read and shown.
const CHARACTERS: i32 = 65_536;
/// Levels that are indented.
const DEEPEST: usize = 32;

pub(crate) async fn show(asked: Asked) -> Result<Response, Trouble> {
    let (stream, name) = (
        asked.query.required("stream")?,
        asked.query.required("name")?,
    );
    let seq = asked.query.required_number("seq")?;
    asked.visitor.require_stream(stream)?;
    allowed(&asked)?;
    let mut lease = Lease::take(&asked.dashboard.pool).await?;
    let reading = lease.begin().await?;
    let session_id = inspect::find_session(&reading, stream, name).await?;
    let found = inspect::excerpt(&reading, session_id, seq, CHARACTERS).await?;
    drop(reading);
    lease.done();
    let excerpt = found.ok_or_else(|| {
        Trouble::not_found(format!(
            "Seq {seq} is not in the log: it never was, or its day was dropped."
        ))
    })?;
    let from = seq.to_string();
    let whole = command::line(&["tail", stream, name, "--from", &from]);
    let main = html! {
        div.title {
            h1 { (format::plain(&excerpt.event_type)) }
            p.muted { "seq " (seq) " of " (link::to_session(stream, name)) ", " (format::at(excerpt.created_at)) " UTC" }
        }
        div #payload {
            (shown(&excerpt.payload, excerpt.size, &whole))
            @if let Some(headers) = &excerpt.headers { h3 { "Headers" } pre.payload tabindex="0" aria-label="Headers" { code { (format::plain(&pretty(headers))) } } }
        }
    };
    let page = Page {
        title: "Payload",
        place: "/sessions",
        renew_s: None,
    };
    Ok(asked.answer(&page, &main))
}

/// A payload, of which `text` is the beginning. `whole`: the command that prints all of it.
pub(super) fn shown(text: &str, size: i32, whole: &str) -> Markup {
    let is_cut = i64::from(size) > text.len() as i64;
    html! {
        pre.payload tabindex="0" aria-label="Payload" { code { (format::plain(&pretty(text))) } }
        @if is_cut {
            p.muted { "The first " (format::bytes(i32::try_from(text.len()).unwrap_or(i32::MAX))) " of " (format::bytes(size)) ". All of it:" }
            (command::shown(whole))
        }
    }
}

pub(super) fn allowed(asked: &Asked) -> Result<(), Trouble> {
    match asked.dashboard.config.payloads {
        true => Ok(()),
        false => Err(Trouble::forbidden(
            "Payloads are hidden here: dashboard.payloads is off.",
        )),
    }
}

/// JSON with line breaks; every character of it stays, and what is no JSON does no harm.
fn pretty(text: &str) -> String {
    let mut pretty = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let break_line = |pretty: &mut String, depth: usize| {
        pretty.push('\n');
        pretty.extend(std::iter::repeat_n("  ", depth.min(DEEPEST)));
    };
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        if in_string {
            pretty.push(char);
            in_string = is_escaped || char != '"';
            is_escaped = !is_escaped && char == '\\';
            continue;
        }
        match char {
            '{' | '[' => {
                pretty.push(char);
                if !matches!(chars.peek(), Some('}' | ']')) {
                    depth += 1;
                    break_line(&mut pretty, depth);
                }
            }
            '}' | ']' => {
                if !pretty.ends_with(['{', '[']) {
                    depth = depth.saturating_sub(1);
                    break_line(&mut pretty, depth);
                }
                pretty.push(char);
            }
            ',' => {
                pretty.push(',');
                break_line(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            char if char.is_whitespace() => {}
            char => {
                in_string = char == '"';
                pretty.push(char);
            }
        }
    }
    pretty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_gets_line_breaks_and_keeps_its_numbers_and_the_order_of_its_keys() {
        let text = r#"{"b":[1.10,{"a, [b]: \"c\"":null}],"a":{},"c":[]}"#;
        let expected = "{\n  \"b\": [\n    1.10,\n    {\n      \"a, [b]: \\\"c\\\"\": null\n    }\n  ],\n  \"a\": {},\n  \"c\": []\n}";
        assert_eq!(pretty(text), expected);
        assert_eq!(pretty("{\"cut\": \"tex"), "{\n  \"cut\": \"tex");
        assert!(pretty(&"[".repeat(65_536)).len() < 8 << 20);
    }
}
