//! What surrounds every page: its place among the requests, a time limit, a task of its own, and the headers that tell a
//! browser what a page may do.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::time::timeout;

use crate::policy;
use crate::sign_in::{self, SignInFirst};
use crate::state::Dashboard;
use crate::trouble::Trouble;

/// For a request to be answered: longer than an action takes (`action`).
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    request: Request,
    next: Next,
) -> Response {
    let asked = (request.method() == Method::GET).then(|| request.uri().clone());
    let place = match dashboard.desk.request() {
        Ok(place) => place,
        Err(problem) => return Trouble::from(problem).into_response(),
    };
    let answering = tokio::spawn(async move {
        let _held = place;
        timeout(ANSWER_WITHIN, next.run(request)).await
    });
    let mut response = match answering.await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => Trouble::PostgresAway.into_response(),
        Err(_) => Trouble::told(
            StatusCode::INTERNAL_SERVER_ERROR,
            "This page failed",
            "It is a defect of ours, and the worker's log says more. No event is concerned.",
        )
        .into_response(),
    };
    if let Some(first) = response.extensions().get::<SignInFirst>() {
        response = sign_in::ask(&dashboard, asked.as_ref(), *first, None);
    }
    policy::bound(response.headers_mut());
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}
