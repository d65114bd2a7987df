//! `/livez`, `/readyz`, `/startupz`: 200 with `ok`, or 503 with the reason.
//!
//! Liveness checks only that the worker's loops run: workers must not be restarted because the database is down.

use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use lanekeeper_engine::Probe;

use super::openapi::operation::get;
use super::routes::{Routes, Shared};

const TEXT: &str = "text/plain";

type Answer = (StatusCode, String);

/// The probes' routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Probe: FromRef<S>,
{
    let probe = |path, id, summary| {
        get(path, id, summary)
            .answers_as::<String>(200, "`ok`", TEXT)
            .answers_as::<String>(503, "The reason", TEXT)
    };
    Routes::new()
        .on(
            probe("/livez", "livez", "Whether the worker's loops run"),
            live,
        )
        .on(
            probe("/readyz", "readyz", "Whether the worker takes requests"),
            ready,
        )
        .on(
            probe("/startupz", "startupz", "Whether the worker has started"),
            started,
        )
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
