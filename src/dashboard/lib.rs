//! The dashboard: what is stuck, why, and what can be done about it, as web pages of a worker.
//!
//! ```text
//! request ─► guard ─► visitor ─► page ──► lease ─► inspect of the store ─► HTML
//!                        │
//!                        └─────► action ─► forgery ─► operate of the store ─► notice, and back to the page
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `guard` | security headers, time limits, and a task of its own for each request |
//! | `visitor` | who asks and what they may do: a sign-in's cookie, or a browser on a developer's machine |
//! | `sign_in` | signing in and out |
//! | `forgery` | refuses what another site sends in a visitor's name |
//! | `page`, `action` | one file for each page, and for each thing that can be acted on |
//! | `part` | what pages are made of |
//! | `figures` | what this worker delivered in the last minutes |
//!
//! Everything is rendered here; the script only renews parts of a page and asks before something is done. Pages load
//! nothing from elsewhere. Every read is bounded, by the statements of `inspect`.

mod action;
mod answer;
mod assets;
mod attempts;
pub mod config;
mod figures;
mod forgery;
mod form;
mod guard;
mod layout;
mod notice;
mod page;
mod part;
mod policy;
mod sign_in;
mod state;
mod trouble;
mod visitor;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

pub use figures::Figures;
pub use state::Dashboard;

/// The routes.
pub fn router(dashboard: Arc<Dashboard>) -> Router {
    let pages = Router::new()
        .route("/", get(page::overview::show))
        .route("/subscription", get(page::subscription::show))
        .route("/lanes", get(page::lanes::show))
        .route("/sessions", get(page::sessions::show))
        .route("/session", get(page::session::show))
        .route("/payload", get(page::payload::show))
        .route("/agents", get(page::agents::show))
        .route("/dead", get(page::dead::show))
        .route("/dead/review", get(page::dead_review::show))
        .route("/dead/letter", get(page::dead_letter::show))
        .route("/workers", get(page::workers::show))
        .route("/find", get(page::find::show))
        .route("/sign-in", get(sign_in::show).post(sign_in::sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/action/lane", post(action::lane::carry_out))
        .route("/action/session", post(action::session::carry_out))
        .route(
            "/action/subscription",
            post(action::subscription::carry_out),
        )
        .route("/action/dead", post(action::dead::carry_out))
        .layer(from_fn_with_state(Arc::clone(&dashboard), guard::page))
        .with_state(dashboard);
    pages.merge(assets::router())
}
