//! A task as callers see it: what the subscriptions of the stream made of its message, in the words of A2A.
//!
//! | of the message | the task is |
//! |---|---|
//! | it waits in every subscription | submitted |
//! | it is being sent, was sent, is tried again or is parked in one; some have handled it and others have not | working |
//! | every subscription that gets it has handled it | completed; where only an answer completes: working |
//! | it was answered: RESPONSE, ERROR | completed, failed |
//! | a dead letter in one | failed |
//! | it expired or was dropped in one; the session is closed or full | rejected |
//! | it was cancelled, superseded, coalesced or skipped in one | canceled |
//!
//! What went wrong at a destination is not the caller's to know: a task says that it failed, not how.

use jiff::Timestamp;
use lanekeeper_core::a2a::TaskState;
use lanekeeper_core::a2a_part::Part;
use lanekeeper_core::frame::Kind;
use lanekeeper_core::subscription::agent::CompleteOn;
use lanekeeper_postgres::a2a_agent::{Fate, Located};
use lanekeeper_postgres::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

/// A task, to be written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    id: String,
    context_id: String,
    status: Status,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Status {
    state: &'static str,
    timestamp: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Value>,
    #[serde(skip)]
    of: TaskState,
}

/// What the agent answered.
#[derive(Debug)]
pub(super) struct Answer {
    message_id: Uuid,
    is_error: bool,
    /// JSON text.
    payload: Box<RawValue>,
    at: Timestamp,
}

impl Answer {
    pub(super) fn of(response: Response) -> Self {
        #[derive(Deserialize)]
        struct Headers<'a> {
            frame: Option<&'a str>,
        }
        let headers = response
            .event
            .headers
            .as_deref()
            .map_or("{}", RawValue::get);
        let headers: Result<Headers<'_>, _> = serde_json::from_str(headers);
        let frame = headers.ok().and_then(|headers| headers.frame);
        Self {
            message_id: response.event.message_id,
            is_error: frame == Some(Kind::Error.as_str()),
            payload: response.event.payload,
            at: response.event.created_at,
        }
    }
}

impl Task {
    /// A task whose message was not taken. It is not remembered.
    pub(super) fn rejected(id: String, context_id: String, why: &str) -> Self {
        let state = TaskState::Rejected;
        let status = Status::new(state, Timestamp::now(), Some(words(&id, &context_id, why)));
        Self {
            id,
            context_id,
            status,
            artifacts: Vec::new(),
            metadata: None,
        }
    }

