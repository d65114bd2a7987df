//! What a caller asks of an agent: sends, looks, cancels.
//!
//! A call that waits holds neither a place of a request nor a connection: it looks at growing intervals. Where as many wait as
//! requests are served at once, a further one is answered at once.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use deadpool_postgres::Object;
use lanekeeper_core::a2a::TaskState;
use lanekeeper_core::frame::Kind;
use lanekeeper_core::subscription::agent::{AgentDefinition, CompleteOn};
use lanekeeper_core::trace::TraceContext;
use lanekeeper_postgres::a2a_agent::{Located, fates, locate};
use lanekeeper_postgres::append::{AppendError, Fate, NewEvent};
use lanekeeper_postgres::appender::AppenderError;
use lanekeeper_postgres::interrupt::{self, Cancel, Cancelled};
use lanekeeper_postgres::response::{expect_response, find_response};
use lanekeeper_postgres::sqlstate;
use lanekeeper_postgres::token::{Grant, Scope};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::message::{Message, key_of_task};
use super::rpc::{self, Fault};
use super::task::{Answer, Task};
use super::{Agents, OfTask, stream};
use crate::access::{Peer, Reach};
use crate::connections::Following;
use crate::events::json as answer_json;
use crate::problem::Problem;
use crate::problem_type;
use crate::request_limits::Room;

/// Between two looks at a task; it doubles up to the second.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(320)];
/// For Postgres to cancel: longer than it waits for a lock.
const CANCELLED_WITHIN: Duration = Duration::from_secs(15);

/// Who calls which agent.
pub(super) struct Caller {
    pub(super) agents: Arc<Agents>,
    pub(super) agent: Arc<AgentDefinition>,
    pub(super) stream: String,
    pub(super) grant: Option<Arc<Grant>>,
    pub(super) trace: Option<TraceContext>,
}

/// Why a call is not answered with a result.
pub(super) enum Refused {
    /// It is wrong.
    Fault(Fault),
    /// The worker cannot judge it.
    Problem(Problem),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// What became of a message that was sent.
enum Sent {
    At(Located),
    Rejected(&'static str),
}

/// What an event says of the message that it came as.
#[derive(Serialize)]
struct Headers<'a> {
    a2a_message_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    a2a_from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    a2a_metadata: Option<&'a RawValue>,
    /// Another agent is asked for an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    frame: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
}

impl Caller {
    fn sender(&self) -> Option<&str> {
        self.grant.as_ref().map(|grant| grant.name.as_str())
    }

    /// As whom its messages are appended.
    fn producer(&self) -> Option<String> {
        self.sender().map(|name| format!("token {name}"))
    }

    /// The context of a message.
    pub(super) fn context(&self, message: &Message) -> String {
        message.context(&self.stream, self.sender())
    }

    /// Lets a call through that is about one of the caller's tasks.
    pub(super) async fn judge(
        &self,
        headers: &HeaderMap,
        peer: Peer,
        scope: Scope,
    ) -> Result<(), Problem> {
        // Which session the task is of shows when it is found.
        let none = Reach::Sessions(&[]);
        let access = &self.agents.desk.access;
        let judged = access.judge_reach(headers, peer, scope, &self.stream, none);
        judged.await.map(drop)
    }

    /// Lets a message through to this context.
    pub(super) async fn judge_session(
        &self,
        headers: &HeaderMap,
        peer: Peer,
        session: &str,
    ) -> Result<(), Problem> {
        let access = &self.agents.desk.access;
        let judged = access.judge_session(headers, peer, Scope::Produce, &self.stream, session);
        judged.await.map(drop)
    }

    /// `SendMessage`; with `following`, `SendStreamingMessage`.
    pub(super) async fn send(
        self: Arc<Self>,
        id: &RawValue,
        message: Message,
        room: Room,
        following: Option<Following>,
    ) -> Result<Response, Refused> {
        let place = self.agents.desk.request()?;
        let (task_id, context) = (message.task_id(), self.context(&message));
        let wait = match message.returns_immediately {
            true => Duration::ZERO,
            false => self.agent.wait(),
        };
        // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
        let to = Arc::clone(&self);
        let appending = tokio::spawn(async move {
            let _held = (room, place);
            to.append(&message).await
        });
        let sent = appending
            .await
            .unwrap_or_else(|_| Err(Problem::failed().into()))?;
        let (task, located) = match sent {
            Sent::Rejected(why) => (Task::rejected(task_id, context, why), None),
            Sent::At(located) => {
                let wait = following.as_ref().map_or(wait, |_| Duration::ZERO);
                (
                    self.task_within(&task_id, &located, wait).await?,
                    Some(located),
                )
            }
        };
        Ok(match following {
            Some(following) => stream::answer(self, id, task, located, following),
            None => respond(id, json!({"task": task})),
        })
    }

