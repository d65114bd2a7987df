//! What operators do, one file for each thing that is acted on.
//!
//! An action says what it saw (the head of a lane), and is refused where that has changed. Whatever comes of it is told on
//! the page that the operator came from, and is on record in `operation` with the token's name.

pub(crate) mod dead;
pub(crate) mod lane;
pub(crate) mod session;
pub(crate) mod subscription;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, FromRequest, FromRequestParts as _, Request};
use axum::http::HeaderMap;
use axum::response::Response;
use lanekeeper_http::access::Peer;
use lanekeeper_postgres::{ErrorClass, StoreError, sqlstate};

use crate::forgery;
use crate::form::Form;
use crate::notice::{Notice, own_path};
use crate::state::Dashboard;
use crate::trouble::Trouble;
use crate::visitor::Visitor;

/// A form of a page of ours, sent by somebody who may read. What may be done with which stream is for the action to see.
pub(crate) struct Order {
    dashboard: Arc<Dashboard>,
    visitor: Visitor,
    form: Form,
}

impl FromRequest<Arc<Dashboard>> for Order {
    type Rejection = Trouble;

    async fn from_request(request: Request, state: &Arc<Dashboard>) -> Result<Self, Trouble> {
        let (mut parts, body): (_, Body) = request.into_parts();
        let peer = Extension::<Peer>::from_request_parts(&mut parts, state).await;
        let Extension(peer) = peer.map_err(|_| Trouble::forbidden("The client has no address."))?;
        let headers: &HeaderMap = &parts.headers;
        let visitor = Visitor::of(state, headers, peer).await?;
        let body = state.desk.small_body(visitor.token_id(), body).await?;
        let form = Form::of_body(&body);
        forgery::check(&visitor, headers, &form)?;
        Ok(Self {
            dashboard: Arc::clone(state),
            visitor,
            form,
        })
    }
}

impl Order {
    /// Back to the page, where the notice is told.
    fn tell(&self, notice: &Notice) -> Response {
        let back = own_path(self.form.raw("back").unwrap_or("/"));
        notice.then(&self.visitor, back)
    }

    /// What the action stands for on record.
    fn reason(&self) -> Result<String, Trouble> {
        Ok(self.visitor.reason(self.form.reason()?))
    }
}

/// What a statement's failure means for whoever asked for it; trouble where nothing can be said.
fn refused(error: StoreError) -> Result<Notice, Trouble> {
    match (error.sqlstate(), error.refusal()) {
        (Some(sqlstate::ANOTHER_HEAD), _) => Ok(Notice::refused(
            "The lane moved on meanwhile: the event that you saw is not its head any more. Nothing was changed.",
        )),
        (Some(sqlstate::LANE_BUSY), _) => Ok(Notice::refused(
            "The lane is being delivered and did not stop within 5 seconds. Nothing was changed; try again.",
        )),
        (_, Some(refusal)) => Ok(Notice::refused(format!(
            "Nothing was changed: {}. {}",
            refusal.message.trim_end_matches('.'),
            refusal.hint.unwrap_or_default()
        ))),
        _ if error.class() == ErrorClass::ConnectionLost => Ok(Notice::refused(
            "Postgres went away before it answered: it may or may not have been done. Look at the state below.",
        )),
        _ => Err(error.into()),
    }
}