    /// The task of a message that the log has. `fates` has one at least.
    pub(super) fn of(
        id: String,
        message: &Located,
        fates: &[Fate],
        complete_on: CompleteOn,
        answer: Option<Answer>,
    ) -> Self {
        let context_id = message.session.clone();
        let state = state(fates, complete_on, answer.as_ref());
        let at = fates
            .iter()
            .flat_map(|fate| [Some(fate.created_at), fate.settled_at]);
        let at = answer
            .as_ref()
            .map(|answer| answer.at)
            .or(at.flatten().max());
        let (mut said, mut artifacts) = (None, Vec::new());
        if let Some(answer) = &answer {
            let parts = [Part::of_payload(answer.payload.get())];
            if answer.is_error {
                said = Some(agent_message(&id, &context_id, &json!(parts)));
            } else {
                artifacts.push(json!({"artifactId": answer.message_id, "parts": parts}));
            }
        } else if let Some(why) = why(state) {
            said = Some(words(&id, &context_id, why));
        }
        Self {
            status: Status::new(state, at.unwrap_or_default(), said),
            id,
            context_id,
            artifacts,
            metadata: Some(
                json!({"lanekeeper": {"message_id": message.message_id, "seq": message.seq}}),
            ),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn state(&self) -> TaskState {
        self.status.of
    }

    /// What has changed since the task was `before`: the results of a stream that go behind it.
    pub(super) fn changes(&self, before: &Self) -> Vec<Value> {
        let mut changes = Vec::new();
        let (id, context) = (&self.id, &self.context_id);
        for artifact in self.artifacts.iter().skip(before.artifacts.len()) {
            changes.push(json!({"artifactUpdate": {
                "taskId": id, "contextId": context, "artifact": artifact, "lastChunk": true,
            }}));
        }
        if self.status.of != before.status.of {
            changes.push(json!({"statusUpdate": {
                "taskId": id, "contextId": context, "status": self.status,
            }}));
        }
        changes
    }
}

impl Status {
    fn new(of: TaskState, timestamp: Timestamp, message: Option<Value>) -> Self {
        Self {
            state: of.as_str(),
            timestamp,
            message,
            of,
        }
    }
}

fn words(task_id: &str, context_id: &str, text: &str) -> Value {
    agent_message(task_id, context_id, &json!([{"text": text}]))
}

fn agent_message(task_id: &str, context_id: &str, parts: &Value) -> Value {
    json!({
        "messageId": format!("{task_id}-status"),
        "contextId": context_id,
        "taskId": task_id,
        "role": "ROLE_AGENT",
        "parts": parts,
    })
}

fn why(state: TaskState) -> Option<&'static str> {
    Some(match state {
        TaskState::Failed => "the message could not be delivered to the agent",
        TaskState::Rejected => {
            "the message was given up before the agent had it: too old, too many, or the context was closed"
        }
        TaskState::Canceled => "the message was cancelled, or another took its place",
        _ => return None,
    })
}

fn state(fates: &[Fate], complete_on: CompleteOn, answer: Option<&Answer>) -> TaskState {
    if let Some(answer) = answer {
        return match answer.is_error {
            true => TaskState::Failed,
            false => TaskState::Completed,
        };
    }
    let states: Vec<TaskState> = fates.iter().filter_map(state_of).collect();
    let some = |state| states.contains(&state);
    // The first of these that is there.
    let order = [
        TaskState::Working,
        TaskState::Submitted,
        TaskState::Failed,
        TaskState::Rejected,
        TaskState::Canceled,
        TaskState::Completed,
    ];
    let first = order.into_iter().find(|state| some(*state));
    match first.unwrap_or(TaskState::Submitted) {
        TaskState::Submitted if states.iter().any(|state| state.is_terminal()) => {
            TaskState::Working
        }
        TaskState::Completed if complete_on == CompleteOn::Response => TaskState::Working,
        state => state,
    }
}

/// What one subscription made of it; `None`: it does not get it.
fn state_of(fate: &Fate) -> Option<TaskState> {
    let unless_cancelled = |state| match fate.is_cancelled {
        true => TaskState::Canceled,
        false => state,
    };
    Some(match &*fate.state {
        "filtered" | "unsubscribed" => return None,
        "pending" | "requeued" => unless_cancelled(TaskState::Submitted),
        // Its delivery may end before it is cancelled.
        "sending" => TaskState::Working,
        "retrying" | "parked" | "sent" => unless_cancelled(TaskState::Working),
        "delivered" | "acked" => TaskState::Completed,
        "failed" | "unconfirmed" => TaskState::Failed,
        "expired" | "dropped" => TaskState::Rejected,
        // cancelled, superseded, coalesced, skipped
        _ => TaskState::Canceled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(state: &str, is_cancelled: bool) -> Fate {
        Fate {
            state: state.to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            settled_at: None,
            is_cancelled,
            is_past_answers: false,
        }
    }

    fn of(states: &[&str]) -> TaskState {
        let fates: Vec<Fate> = states.iter().map(|state| fate(state, false)).collect();
        state(&fates, CompleteOn::Handled, None)
    }

    #[test]
    fn a_task_is_what_the_subscriptions_made_of_its_message() {
        for (states, expected) in [
            (&["pending"][..], TaskState::Submitted),
            (&["unsubscribed"], TaskState::Submitted),
            (&["pending", "filtered"], TaskState::Submitted),
            (&["sending"], TaskState::Working),
            (&["sent"], TaskState::Working),
            (&["retrying"], TaskState::Working),
            (&["delivered", "pending"], TaskState::Working),
            (&["failed", "pending"], TaskState::Working),
            (&["delivered"], TaskState::Completed),
            (&["acked", "delivered", "filtered"], TaskState::Completed),
            (&["acked", "failed"], TaskState::Failed),
            (&["expired"], TaskState::Rejected),
            (&["dropped", "delivered"], TaskState::Rejected),
            (&["superseded"], TaskState::Canceled),
            (&["coalesced"], TaskState::Canceled),
        ] {
            assert_eq!(of(states), expected, "{states:?}");
        }
    }

    #[test]
    fn a_cancelled_message_that_waits_is_cancelled_before_its_turn_and_one_that_is_sent_is_not() {
        let of = |word: &str| state(&[fate(word, true)], CompleteOn::Handled, None);
        assert_eq!(of("pending"), TaskState::Canceled);
        assert_eq!(of("sent"), TaskState::Canceled);
        assert_eq!(of("sending"), TaskState::Working);
        assert_eq!(of("delivered"), TaskState::Completed, "it was too late");
    }

    #[test]
    fn where_an_answer_completes_a_handled_message_is_worked_at_until_it_comes() {
        let fates = [fate("acked", false)];
        assert_eq!(
            state(&fates, CompleteOn::Response, None),
            TaskState::Working
        );
        let mut answer = Answer {
            message_id: Uuid::nil(),
            is_error: false,
            payload: RawValue::from_string("{\"text\":\"yes\"}".to_owned()).unwrap(),
            at: Timestamp::UNIX_EPOCH,
        };
        for (is_error, expected) in [(false, TaskState::Completed), (true, TaskState::Failed)] {
            answer.is_error = is_error;
            let now = state(&fates, CompleteOn::Response, Some(&answer));
            assert_eq!(now, expected);
        }
    }
}
