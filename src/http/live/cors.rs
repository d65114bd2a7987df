//! Lets web pages of the configured origins follow from a browser (CORS).
//!
//! Nothing here relies on cookies, so no answer allows credentials: a page has access by what it sends, a token or a signed
//! link. A WebSocket knows no CORS: its origin is checked here, too.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::Live;
use crate::problem::Problem;
use crate::problem_type;

const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// What pages of the configured origins may send to a route, and read of its answers.
pub struct Allowed {
    pub methods: HeaderValue,
    pub headers: HeaderValue,
    pub exposed: Option<HeaderValue>,
}

static FOLLOWING: Allowed = Allowed {
    methods: HeaderValue::from_static("GET"),
    headers: HeaderValue::from_static("authorization, last-event-id, cache-control"),
    exposed: None,
};

/// The origins whose pages may follow.
#[derive(Debug, Default)]
pub struct Origins {
    listed: Vec<String>,
}

impl Origins {
    pub fn new(listed: Vec<String>) -> Self {
        Self { listed }
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        self.listed
            .iter()
            .any(|listed| listed == "*" || listed.as_bytes() == origin.as_bytes())
    }
}

/// Whether the request is a page's own, or of no page: its origin is the host that it asks.
fn is_same_origin(headers: &HeaderMap, origin: &HeaderValue) -> bool {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let origin = origin.as_bytes();
    let of_origin = origin
        .strip_prefix(b"http://")
        .or_else(|| origin.strip_prefix(b"https://"));
    host.is_some() && host == of_origin
}

/// Answers preflights, and adds the headers by which a browser gives the answer to its page.
pub async fn allow(State(live): State<Arc<Live>>, request: Request, next: Next) -> Response {
    allow_for(&live, &FOLLOWING, request, next).await
}

/// As [`allow`], for a route that takes more.
pub async fn allow_for(live: &Live, allowed: &Allowed, request: Request, next: Next) -> Response {
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else {
        return next.run(request).await;
    };
    let is_allowed = live.origins.allows(&origin);
    let is_upgrade = request.headers().contains_key(header::UPGRADE);
    let mut response = if request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else if is_upgrade && !is_allowed && !is_same_origin(request.headers(), &origin) {
        let detail = "pages of this origin may not follow here: nothing was done";
        Problem::new(problem_type::FORBIDDEN, detail)
            .hint("add the origin to live.cors_origins")
            .into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if is_allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            allowed.methods.clone(),
        );
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            allowed.headers.clone(),
        );
        if let Some(exposed) = &allowed.exposed {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
        }
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_origins_and_the_hosts_own_pages_are_let_in() {
        let origins = Origins::new(vec!["https://app.example".to_owned()]);
        let of = HeaderValue::from_static;
        assert!(origins.allows(&of("https://app.example")));
        for other in ["https://app.example.evil", "http://app.example", "null", ""] {
            assert!(!origins.allows(&of(other)), "{other}");
        }
        assert!(!Origins::default().allows(&of("https://app.example")));
        assert!(Origins::new(vec!["*".to_owned()]).allows(&of("null")));
        let mut headers = HeaderMap::new();
        assert!(!is_same_origin(&headers, &of("null")));
        headers.insert(header::HOST, of("lane.example:8080"));
        assert!(is_same_origin(&headers, &of("http://lane.example:8080")));
        assert!(!is_same_origin(&headers, &of("http://lane.example")));
    }
}
