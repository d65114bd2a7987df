//! The pages, one file each.

pub(crate) mod agents;
pub(crate) mod dead;
pub(crate) mod dead_letter;
pub(crate) mod dead_review;
pub(crate) mod find;
pub(crate) mod lanes;
pub(crate) mod overview;
pub(crate) mod payload;
pub(crate) mod session;
mod session_table;
pub(crate) mod sessions;
pub(crate) mod subscription;
pub(crate) mod workers;

use std::sync::Arc;

use axum::extract::{Extension, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use lanekeeper_http::access::Peer;
use maud::Markup;

use crate::form::Form;
use crate::layout::Page;
use crate::state::Dashboard;
use crate::trouble::Trouble;
use crate::visitor::Visitor;

/// Rows on a page of a list.
const ROWS: i64 = 50;

/// A request for a page by somebody who may read.
pub(crate) struct Asked {
    pub(crate) dashboard: Arc<Dashboard>,
    pub(crate) visitor: Visitor,
    pub(crate) headers: HeaderMap,
    pub(crate) uri: Uri,
    pub(crate) query: Form,
}

impl FromRequestParts<Arc<Dashboard>> for Asked {
    type Rejection = Trouble;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<Dashboard>,
    ) -> Result<Self, Trouble> {
        let peer = Extension::<Peer>::from_request_parts(parts, state).await;
        let Extension(peer) = peer.map_err(|_| Trouble::forbidden("The client has no address."))?;
        let visitor = Visitor::of(state, &parts.headers, peer).await?;
        Ok(Self {
            dashboard: Arc::clone(state),
            visitor,
            headers: parts.headers.clone(),
            uri: parts.uri.clone(),
            query: Form::of_query(&parts.uri),
        })
    }
}

impl Asked {
    pub(crate) fn answer(&self, page: &Page<'_>, main: &Markup) -> Response {
        page.answer(&self.dashboard, &self.visitor, &self.headers, main)
    }

    /// The page's own address.
    pub(crate) fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", |path| path.as_str())
    }
}
