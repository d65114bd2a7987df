//! What an action came to, told on the next page: in a cookie that lasts for a minute, signed with the visitor's key.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::forgery;
use crate::visitor::{Visitor, cookie};

const COOKIE: &str = "lanekeeper-notice";
/// The longest text; a browser keeps 4 KiB of a cookie.
const LONGEST: usize = 1_500;

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Whether it was done.
    pub(crate) done: bool,
    pub(crate) text: String,
}

impl Notice {
    pub(crate) fn done(text: impl Into<String>) -> Self {
        Self {
            done: true,
            text: text.into(),
        }
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self {
            done: false,
            text: text.into(),
        }
    }

    fn written(&self, key: &str) -> String {
        let mut text = self.text.as_str();
        if let Some((end, _)) = text.char_indices().find(|(at, _)| *at >= LONGEST) {
            text = &text[..end];
        }
        let said = format!("{}{text}", if self.done { '+' } else { '-' });
        let mac = forgery::sign(key, &said);
        format!("{mac}.{}", URL_SAFE_NO_PAD.encode(said))
    }

    fn read(key: &str, written: &str) -> Option<Self> {
        let (mac, said) = written.split_once('.')?;
        let said = String::from_utf8(URL_SAFE_NO_PAD.decode(said).ok()?).ok()?;
        if !forgery::is_signed(key, &said, mac) {
            return None;
        }
        let done = said.starts_with('+');
        let text = said.get(1..)?.to_owned();
        Some(Self { done, text })
    }

    /// What this visitor is to be told.
    pub(crate) fn of(visitor: &Visitor, headers: &HeaderMap) -> Option<Self> {
        Self::read(&visitor.key, cookie(headers, COOKIE)?)
    }

    /// Sends the visitor to a page of ours, where it is told.
    pub(crate) fn then(&self, visitor: &Visitor, path: &str) -> Response {
        let written = self.written(&visitor.key);
        let set = format!("{COOKIE}={written}; Path=/; Max-Age=60; HttpOnly; SameSite=Strict");
        let mut response = see_other(path);
        if let Ok(set) = HeaderValue::from_str(&set) {
            response.headers_mut().append(header::SET_COOKIE, set);
        }
        response
    }
}

/// Has been told.
pub(crate) fn forget(response: &mut Response) {
    let gone = HeaderValue::from_static(
        "lanekeeper-notice=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict",
    );
    response.headers_mut().append(header::SET_COOKIE, gone);
}

/// To a path of this server, and nowhere else: `//host` and `/\host` are other hosts to a browser.
pub(crate) fn see_other(path: &str) -> Response {
    let location = HeaderValue::from_str(own_path(path));
    let location = location.unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

/// The path where it is one of this server, else the first page.
pub(crate) fn own_path(path: &str) -> &str {
    let is_own = path.starts_with('/')
        && !path[1..].starts_with(['/', '\\'])
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && path.len() <= 4_096;
    if is_own { path } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_this_server_are_gone_to() {
        for own in ["/", "/lanes?subscription=a%20b", "/session?name=..%2F.."] {
            assert_eq!(own_path(own), own);
        }
        for other in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/\t/evil.example",
            "/a\r\nSet-Cookie: x",
            "/x\\y",
        ] {
            assert_eq!(own_path(other), "/", "{other:?}");
        }
    }

    #[test]
    fn a_notice_is_told_to_its_own_visitor_only_and_as_it_was_written() {
        let notice = Notice::done("seq 3 was skipped ✓");
        let written = notice.written("key");
        assert_eq!(Notice::read("key", &written), Some(notice.clone()));
        assert_eq!(Notice::read("other", &written), None);
        assert_eq!(Notice::read("key", "x.y"), None);
        let long = Notice::refused("ü".repeat(5_000)).written("key");
        assert!(long.len() < 4_000);
        assert!(Notice::read("key", &long).is_some_and(|notice| !notice.done));
    }
}
