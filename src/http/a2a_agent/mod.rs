//! `/v1/agents/{stream}/a2a`: an agent behind a queue, for callers who speak A2A 1.0 over JSON-RPC (docs/a2a.md).
//!
//! A message becomes an event of the stream, with its context as the session. The task that answers it is that event: its id
//! names the message, and its state is what the stream's subscriptions made of it (`task`). The log is the only memory of
//! tasks, so that every worker answers alike, and a call that is repeated after a crash finds what the first one appended.
//!
//! | method | scope |
//! |---|---|
//! | `SendMessage`, `SendStreamingMessage`, `CancelTask` | `produce` |
//! | `GetTask`, `SubscribeToTask` | `read` |
//!
//! A sender is an access token. It finds the tasks of its own messages, and no others: they are looked for among its own
//! dedupe keys.
//!
//! What is wrong with a call is an error of JSON-RPC (`rpc`). What keeps the worker from judging it (access, limits, Postgres)
//! is a problem, as everywhere.

mod caller;
mod card;
mod message;
mod rpc;
mod stream;
mod task;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, FromRef, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use deadpool_postgres::Pool;
use lanekeeper_core::subscription::agent::AgentDefinition;
use lanekeeper_postgres::a2a_agent;
use lanekeeper_postgres::token::Scope;
use serde_json::{Map, Value};

use self::caller::{Caller, Refused};
use self::rpc::{Call, Fault, Method};
use super::access::Peer;
use super::cached::{self, ByName, Cached, newly_refused};
use super::connections::ConnectionPermit;
use super::events::{Desk, HeldBody, trace_of};
use super::live::Live;
use super::openapi::operation::{get, post};
use super::problem::Problem;
use super::problem_type;
use super::routes::{Routes, Shared};

const PATH: &str = "/v1/agents/{stream}/a2a";
const CARD: &str = "/v1/agents/{stream}/a2a/.well-known/agent-card.json";
/// How long what was read of the agents counts.
const BELIEVED_FOR: Duration = Duration::from_secs(2);

/// The agents that streams are.
pub struct Agents {
    desk: Arc<Desk>,
    live: Arc<Live>,
    known: Arc<Cached<ByName<AgentDefinition>>>,
}

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Agents>: FromRef<S>,
{
    Routes::new()
        .on(
            post(PATH, "call_agent", "Call an agent that is behind a queue")
                .details(
                    "A request of JSON-RPC 2.0 with a method of A2A 1.0: SendMessage, SendStreamingMessage and CancelTask need \
                     the scope produce, GetTask and SubscribeToTask the scope read. The answer is one of JSON-RPC, or \
                     server-sent events with such answers. docs/a2a.md says what becomes of a message.",
                )
                .scopes(&[Scope::Produce])
                .header("A2A-Version", "1.0")
                .header("traceparent", "W3C Trace Context.")
                .header("tracestate", "Beside `traceparent`.")
                .body::<Map<String, Value>>()
                .answers::<rpc::Answered>(200, "The answer of JSON-RPC")
                .answers_as::<String>(200, "", "text/event-stream")
                .problems(&[problem_type::NOT_FOUND, problem_type::PAYLOAD_TOO_LARGE]),
            call,
        )
        .on(
            get(CARD, "agent_card", "The card of an agent that is behind a queue")
                .proof("Needs no access token: the card says how the agent is called.")
                .answers::<Map<String, Value>>(200, "An agent card of A2A 1.0")
                .problems(&[problem_type::NOT_FOUND]),
            show_card,
        )
}

async fn show_card(
    State(agents): State<Arc<Agents>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(stream) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let agent = agents.find(&stream).await?;
    Ok(card::answer(&agent, &stream))
}

