//! `/metrics` for Prometheus, from the same instruments that OTLP exports.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lanekeeper_telemetry::Metrics;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The route.
pub fn router(metrics: Metrics) -> Router {
    Router::new()
        .route("/metrics", get(text))
        .with_state(metrics)
}

async fn text(State(metrics): State<Metrics>) -> Response {
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT)], text).into_response(),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the metrics cannot be written"
            );
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the metrics cannot be written; see the worker's log\n",
            )
                .into_response()
        }
    }
}
