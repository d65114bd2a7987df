//! `/v1/a2a/{subscription}/{message_id}`: an agent tells what becomes of the task that a message became (docs/a2a.md).
//!
//! The agent shows the token that it got with that very message. The token acknowledges that message for that subscription,
//! and is good for nothing else. What the agent tells is believed as its answers are: a completed task acknowledges the
//! message, unless it is another task than the message is known to have become. Anything else it tells changes nothing; the
//! adapter asks again when the acknowledgement is late.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRef, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use deadpool_postgres::Pool;
use lanekeeper_adapters::{Environment, PushKey};
use lanekeeper_core::a2a::{KEY, MessageTask, PLACE, TaskState};
use lanekeeper_core::memory::MessageName;
use lanekeeper_postgres::sent::{self, Acked};
use lanekeeper_postgres::{a2a, sent_message};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::cached::{self, ByName, Cached, newly_refused};
use super::events::{Desk, HeldBody, json};
use super::openapi::operation::post;
use super::problem::Problem;
use super::problem_type;
use super::request_limits::Stranger;
use super::routes::{Routes, Shared};

const PATH: &str = "/v1/a2a/{subscription}/{message_id}";
/// How long what was read of the subscriptions counts.
const BELIEVED_FOR: Duration = Duration::from_secs(2);
/// The longest notification: a task with all that it made.
const LONGEST: usize = 1024 * 1024;

/// A subscription that takes notifications.
struct Notified {
    id: i32,
    key: PushKey,
}

/// Receives notifications.
pub struct Inbox {
    desk: Arc<Desk>,
    environment: Environment,
    notified: Arc<Cached<ByName<Notified>>>,
}

/// The route.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Inbox>: FromRef<S>,
{
    Routes::new().on(
        post(PATH, "notify_task", "Tell what became of the task that a message became")
            .details(
                "A push notification of A2A 1.0. A completed task or a message acknowledges the message that the agent was \
                 sent; anything else changes nothing.",
            )
            .proof("Needs no access token, but the one that the agent was sent with the message, as bearer.")
            .header("X-A2A-Notification-Token", "The same token, as older agents show it.")
            .body::<Notification>()
            .body_of::<Notification>("application/a2a+json", true)
            .answers::<Answer>(200, "What came of it"),
        receive,
    )
}

/// What a notification tells, as far as it matters. It has exactly one of its members.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "A2aNotification")]
#[serde(rename_all = "camelCase")]
struct Notification {
    task: Option<Task>,
    status_update: Option<StatusUpdate>,
    message: Option<Message>,
    #[schemars(with = "Option<Value>")]
    artifact_update: Option<IgnoredAny>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "A2aMessage")]
struct Message {
    #[serde(rename = "messageId")]
    _message_id: String,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "A2aTask")]
struct Task {
    id: String,
    status: Status,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "A2aStatusUpdate")]
#[serde(rename_all = "camelCase")]
struct StatusUpdate {
    task_id: String,
    status: Status,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "A2aTaskStatus")]
struct Status {
    #[serde(default)]
    #[schemars(with = "String")]
    state: TaskState,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NotificationTaken")]
struct Answer {
    message_id: Uuid,
    /// `noted`, or what came of the acknowledgement.
    result: &'static str,
}

/// What it means.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// The task with this id is complete; without one, the message was answered directly.
    Complete(Option<String>),
    Nothing,
}

impl Told {
    fn read(body: &[u8]) -> Result<Self, Problem> {
        let unreadable = |error: &dyn std::fmt::Display| {
            let error = Problem::excerpt(&error.to_string());
            let detail =
                format!("the notification is not what is expected ({error}): nothing was done");
            Problem::new(problem_type::INVALID, detail)
                .hint("send a StreamResponse of A2A 1.0: an object with task, statusUpdate, artifactUpdate or message")
        };
        // By itself serde takes an array of the fields too.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(unreadable(&"it is not an object"));
        }
        let told: Notification =
            serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
        let (id, state) = match (
            told.task,
            told.status_update,
            told.message,
            told.artifact_update,
        ) {
            (Some(task), None, None, None) => (Some(task.id), task.status.state),
            (None, Some(update), None, None) => (Some(update.task_id), update.status.state),
            (None, None, Some(_), None) => (None, TaskState::Completed),
            (None, None, None, Some(_)) => return Ok(Self::Nothing),
            _ => return Err(unreadable(&"it has not exactly one of its members")),
        };
        Ok(if state == TaskState::Completed {
            Self::Complete(id)
        } else {
            Self::Nothing
        })
    }
}

async fn receive(
    State(inbox): State<Arc<Inbox>>,
    path: Result<Path<(String, Uuid)>, PathRejection>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let Path((subscription, message_id)) = path.map_err(|_| refused())?;
    let token = token(&headers).ok_or_else(refused)?;
    let notified = inbox.notified(&subscription).await?;
    let notified = notified.filter(|notified| notified.key.verifies(message_id, token));
    let agent = Stranger::Agent(notified.ok_or_else(refused)?.id);
    let body = inbox.desk.body_of_stranger(agent, LONGEST, body);
    let HeldBody { bytes, room } = body.await?;
    let place = inbox.desk.request()?;
    // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
    let taking = tokio::spawn(async move {
        let _held = (room, place);
        match Told::read(&bytes)? {
            Told::Nothing => Ok(None),
            Told::Complete(task_id) => inbox
                .acknowledge(&subscription, message_id, task_id)
                .await
                .map(Some),
        }
    });
    let acked = taking.await.unwrap_or_else(|_| Err(Problem::failed()))?;
    let result = acked.map_or("noted", Acked::as_str);
    let answer = Answer { message_id, result };
    let answer = serde_json::to_vec(&answer).expect("ids and words always serialise");
    Ok(json(StatusCode::OK, answer))
}

