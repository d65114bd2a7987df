//! The headers of answers.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use lanekeeper_postgres::durable::State;

use super::offset::{Offset, cursor};

const TRUE: HeaderValue = HeaderValue::from_static("true");
pub const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// What lies before the end never changes; whoever reads it had to show a token.
const PAST: HeaderValue =
    HeaderValue::from_static("private, max-age=60, stale-while-revalidate=300");
/// The end may: its entity tag tells.
const TAIL: HeaderValue = HeaderValue::from_static("private, no-cache");

/// An answer of the protocol.
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

impl Answer {
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            body: Body::empty(),
        }
    }

    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// A header of our own making, or one that came in a header.
    pub fn with(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::try_from(value.as_ref()) {
            self.headers.insert(name, value);
        }
        self
    }

    pub fn next_offset(self, seq: i64) -> Self {
        self.with("stream-next-offset", Offset(seq).to_string())
    }

    pub fn closed(mut self, is_closed: bool) -> Self {
        if is_closed {
            self.headers.insert("stream-closed", TRUE);
        }
        self
    }

    pub fn up_to_date(mut self, is_up_to_date: bool) -> Self {
        if is_up_to_date {
            self.headers.insert("stream-up-to-date", TRUE);
        }
        let caching = if is_up_to_date { TAIL } else { PAST };
        self.headers.insert(header::CACHE_CONTROL, caching);
        self
    }

    pub fn not_stored(mut self) -> Self {
        self.headers.insert(header::CACHE_CONTROL, NO_STORE);
        self
    }

    /// By which a cache tells this wait from the one before.
    pub fn cursor(self, given: Option<&str>) -> Self {
        self.with("stream-cursor", cursor(given).to_string())
    }

    pub fn done(self) -> Response {
        let mut response = (self.status, self.body).into_response();
        // One that axum put there is replaced.
        response.headers_mut().remove(header::CONTENT_TYPE);
        response.headers_mut().extend(self.headers);
        response
    }
}

/// The entity tag of what lies between two offsets.
pub fn etag(state: &State, from: i64, to: i64, is_closed: bool) -> String {
    let closed = if is_closed { ":c" } else { "" };
    format!("\"{}:{from}:{to}{closed}\"", state.session_id)
}

/// Whether the client has what the tag stands for.
pub fn has(headers: &HeaderMap, etag: &str) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_what_one_of_its_tags_names() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static(value));
            has(&headers, "\"1:0:2\"")
        };
        assert!(of("\"1:0:2\"") && of("\"x\", W/\"1:0:2\"") && of("*"));
        assert!(!of("\"1:0:2:c\"") && !of("1:0:2") && !of(""));
        assert!(!has(&HeaderMap::new(), "\"1:0:2\""));
    }
}
