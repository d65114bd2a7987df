//! The whole API: every route of the listener but the pages of the dashboard and the Durable Streams protocol (`durable`).

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::FromRef;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use lanekeeper_adapters::Environment;
use lanekeeper_engine::Probe;
use lanekeeper_telemetry::Metrics;
use serde_json::Value;

use super::a2a::{self, Inbox};
use super::a2a_agent::{self, Agents};
use super::documents::{self, Documents};
use super::events::{self, Desk};
use super::live::{self, Live, cors};
use super::openapi;
use super::openapi::operation::{Operation, get};
use super::operate::{self, Operators};
use super::problem::Problem;
use super::routes::Routes;
use super::sources::{self, Receiving};
use super::{acks, agents, health, inbound, interrupts, metrics, problem_type, replays, sessions};

/// What handlers share.
#[derive(Clone)]
pub struct Api {
    agents: Arc<Agents>,
    desk: Arc<Desk>,
    documents: Arc<Documents>,
    inbox: Arc<Inbox>,
    live: Arc<Live>,
    operators: Arc<Operators>,
    receiving: Arc<Receiving>,
    probe: Probe,
    metrics: Option<Metrics>,
}

macro_rules! parts {
    ($($field:ident: $part:ty;)*) => {$(
        impl FromRef<Api> for $part {
            fn from_ref(api: &Api) -> Self {
                api.$field.clone()
            }
        }
    )*};
}

parts! {
    agents: Arc<Agents>;
    desk: Arc<Desk>;
    documents: Arc<Documents>;
    inbox: Arc<Inbox>;
    live: Arc<Live>;
    operators: Arc<Operators>;
    receiving: Arc<Receiving>;
    probe: Probe;
    metrics: Option<Metrics>;
}

impl Api {
    /// Secrets are looked up in `environment`. `metrics`: those that `/metrics` shows, if any are collected.
    pub fn new(
        desk: Arc<Desk>,
        live: Arc<Live>,
        operators: Arc<Operators>,
        environment: Environment,
        probe: Probe,
        metrics: Option<Metrics>,
    ) -> Self {
        Self {
            agents: Arc::new(Agents::new(Arc::clone(&desk), Arc::clone(&live))),
            documents: Arc::new(Documents::new(Arc::clone(&desk))),
            inbox: Arc::new(Inbox::new(Arc::clone(&desk), environment.clone())),
            receiving: Arc::new(Receiving::new(Arc::clone(&desk), environment)),
            desk,
            live,
            operators,
            probe,
            metrics,
        }
    }
}

/// Those that live followers use from web pages of other origins.
fn open_to_pages() -> Routes<Api> {
    live::routes()
}

fn others() -> Routes<Api> {
    Routes::new()
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(events::routes())
        .merge(a2a::routes())
        .merge(a2a_agent::routes())
        .merge(acks::routes())
        .merge(agents::routes())
        .merge(documents::routes())
        .merge(inbound::routes())
        .merge(interrupts::routes())
        .merge(replays::routes())
        .merge(sessions::routes())
        .merge(sources::routes())
        .merge(operate::routes())
        .on(
            get("/openapi.json", "openapi", "This document").answers::<Value>(200, "OpenAPI 3.1"),
            show,
        )
}

/// All operations of the API.
pub fn operations() -> Vec<Operation> {
    let mut operations = others().operations;
    operations.extend(open_to_pages().operations);
    operations
}

/// All routes of the API.
pub fn router(api: Api) -> Router {
    let allow = from_fn_with_state(Arc::clone(&api.live), cors::allow);
    others()
        .router
        // Before the layer: it answers a preflight, and adds its headers to refusals too.
        .merge(
            open_to_pages()
                .router
                .method_not_allowed_fallback(not_so)
                .layer(allow),
        )
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .with_state(api)
}

async fn nothing_here() -> Problem {
    Problem::new(problem_type::NOT_FOUND, "there is nothing at this path")
        .hint("GET /openapi.json says what there is")
}

async fn not_so() -> Problem {
    let detail = "this path does not take this method: nothing was done";
    Problem::new(problem_type::METHOD_NOT_ALLOWED, detail)
        .hint("the header Allow names the methods that it takes")
}

async fn show() -> Response {
    static DOCUMENT: LazyLock<String> =
        LazyLock::new(|| openapi::document(&operations()).to_string());
    // It changes with the release only.
    let cached = (
        header::CACHE_CONTROL,
        HeaderValue::from_static("max-age=3600"),
    );
    let kind = (
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    (StatusCode::OK, [kind, cached], DOCUMENT.as_str()).into_response()
}
