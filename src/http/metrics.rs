//! `/metrics` for Prometheus, from the same instruments that OTLP exports.

use axum::extract::{FromRef, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use lanekeeper_telemetry::Metrics;

use super::openapi::operation::get;
use super::problem::Problem;
use super::problem_type;
use super::routes::{Routes, Shared};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The route.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Option<Metrics>: FromRef<S>,
{
    Routes::new().on(
        get("/metrics", "metrics", "Metrics for Prometheus")
            .answers_as::<String>(200, "Prometheus' text format", "text/plain")
            .answers_as::<String>(500, "They cannot be written", "text/plain")
            .problems(&[problem_type::NOT_FOUND]),
        text,
    )
}

async fn text(State(metrics): State<Option<Metrics>>) -> Response {
    let Some(metrics) = metrics else {
        let detail = "this process collects no metrics";
        return Problem::new(problem_type::NOT_FOUND, detail).into_response();
    };
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