async fn call(
    State(agents): State<Arc<Agents>>,
    path: Result<Path<String>, PathRejection>,
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let Path(stream) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let access = &agents.desk.access;
    let scopes = [Scope::Produce, Scope::Read];
    let grant = access.admit_any(&headers, peer, &scopes).await?;
    let agent = agents.find(&stream).await?;
    let token_id = grant.as_ref().map(|grant| grant.token_id);
    let HeldBody { bytes, room } = agents.desk.body_of_append(token_id, body).await?;
    let call = match Call::read(&headers, &bytes) {
        Ok(call) => call,
        Err((id, fault)) => return Ok(fault.answer(&id)),
    };
    let id = call.id.to_owned();
    let caller = Arc::new(Caller {
        agents: Arc::clone(&agents),
        agent,
        stream,
        grant,
        trace: trace_of(&headers),
    });
    let answered = match call.method {
        Method::SendMessage | Method::SendStreamingMessage => {
            let is_streaming = call.method == Method::SendStreamingMessage;
            let message = match message::Message::read(call.params) {
                Ok(message) => message,
                Err(fault) => return Ok(fault.answer(&id)),
            };
            drop(bytes);
            caller
                .judge_session(&headers, peer, &caller.context(&message))
                .await?;
            let following = is_streaming.then(|| stream::follow(&permit)).transpose()?;
            caller.send(&id, message, room, following).await
        }
        Method::GetTask => {
            caller.judge(&headers, peer, Scope::Read).await?;
            caller.get(&id, call.params).await
        }
        Method::CancelTask => {
            caller.judge(&headers, peer, Scope::Produce).await?;
            caller.cancel(&id, call.params).await
        }
        Method::SubscribeToTask => {
            caller.judge(&headers, peer, Scope::Read).await?;
            let following = stream::follow(&permit)?;
            caller.subscribe(&id, call.params, following).await
        }
    };
    match answered {
        Ok(answer) => Ok(answer),
        Err(Refused::Fault(fault)) => Ok(fault.answer(&id)),
        Err(Refused::Problem(problem)) => Err(problem),
    }
}

impl Agents {
    pub fn new(desk: Arc<Desk>, live: Arc<Live>) -> Self {
        Self {
            desk,
            live,
            known: Cached::new(BELIEVED_FOR),
        }
    }

    /// The agent that a stream is. No name is remembered that somebody asks for, and none costs a statement.
    async fn find(&self, stream: &str) -> Result<Arc<AgentDefinition>, Problem> {
        let pool = self.desk.pool.clone();
        let known = self
            .known
            .get(async move |before| load(&pool, before.as_deref()).await)
            .await?;
        match known.get(stream) {
            Some(Ok(agent)) => Ok(Arc::clone(agent)),
            Some(Err(_)) => Err(Problem::later(
                problem_type::UNAVAILABLE,
                "this worker does not understand what the stream is as an agent; its log says why: nothing was done",
                30,
            )),
            None => {
                let stream = Problem::excerpt(stream);
                let detail =
                    format!("stream {stream:?} is no agent that speaks A2A: nothing was done");
                Err(Problem::new(problem_type::NOT_FOUND, detail)
                    .hint("[stream.NAME.a2a] of the file for `lanekeeper apply` makes it one"))
            }
        }
    }
}

async fn load(
    pool: &Pool,
    before: Option<&ByName<AgentDefinition>>,
) -> Result<ByName<AgentDefinition>, Problem> {
    let agents = cached::ask(pool, async |client| a2a_agent::agents(client).await).await?;
    let known = agents
        .into_iter()
        .map(|(stream, agent)| (stream, agent.map(Arc::new)))
        .collect();
    for (stream, reason) in newly_refused(before, &known) {
        tracing::warn!(stream, reason, "an agent cannot be called at this worker");
    }
    Ok(known)
}

/// The parameters of a method that is about one task.
#[derive(serde::Deserialize)]
struct OfTask {
    id: String,
}

impl OfTask {
    fn read(params: Option<&serde_json::value::RawValue>) -> Result<Self, Fault> {
        rpc::params(params)
    }
}
