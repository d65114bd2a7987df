//! `/livez`, `/readyz`, `/startupz`: 200 with `ok`, or 503 with the reason.
//!
//! Liveness checks only that the worker's loops run: workers must not be restarted because the database is down.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use lanekeeper_engine::Probe;

type Answer = (StatusCode, String);

/// The probes' routes.
pub fn router(probe: Probe) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/startupz", get(started))
        .with_state(probe)
}

async fn live(State(probe): State<Probe>) -> Answer {
    answer(probe.is_live(), || "the claim loops do not turn".to_owned())
}

async fn ready(State(probe): State<Probe>) -> Answer {
    match probe.is_ready() {
        Ok(()) => answer(true, String::new),
        Err(reason) => answer(false, || reason.to_string()),
    }
}

async fn started(State(probe): State<Probe>) -> Answer {
    answer(probe.has_started(), || {
        "Postgres has not answered yet".to_owned()
    })
}

fn answer(good: bool, reason: impl FnOnce() -> String) -> Answer {
    if good {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, reason() + "\n")
    }
}
