//! The events of a request: in Lanekeeper's own form, or CloudEvents.

use axum::http::HeaderMap;
use lanekeeper_core::trace::TraceContext;
use lanekeeper_postgres::append::NewEvent;

use crate::body::Body;
use crate::cloudevents::{CloudEvents, Mode};
use crate::problem::Problem;

/// The events of a request, as it carries them.
pub(super) enum Sent<'a> {
    Own(Body<'a>),
    CloudEvents(CloudEvents<'a>),
}

impl<'a> Sent<'a> {
    /// Reads a request. `trace` is for the events that bring none.
    pub(super) fn read(
        cloudevents: Option<Mode>,
        headers: &HeaderMap,
        body: &'a [u8],
        session: &str,
        trace: Option<&TraceContext>,
    ) -> Result<Self, Problem> {
        match cloudevents {
            None => Body::read(body, session, trace).map(Self::Own),
            Some(mode) => CloudEvents::read(mode, headers, body, trace).map(Self::CloudEvents),
        }
    }

    /// In their order.
    pub(super) fn events<'b>(&'b self, session: &'b str) -> Vec<NewEvent<'b>> {
        match self {
            Self::Own(body) => body.events(session),
            Self::CloudEvents(all) => all.events(session),
        }
    }

    pub(super) fn is_array(&self) -> bool {
        match self {
            Self::Own(body) => body.is_array,
            Self::CloudEvents(all) => all.is_array,
        }
    }
}
