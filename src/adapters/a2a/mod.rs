//! Sends events to agents that speak A2A 1.0 (docs/a2a.md): the adapter `agent` with `protocol = "a2a"`.
//!
//! An event becomes a message with its id, in the context of its session. What acknowledges it is that the agent accepts it,
//! or that its task completes:
//!
//! ```text
//! sent ──► a message, or a completed task ────────────────────────────────► accepted
//!      └─► a task: remembered ─► followed until the time-out, or
//!                                left to the agent's notifications ─► Sent ─► its acknowledgement is late: asked again
//! ```
//!
//! A task is remembered before anything else is done with it, so whoever has the lane next asks about it and sends the message
//! no second time. A worker that dies between the agent's answer and that sends it again, with the same id.
//!
//! Before a message is sent, the tasks of earlier messages of its session are cancelled that were given up since: because of
//! an interrupt, for example.

mod call;
mod message;
mod reply;
mod settings;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::a2a::TaskState;
use lanekeeper_core::adapter::{Adapter, Delivery, Server, Verdict};
use lanekeeper_core::memory::Memory;
use reqwest::header::HeaderValue;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use url::Url;

use self::call::{Call, Caller};
use self::reply::{Answer, Failure, Task};
pub use self::settings::PushKey;
use self::settings::{AcknowledgeOn, Checked};
use self::tasks::Tasks;
use super::{Environment, SettingsError, http};

const KIND: &str = "agent";
/// Between two looks at a task; it doubles up to the second.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// Judges settings without reading a secret.
pub(super) fn check(settings: &Value) -> Result<(), SettingsError> {
    Checked::read(settings).map(drop)
}

/// Whether a message is acknowledged by more than the answer to it.
pub(super) fn awaits_completion(settings: &Value) -> bool {
    Checked::read(settings).is_ok_and(|checked| checked.acknowledge_on == AcknowledgeOn::Completed)
}

/// Builds the adapter of one subscription. Connects to nothing yet.
pub(super) fn build(
    subscription: &str,
    settings: &Value,
    environment: &Environment,
    bearer: impl FnOnce(String) -> Result<HeaderValue, SettingsError>,
) -> Result<A2a, SettingsError> {
    let checked = Checked::read(settings)?;
    let private = &environment.allow_private_targets;
    http::refuse_private(&checked.url, private)
        .map_err(|reason| SettingsError::invalid(KIND, "url", reason))?;
    let push = match checked.push {
        Some(push) => Some(Push {
            key: PushKey::new(subscription, &push.secret_env, environment)?,
            url: push.url,
        }),
        None => None,
    };
    let client =
        http::client(&checked.url, private).map_err(|source| SettingsError::Certificates {
            subscription: subscription.to_owned(),
            source,
        })?;
    Ok(A2a {
        server: http::server(&checked.url),
        caller: Caller {
            client,
            url: checked.url,
            binding: checked.binding,
            authorization: checked.token_env.map(bearer).transpose()?,
            tenant: checked.tenant,
            timeout: checked.timeout,
        },
        acknowledge_on: checked.acknowledge_on,
        push,
        memory: environment.memory(),
    })
}

/// Sends messages to one agent.
pub(super) struct A2a {
    caller: Caller,
    server: Option<Server>,
    acknowledge_on: AcknowledgeOn,
    push: Option<Push>,
    memory: Arc<dyn Memory>,
}

/// Where and with what the agent tells of its tasks.
struct Push {
    url: Url,
    key: PushKey,
}

impl A2a {
    async fn send(&self, delivery: &Delivery<'_>, deadline: Instant) -> Result<Answer, Verdict> {
        let message = message::of(delivery);
        let configuration = message::configuration(delivery, self.push.as_ref());
        let call = Call::Send(&message, &configuration);
        let answer = self.caller.call(call, delivery, deadline).await;
        answer.map_err(Failure::verdict)
    }

    async fn accepted(
        &self,
        delivery: &Delivery<'_>,
        deadline: Instant,
    ) -> Result<Verdict, Verdict> {
        Ok(match self.send(delivery, deadline).await? {
            Answer::Task(task) if task.state == TaskState::Rejected => rejected(&task),
            Answer::Task(_) | Answer::Message => Verdict::Accepted,
        })
    }

