//! Trouble as a page.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use maud::html;

use crate::layout;
use crate::sign_in::SignInFirst;
use crate::trouble::Trouble;

/// After how many seconds a page asks again without a script.
const AGAIN_S: u32 = 5;

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let (status, body) = match self {
            Self::SignInFirst {
                asked_by_other_site,
            } => {
                // `guard` makes the page of it, which knows where the visitor wanted to go.
                let mut response = StatusCode::UNAUTHORIZED.into_response();
                response.extensions_mut().insert(SignInFirst {
                    asked_by_other_site,
                });
                return response;
            }
            Self::PostgresAway => (
                StatusCode::SERVICE_UNAVAILABLE,
                layout::bare(
                    "Postgres does not answer",
                    Some(AGAIN_S),
                    html! {
                        h1 { "Postgres does not answer" }
                        p { "This worker cannot read the state at the moment. Events that are stored stay stored, and nothing was changed." }
                        p.muted { "This page asks again every " (AGAIN_S) " seconds and comes back by itself. "
                            "Beside the worker, " code { "lanekeeper doctor" } " says what is wrong." }
                    },
                ),
            ),
            Self::Told {
                status,
                title,
                detail,
                hint,
            } => (
                status,
                layout::bare(
                    title,
                    None,
                    html! {
                        h1 { (title) }
                        p { (detail) }
                        @if let Some(hint) = hint { p.muted { (hint) } }
                        p { a.button href="/" { "To the overview" } }
                    },
                ),
            ),
        };
        (status, Html(body.into_string())).into_response()
    }
}