    async fn append(&self, message: &Message) -> Result<Sent, Refused> {
        let (session, key, producer) =
            (self.context(message), message.dedupe_key(), self.producer());
        let asks = self.agent.complete_on == CompleteOn::Response;
        let headers = Headers {
            a2a_message_id: message.id(),
            a2a_from: self.sender(),
            a2a_metadata: message.metadata.as_deref(),
            frame: asks.then(|| Kind::Request.as_str()),
            traceparent: self
                .trace
                .as_ref()
                .and_then(|trace| trace.traceparent.as_deref()),
            tracestate: self
                .trace
                .as_ref()
                .and_then(|trace| trace.tracestate.as_deref()),
        };
        let headers = serde_json::to_string(&headers).expect("texts and JSON always serialise");
        let mut event = NewEvent {
            dedupe_key: Some(&key),
            headers: Some(&headers),
            producer: producer.as_deref(),
            ..NewEvent::new(&session, &self.agent.event_type, &message.payload)
        };
        let desk = &self.agents.desk;
        if asks {
            // Before it can be answered. Of a repeated message, what the first one said of itself counts.
            let request_id = Uuid::now_v7();
            event.message_id = Some(request_id);
            desk.ask(async |client| expect_response(client, &self.stream, request_id).await)
                .await?;
        }
        let enqueued = match desk.appender.append(&self.stream, &[event]).await {
            Ok(enqueued) => enqueued.first().copied().ok_or_else(Problem::failed)?,
            Err(AppenderError::Append(error)) => return refused(&error),
            Err(error) => return Err(Problem::from(error).into()),
        };
        desk.appended(&self.stream, 1, enqueued.duplicate);
        if !enqueued.duplicate {
            return Ok(Sent::At(Located {
                session,
                seq: enqueued.seq,
                message_id: enqueued.message_id,
            }));
        }
        // The first one may be of another session.
        Ok(Sent::At(self.locate(&message.task_id()).await?))
    }

    /// Where the message of one of the caller's tasks is.
    async fn locate(&self, task_id: &str) -> Result<Located, Refused> {
        let Some(key) = key_of_task(task_id) else {
            return Err(missing(task_id));
        };
        let (stream, producer) = (&self.stream, self.producer());
        let located = self
            .agents
            .desk
            .ask(async |client| locate(client, stream, producer.as_deref(), &key).await)
            .await?;
        let reaches = |located: &Located| {
            let grant = self.grant.as_ref();
            grant.is_none_or(|grant| grant.reaches_session(&located.session))
        };
        located.filter(reaches).ok_or_else(|| missing(task_id))
    }

    /// The task as it is now.
    pub(super) async fn look(&self, task_id: &str, message: &Located) -> Result<Task, Refused> {
        let complete_on = self.agent.complete_on;
        let (fates, response) = self
            .agents
            .desk
            .ask(async |client| {
                let fates = fates(client, &self.stream, message).await?;
                let response = match complete_on {
                    CompleteOn::Response => {
                        find_response(client, &self.stream, message.message_id).await?
                    }
                    CompleteOn::Handled => None,
                };
                Ok((fates, response))
            })
            .await?;
        let answer = response.map(Answer::of);
        // Where an answer completes the task, it is known as long as answers are.
        let is_past = complete_on == CompleteOn::Response
            && answer.is_none()
            && fates.iter().any(|fate| fate.is_past_answers);
        if fates.is_empty() || is_past {
            return Err(missing(task_id));
        }
        Ok(Task::of(
            task_id.to_owned(),
            message,
            &fates,
            complete_on,
            answer,
        ))
    }