    async fn completed(
        &self,
        delivery: &Delivery<'_>,
        deadline: Instant,
    ) -> Result<Verdict, Verdict> {
        let tasks = Tasks::recall(&self.memory, delivery).await?;
        self.cancel_withdrawn(&tasks, delivery, deadline).await?;
        let known = match tasks.own() {
            Some(id) => match self.look(id, delivery, deadline).await {
                Ok(task) => Some(task),
                // The agent lost it: it gets the message again.
                Err(Failure::UnknownTask) => None,
                Err(failure) => return Err(failure.verdict()),
            },
            None => None,
        };
        let task = match known {
            Some(task) => task,
            None => match self.send(delivery, deadline).await? {
                Answer::Message => return Ok(Verdict::Accepted),
                Answer::Task(task) => {
                    if !task.state.is_terminal() {
                        tasks.remember(&task.id).await?;
                    }
                    task
                }
            },
        };
        self.follow(task, &tasks, delivery, deadline).await
    }

    /// Follows a task until it ends or the delivery's time is over.
    async fn follow(
        &self,
        mut task: Task,
        tasks: &Tasks<'_>,
        delivery: &Delivery<'_>,
        deadline: Instant,
    ) -> Result<Verdict, Verdict> {
        let [mut pause, longest] = LOOK_EVERY;
        let ended = loop {
            match task.state {
                TaskState::Completed => break Verdict::Accepted,
                TaskState::Failed => break Verdict::retry(ended(&task)),
                TaskState::Rejected
                | TaskState::Canceled
                | TaskState::InputRequired
                | TaskState::AuthRequired => break rejected(&task),
                TaskState::Submitted | TaskState::Working | TaskState::Unknown => {}
            }
            if self.push.is_some() || Instant::now() + pause >= deadline {
                return Ok(if delivery.asks_ack {
                    Verdict::Sent
                } else {
                    Verdict::retry(ended(&task))
                });
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
            task = match self.look(&task.id, delivery, deadline).await {
                Ok(task) => task,
                Err(failure) => return Err(failure.verdict()),
            };
        };
        tasks
            .forget(delivery.event.seq, delivery.event.message_id)
            .await?;
        Ok(ended)
    }

    async fn look(
        &self,
        id: &str,
        delivery: &Delivery<'_>,
        deadline: Instant,
    ) -> Result<Task, Failure> {
        match self.caller.call(Call::Get(id), delivery, deadline).await? {
            Answer::Task(task) => Ok(task),
            Answer::Message => Err(Failure::Of(Verdict::retry(
                "the agent answered with no task",
            ))),
        }
    }

    async fn cancel_withdrawn(
        &self,
        tasks: &Tasks<'_>,
        delivery: &Delivery<'_>,
        deadline: Instant,
    ) -> Result<(), Verdict> {
        for task in tasks.withdrawn().await? {
            match self
                .caller
                .call(Call::Cancel(&task.task_id), delivery, deadline)
                .await
            {
                // It ended before, or it is gone: there is nothing to cancel.
                Ok(_) | Err(Failure::UnknownTask | Failure::NotCancelable) => {}
                // To another agent, it never was one; only what time may mend is worth another attempt.
                Err(Failure::Of(Verdict::Rejected { error })) => tracing::warn!(
                    subscription = delivery.subscription,
                    session = &*delivery.event.session,
                    error,
                    "the agent refuses to cancel the task of a message that was given up: it may go on with it"
                ),
                Err(Failure::Of(verdict)) => return Err(verdict),
            }
            tasks.forget(task.seq, task.message_id).await?;
        }
        Ok(())
    }
}

/// How a task stands, for an error.
fn ended(task: &Task) -> String {
    let stands = match task.state {
        TaskState::Failed => "the agent's task failed",
        TaskState::Rejected => "the agent refused the message",
        TaskState::Canceled => "the agent's task was cancelled there",
        TaskState::InputRequired => "the agent asks for input, which it gets from nobody here",
        TaskState::AuthRequired => {
            "the agent asks for an authorisation, which it gets from nobody here"
        }
        _ => "the agent's task has not ended",
    };
    let id = crate::excerpt::first(task.id.as_bytes(), 80);
    match task.says.is_empty() {
        true => format!("{stands} (task {id})"),
        false => format!("{stands} (task {id}): {}", task.says),
    }
}

fn rejected(task: &Task) -> Verdict {
    Verdict::Rejected { error: ended(task) }
}

#[async_trait]
impl Adapter for A2a {
    fn acknowledges(&self) -> bool {
        true
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let deadline = Instant::now() + self.caller.timeout;
        let judged = match self.acknowledge_on {
            AcknowledgeOn::Accepted => self.accepted(delivery, deadline).await,
            AcknowledgeOn::Completed => self.completed(delivery, deadline).await,
        };
        judged.unwrap_or_else(|verdict| verdict)
    }

    fn server(&self) -> Option<Server> {
        self.server.clone()
    }
}
