//! Addresses of pages. Names go into queries: as a part of a path, a browser would take `..` for a way up.

use maud::{Markup, html};

use super::format;
use crate::form::query;

pub(crate) fn session(stream: &str, name: &str) -> String {
    format!("/session?{}", query([("stream", stream), ("name", name)]))
}

pub(crate) fn subscription(name: &str) -> String {
    format!("/subscription?{}", query([("name", name)]))
}

pub(crate) fn payload(stream: &str, name: &str, seq: i64) -> String {
    let seq = seq.to_string();
    let pairs = [("stream", stream), ("name", name), ("seq", &seq)];
    format!("/payload?{}", query(pairs))
}

pub(crate) fn dead_letter(dead_id: i64) -> String {
    format!("/dead/letter?id={dead_id}")
}

/// A session, as a link.
pub(crate) fn to_session(stream: &str, name: &str) -> Markup {
    html! {
        a.session href=(session(stream, name)) title=(format::plain(name)) {
            span.stream { (stream) "/" } (format::short(name, 60))
        }
    }
}

/// A subscription, as a link.
pub(crate) fn to_subscription(name: &str) -> Markup {
    html! { a href=(subscription(name)) { (name) } }
}

/// The way to the next page of a list; nothing on the last one.
pub(crate) fn older(path: &str, pairs: &[(&str, &str)], text: &str) -> Markup {
    let query = query(pairs.iter().copied().filter(|(_, value)| !value.is_empty()));
    html! { nav.older aria-label="More" { a.button href={ (path) "?" (query) } rel="next" { (text) } } }
}