    /// The task once it has ended, or as it is at the end of the wait, or as it was when it could last be looked at. A task that
    /// cannot be looked at even once is no reason to say that nothing was done: the call was carried out.
    async fn task_within(
        &self,
        task_id: &str,
        message: &Located,
        wait: Duration,
    ) -> Result<Task, Refused> {
        let until = Instant::now() + wait;
        let [mut pause, longest] = LOOK_EVERY;
        let waiting = self.agents.desk.waiting.try_acquire();
        let mut seen = None;
        loop {
            let task = match (self.look(task_id, message).await, seen) {
                (Ok(task), _) => task,
                (Err(Refused::Problem(_)), Some(seen)) => return Ok(seen),
                (Err(Refused::Problem(_)), None) => return Err(done_but_unseen().into()),
                (Err(fault), _) => return Err(fault),
            };
            let is_last = waiting.is_err() || Instant::now() + pause >= until;
            if is_last || task.state().is_terminal() {
                return Ok(task);
            }
            seen = Some(task);
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// `GetTask`
    pub(super) async fn get(
        &self,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<Response, Refused> {
        let OfTask { id: task_id } = OfTask::read(params)?;
        let _place = self.agents.desk.request()?;
        let located = self.locate(&task_id).await?;
        let task = self.look(&task_id, &located).await?;
        Ok(respond(id, json!(task)))
    }

    /// `SubscribeToTask`
    pub(super) async fn subscribe(
        self: Arc<Self>,
        id: &RawValue,
        params: Option<&RawValue>,
        following: Following,
    ) -> Result<Response, Refused> {
        let OfTask { id: task_id } = OfTask::read(params)?;
        let located = self.locate(&task_id).await?;
        let task = self.look(&task_id, &located).await?;
        if task.state().is_terminal() {
            let message = "the task has ended: ask for it with GetTask";
            return Err(Fault::unsupported(message).into());
        }
        Ok(stream::answer(self, id, task, Some(located), following))
    }

    /// `CancelTask`
    pub(super) async fn cancel(
        self: Arc<Self>,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<Response, Refused> {
        let OfTask { id: task_id } = OfTask::read(params)?;
        let place = self.agents.desk.request()?;
        let located = self.locate(&task_id).await?;
        let task = self.look(&task_id, &located).await?;
        let ended = || {
            Fault::not_cancelable(
                "the task has ended, or the agent has its message: nothing was done",
            )
        };
        match task.state() {
            TaskState::Canceled => return Ok(respond(id, json!(task))),
            state if state.is_terminal() => return Err(ended().into()),
            _ => {}
        }
        let (to, message) = (Arc::clone(&self), located.clone());
        let cancelling = tokio::spawn(async move {
            let _held = place;
            to.cancel_message(&message).await
        });
        match cancelling
            .await
            .unwrap_or_else(|_| Err(Problem::failed()))?
        {
            Cancelled::Cancelled | Cancelled::Running => {}
            Cancelled::AlreadySettled => return Err(ended().into()),
            Cancelled::Unknown => return Err(missing(&task_id)),
        }
        // A delivery that is under way ends soon.
        let task = self
            .task_within(&task_id, &located, self.agent.wait())
            .await?;
        Ok(respond(id, json!(task)))
    }

    async fn cancel_message(&self, message: &Located) -> Result<Cancelled, Problem> {
        let producer = self.producer();
        let which = Cancel {
            message_id: message.message_id,
            session: Some((&self.stream, &message.session)),
            streams: None,
            producer: producer.as_deref(),
        };
        let pool = &self.agents.desk.pool;
        let client = pool.get().await.map_err(|_| Problem::busy())?;
        match timeout(CANCELLED_WITHIN, interrupt::cancel(&**client, which)).await {
            Ok(Ok(cancelled)) => Ok(cancelled),
            Ok(Err(error)) if error.sqlstate() == Some(sqlstate::LANE_BUSY) => {
                Err(Problem::session_busy())
            }
            Ok(Err(error)) => Err(Problem::of_statement(&error)),
            Err(_) => {
                drop(Object::take(client));
                let detail = "Postgres did not answer: the task may or may not be cancelled";
                let hint = "repeat the call: it does nothing twice";
                Err(Problem::later(problem_type::OUTCOME_UNKNOWN, detail, 1).hint(hint))
            }
        }
    }
}

/// The message was appended, or the task cancelled, and how the task is cannot be said.
fn done_but_unseen() -> Problem {
    let detail = "the call was carried out, and its task cannot be looked at now";
    let hint = "repeat the call with the same messageId or id: it does nothing twice";
    Problem::later(problem_type::OUTCOME_UNKNOWN, detail, 1).hint(hint)
}

/// What it means for a message that it was not appended.
fn refused(error: &AppendError) -> Result<Sent, Refused> {
    let full = "the context has as many messages waiting as it takes: nothing was enqueued. Send it again later";
    match error {
        AppendError::SessionClosed(_) => Ok(Sent::Rejected(
            "the context is closed: nothing was enqueued",
        )),
        AppendError::QueueFull(_) => Ok(Sent::Rejected(full)),
        error if matches!(error.fate(), Fate::Event | Fate::Payload) => {
            Err(Fault::invalid_params(Problem::excerpt(&error.to_string())).into())
        }
        error => Err(Problem::of_append(error).into()),
    }
}

fn missing(task_id: &str) -> Refused {
    let task_id = Problem::excerpt(task_id);
    Fault::task_not_found(format!("you have no task {task_id:?} here")).into()
}

fn respond(id: &RawValue, result: serde_json::Value) -> Response {
    answer_json(StatusCode::OK, rpc::result(id, result))
}
