//! The stylesheet, the script and the icon: part of the program, and cached by browsers for as long as they stay the same.

use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};

use crate::policy;

const STYLE: &str = include_str!("assets/dashboard.css");
const SCRIPT: &str = include_str!("assets/dashboard.js");
const ICON: &str = include_str!("assets/icon.svg");

/// Changes with any of them, so that a page never meets those of another release.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let hash = Sha256::digest([STYLE, SCRIPT, ICON].concat());
    hash.iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect()
});

/// The routes: nobody has to sign in for them.
pub(crate) fn router() -> Router {
    Router::new()
        .route(
            "/assets/dashboard.css",
            get(|| asset("text/css; charset=utf-8", STYLE)),
        )
        .route(
            "/assets/dashboard.js",
            get(|| asset("text/javascript; charset=utf-8", SCRIPT)),
        )
        .route("/assets/icon.svg", get(|| asset("image/svg+xml", ICON)))
}

async fn asset(kind: &'static str, text: &'static str) -> Response {
    let cached = HeaderValue::from_static("public, max-age=31536000, immutable");
    let kind = HeaderValue::from_static(kind);
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, cached),
    ];
    let mut response = (headers, text).into_response();
    policy::bound(response.headers_mut());
    response
}
