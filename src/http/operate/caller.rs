//! Who sends a request of an operator, and what the token reaches.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, FromRef, FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use lanekeeper_postgres::token::{Grant, Scope};
use lanekeeper_postgres::{StoreError, inspect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tokio_postgres::GenericClient;

use super::Operators;
use crate::access::{Peer, forbidden, reason_with_name};
use crate::events::json;
use crate::lease::Lease;
use crate::problem::Problem;
use crate::request_limits::RequestPermit;
use crate::{object, problem_type};

/// For a request to be answered: longer than actions on many lanes take (`operate_many`).
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// Somebody with the scope. What the token reaches is for the handler to ask.
pub(super) struct Caller {
    pub(super) operators: Arc<Operators>,
    grant: Option<Arc<Grant>>,
    scope: Scope,
    /// Among the requests that the server takes.
    _place: RequestPermit,
}

/// Somebody who may read.
pub(super) struct Reader(pub(super) Caller);

/// Somebody who may act, and what is to be done. Without a body it is what is usual.
pub(super) struct Order<T>(pub(super) Caller, pub(super) T);

impl<S: Send + Sync> FromRequestParts<S> for Reader
where
    Arc<Operators>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let operators = Arc::<Operators>::from_ref(state);
        let grant = judged(parts, &operators, Scope::Read).await?;
        Caller::new(operators, grant, Scope::Read).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for Order<T>
where
    Arc<Operators>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let operators = Arc::<Operators>::from_ref(state);
        let grant = judged(&mut parts, &operators, Scope::Operate).await?;
        let token_id = grant.as_ref().map(|grant| grant.token_id);
        let body = operators.desk.small_body(token_id, body).await?;
        let order = match body.is_empty() {
            true => T::default(),
            false => object::read(&body).map_err(|error| unreadable(&error))?,
        };
        Ok(Self(Caller::new(operators, grant, Scope::Operate)?, order))
    }
}

async fn judged(
    parts: &mut Parts,
    operators: &Operators,
    scope: Scope,
) -> Result<Option<Arc<Grant>>, Problem> {
    let peer = Extension::<Peer>::from_request_parts(parts, &()).await;
    let Extension(peer) = peer.expect("the listener says where each request comes from");
    let access = &operators.desk.access;
    access.judge_holder(&parts.headers, peer, scope).await
}

/// The request is not of the form that is expected.
pub(super) fn unreadable(error: &dyn std::fmt::Display) -> Problem {
    let error = Problem::excerpt(&error.to_string());
    let detail = format!("the request is not what is expected ({error}): nothing was done");
    Problem::new(problem_type::INVALID, detail).hint("GET /openapi.json says what it takes")
}

/// 200 with a JSON body.
pub(super) fn answer(body: &impl Serialize) -> Response {
    let body = serde_json::to_vec(body).expect("texts and numbers always serialise");
    json(StatusCode::OK, body)
}

impl Caller {
    fn new(
        operators: Arc<Operators>,
        grant: Option<Arc<Grant>>,
        scope: Scope,
    ) -> Result<Self, Problem> {
        Ok(Self {
            _place: operators.desk.request()?,
            operators,
            grant,
            scope,
        })
    }

    /// Carries a request out in a task of its own: a client that leaves must not leave its statement behind, waiting at
    /// the server.
    pub(super) async fn carry_out<F>(
        self,
        work: impl FnOnce(Self) -> F,
    ) -> Result<Response, Problem>
    where
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let reads = self.scope == Scope::Read;
        let working = tokio::spawn(timeout(ANSWER_WITHIN, work(self)));
        match working.await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) if reads => Err(Problem::away()),
            Ok(Err(_)) => Err(Problem::unknown_action()),
            Err(_) => Err(Problem::failed()),
        }
    }

    pub(super) async fn lease(&self) -> Result<Lease, Problem> {
        Lease::take(&self.operators.pool).await
    }

    /// A reason for the record, with who gave it.
    pub(super) fn reason(&self, reason: Option<&str>) -> String {
        reason_with_name(self.grant.as_deref(), reason)
    }

    /// Whether the token is for a stream.
    pub(super) fn reaches(&self, stream: &str) -> bool {
        self.grant
            .as_ref()
            .is_none_or(|grant| grant.reaches(stream))
    }

    /// Whether the token is for a session.
    pub(super) fn reaches_session(&self, stream: &str, session: &str) -> bool {
        self.reaches(stream)
            && self
                .grant
                .as_ref()
                .is_none_or(|grant| grant.reaches_session(session))
    }

    /// Refuses a token that is not for this session.
    pub(super) fn require_session(&self, stream: &str, session: &str) -> Result<(), Problem> {
        match self.reaches_session(stream, session) {
            true => Ok(()),
            false => {
                let session = Problem::excerpt(session);
                Err(self.refused(&format!("session {session:?} of stream {stream:?}")))
            }
        }
    }

    /// Refuses a token that is not for this stream.
    pub(super) fn require_stream(&self, stream: &str) -> Result<(), Problem> {
        match self.reaches(stream) {
            true => Ok(()),
            false => Err(self.refused(&format!("stream {:?}", Problem::excerpt(stream)))),
        }
    }

    /// Refuses a token that is for some sessions only: what is asked concerns all.
    pub(super) fn require_all_sessions(&self) -> Result<(), Problem> {
        match &self.grant {
            Some(grant) if !grant.reaches_all_sessions() => {
                Err(self.refused("anything but its sessions"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a token that is for some streams only: what is asked belongs to none.
    pub(super) fn require_everything(&self) -> Result<(), Problem> {
        match &self.grant {
            Some(grant) if grant.streams().is_some() || !grant.reaches_all_sessions() => {
                Err(self.refused("what belongs to no stream"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn refused(&self, on: &str) -> Problem {
        match &self.grant {
            Some(grant) => forbidden(grant, self.scope, on),
            None => Problem::failed(),
        }
    }

    /// The streams that the token is for, by id; `None`: all.
    pub(super) async fn stream_ids(
        &self,
        client: &impl GenericClient,
    ) -> Result<Option<Vec<i32>>, StoreError> {
        let streams = self.grant.as_ref().and_then(|grant| grant.streams());
        match streams {
            // A token may be made before its stream.
            Some(streams) => inspect::find_streams(client, streams).await.map(Some),
            None => Ok(None),
        }
    }
}