fn refused() -> Problem {
    let detail = "the notification does not show the token of a message that was sent over A2A: nothing was done";
    Problem::unauthorized(detail)
}

/// What a notification shows: the credentials that it was given, or the older token.
fn token(headers: &HeaderMap) -> Option<&str> {
    let authorization = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let bearer = authorization.and_then(|given| {
        let (scheme, token) = given.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    bearer.or_else(|| headers.get("x-a2a-notification-token")?.to_str().ok())
}

impl Inbox {
    /// Secrets are looked up in `environment`.
    pub fn new(desk: Arc<Desk>, environment: Environment) -> Self {
        Self {
            desk,
            environment,
            notified: Cached::new(BELIEVED_FOR),
        }
    }

    /// The subscription of this name, if it takes notifications. No name is remembered that somebody asks for.
    async fn notified(&self, subscription: &str) -> Result<Option<Arc<Notified>>, Problem> {
        let (pool, environment) = (self.desk.pool.clone(), self.environment.clone());
        let all = self
            .notified
            .get(async move |before| load(&pool, environment, before.as_deref()).await)
            .await?;
        Ok(all
            .get(subscription)
            .and_then(|one| one.as_ref().ok().cloned()))
    }

    async fn acknowledge(
        &self,
        subscription: &str,
        message_id: Uuid,
        task_id: Option<String>,
    ) -> Result<Acked, Problem> {
        let message = self
            .desk
            .ask(async |client| a2a::message(client, message_id, subscription).await)
            .await?;
        let Some(message) = message else {
            return Ok(Acked::Unknown);
        };
        let known = message.task.as_ref().map(|task| &task.task_id);
        if known.is_some_and(|known| task_id.as_ref().is_some_and(|told| told != known)) {
            let detail =
                "the notification is about another task than the message became: nothing was done";
            return Err(Problem::new(problem_type::INVALID, detail));
        }
        self.desk
            .ask(async |client| {
                let acked = sent::ack_many(client, &[message_id], Some(subscription), None).await?;
                if message.task.is_some() {
                    let name = MessageName {
                        subscription,
                        session: &message.session,
                        place: PLACE,
                        key: KEY,
                    };
                    sent_message::forget(client, name, MessageTask::part(message.seq)).await?;
                }
                Ok(acked.first().map_or(Acked::Unknown, |(_, acked)| *acked))
            })
            .await
    }
}

async fn load(
    pool: &Pool,
    environment: Environment,
    before: Option<&ByName<Notified>>,
) -> Result<ByName<Notified>, Problem> {
    let all = cached::ask(pool, async |client| a2a::subscriptions(client).await).await?;
    // Secrets may stand in files.
    let building = tokio::task::spawn_blocking(move || {
        let built = all.into_iter().filter_map(|one| {
            let key = PushKey::of(&one.name, &one.settings, &environment);
            let notified = match key {
                Ok(key) => Ok(Arc::new(Notified {
                    id: one.id,
                    key: key?,
                })),
                Err(error) => Err(error.to_string()),
            };
            Some((one.name, notified))
        });
        built.collect::<ByName<Notified>>()
    });
    let built = building.await.map_err(|_| Problem::failed())?;
    for (subscription, reason) in newly_refused(before, &built) {
        tracing::warn!(
            subscription,
            reason,
            "an agent's notifications cannot be checked, and are refused"
        );
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(body: &str) -> Option<Told> {
        Told::read(body.as_bytes()).ok()
    }

    #[test]
    fn only_a_completed_task_or_a_message_acknowledges() {
        let complete = |id: &str| Some(Told::Complete(Some(id.to_owned())));
        let task = |state: &str| {
            format!(r#"{{"task":{{"id":"a","status":{{"state":"{state}"}},"artifacts":[{{}}]}}}}"#)
        };
        assert_eq!(told(&task("TASK_STATE_COMPLETED")), complete("a"));
        for state in [
            "TASK_STATE_WORKING",
            "TASK_STATE_FAILED",
            "TASK_STATE_CANCELED",
            "completed",
            "",
        ] {
            assert_eq!(told(&task(state)), Some(Told::Nothing), "{state}");
        }
        let update = r#"{"statusUpdate":{"taskId":"b","contextId":"s","status":{"state":"TASK_STATE_COMPLETED"}}}"#;
        assert_eq!(told(update), complete("b"));
        assert_eq!(
            told(r#"{"artifactUpdate":{"taskId":"b"}}"#),
            Some(Told::Nothing)
        );
        assert_eq!(
            told(r#"{"message":{"messageId":"m"}}"#),
            Some(Told::Complete(None))
        );
    }

    #[test]
    fn what_is_no_notification_is_refused() {
        let deep = format!(
            r#"{{"message":{}{}}}"#,
            "[".repeat(10_000),
            "]".repeat(10_000)
        );
        for body in [
            "",
            "{}",
            "[]",
            "[null,null,null,null]",
            "5",
            r#"{"task":{}}"#,
            r#"{"task":5}"#,
            &deep,
            r#"{"message":{},"artifactUpdate":{}}"#,
        ] {
            assert_eq!(told(body), None, "{}", &body[..body.len().min(40)]);
        }
    }

    #[test]
    fn the_token_is_the_bearer_or_that_of_the_older_header() {
        let mut headers = HeaderMap::new();
        assert_eq!(token(&headers), None);
        headers.insert("x-a2a-notification-token", "old".parse().unwrap());
        assert_eq!(token(&headers), Some("old"));
        headers.insert(header::AUTHORIZATION, "bearer new".parse().unwrap());
        assert_eq!(token(&headers), Some("new"));
    }
}
