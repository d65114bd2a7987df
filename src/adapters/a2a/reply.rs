//! What an agent answers.
//!
//! An agent is a stranger. An answer has at most [`MOST_BYTES`] and arrives before the deadline; one that is not whole, or
//! that answers something else, is a failure. Nothing of it leads anywhere: calls go to the subscription's URL alone.

use lanekeeper_core::a2a::{TaskState, VERSION, is_task_id};
use lanekeeper_core::adapter::Verdict;
use reqwest::Response;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::call::{Call, Caller};
use super::settings::Binding;
use crate::webhook::answer;
use crate::{excerpt, http, retry_after};

/// An answer's longest body. Without its history a task has its artifacts.
const MOST_BYTES: usize = 1024 * 1024;

/// What it answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Task(Task),
    /// A message, with which the matter is settled.
    Message,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) state: TaskState,
    /// What the agent says of it, as far as it may stand in an error.
    pub(super) says: String,
}

/// Why there is no such answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The agent does not know the task.
    UnknownTask,
    /// The task cannot be cancelled: it has ended, or the agent cancels none.
    NotCancelable,
    Of(Verdict),
}

impl Failure {
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::UnknownTask => Verdict::retry("the agent does not know the task any more"),
            Self::NotCancelable => Verdict::retry("the agent cancels no task"),
            Self::Of(verdict) => verdict,
        }
    }
}

#[derive(Deserialize)]
struct WireTask {
    id: String,
    status: WireStatus,
}

#[derive(Deserialize)]
struct WireStatus {
    #[serde(default)]
    state: TaskState,
    message: Option<WireMessage>,
}

#[derive(Deserialize)]
struct WireMessage {
    #[serde(default)]
    parts: Vec<WirePart>,
}

#[derive(Deserialize)]
struct WirePart {
    text: Option<String>,
}

#[derive(Deserialize)]
struct WireSent {
    task: Option<WireTask>,
    message: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Rpc<'a> {
    id: Option<Value>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct HttpError {
    error: HttpErrorFields,
}

#[derive(Deserialize)]
struct HttpErrorFields {
    #[serde(default)]
    details: Vec<HttpErrorDetail>,
}

#[derive(Deserialize)]
struct HttpErrorDetail {
    reason: Option<String>,
}

/// Reads what an agent answers to a call.
pub(super) async fn read(
    caller: &Caller,
    call: Call<'_>,
    response: Response,
    rpc_id: &str,
    deadline: Instant,
) -> Result<Answer, Failure> {
    let status = response.status();
    let pause = retry_after::pause(response.headers());
    let said = format!("{} answered {status}", http::origin(&caller.url));
    let body = http::whole(response, MOST_BYTES, deadline).await;
    // With its history a cancelled task may be of any size, and no error is.
    if body.is_none() && status.is_success() && matches!(call, Call::Cancel(_)) {
        return Ok(Answer::Message);
    }
    let Some(body) = body else {
        let error =
            format!("{said}, and its answer is not whole or longer than {MOST_BYTES} bytes");
        return Err(Failure::Of(Verdict::retry(error)));
    };
    let quoted = excerpt::first(
        &answer::without_query(body.clone(), &caller.url),
        answer::QUOTED_CHARS,
    );
    let said = if quoted.is_empty() {
        said
    } else {
        format!("{said}: {quoted}")
    };
    if !status.is_success() {
        if let Some(failure) = of_reason(call, status.as_u16(), &body) {
            return Err(failure);
        }
        return Err(Failure::Of(answer::verdict(status, pause, said)));
    }
    let unreadable = || {
        Failure::Of(Verdict::retry(format!(
            "{said}, which is no answer of A2A {VERSION}"
        )))
    };
    let result = match caller.binding {
        Binding::HttpJson => body,
        Binding::JsonRpc => {
            let rpc: Rpc<'_> = serde_json::from_slice(&body).map_err(|_| unreadable())?;
            if let Some(error) = rpc.error {
                return Err(of_code(
                    call,
                    error.code,
                    &excerpt::first(error.message.as_bytes(), answer::QUOTED_CHARS),
                ));
            }
            if rpc.id != Some(Value::from(rpc_id)) {
                return Err(unreadable());
            }
            rpc.result.ok_or_else(unreadable)?.get().as_bytes().to_vec()
        }
    };
    let answer = match call {
        Call::Send(..) => {
            let sent: WireSent = serde_json::from_slice(&result).map_err(|_| unreadable())?;
            match (sent.task, sent.message) {
                (Some(task), None) => task,
                (None, Some(_)) => return Ok(Answer::Message),
                _ => return Err(unreadable()),
            }
        }
        Call::Get(_) | Call::Cancel(_) => {
            serde_json::from_slice(&result).map_err(|_| unreadable())?
        }
    };
    let is_asked = match call {
        Call::Send(..) => is_task_id(&answer.id),
        Call::Get(id) | Call::Cancel(id) => answer.id == id,
    };
    if is_asked {
        Ok(Answer::Task(answer.into()))
    } else {
        Err(unreadable())
    }
}

impl From<WireTask> for Task {
    fn from(wire: WireTask) -> Self {
        let texts = wire
            .status
            .message
            .into_iter()
            .flat_map(|message| message.parts);
        let says = texts
            .filter_map(|part| part.text)
            .next()
            .unwrap_or_default();
        Self {
            id: wire.id,
            state: wire.status.state,
            says: excerpt::first(says.as_bytes(), answer::QUOTED_CHARS),
        }
    }
}

/// What an error of JSON-RPC means.
fn of_code(call: Call<'_>, code: i64, message: &str) -> Failure {
    let error = format!("the agent answered with error {code}: {message}");
    match (code, call) {
        (-32001, Call::Get(_) | Call::Cancel(_)) => Failure::UnknownTask,
        (-32002 | -32004, Call::Cancel(_)) => Failure::NotCancelable,
        // Its own failure, that of what is behind it, and codes that the standard leaves to agents.
        (-32603 | -32006, _) => Failure::Of(Verdict::retry(error)),
        (-32009..=-32001 | -32700 | -32602..=-32600, _) => Failure::Of(Verdict::Rejected { error }),
        _ => Failure::Of(Verdict::retry(error)),
    }
}

/// What the body of an error over HTTP says that its status does not.
fn of_reason(call: Call<'_>, status: u16, body: &[u8]) -> Option<Failure> {
    let error = serde_json::from_slice::<HttpError>(body).ok();
    let details = error.into_iter().flat_map(|error| error.error.details);
    let reasons: Vec<String> = details.filter_map(|detail| detail.reason).collect();
    let says = |reason: &str| reasons.iter().any(|given| given == reason);
    match call {
        Call::Send(..) => None,
        Call::Get(_) | Call::Cancel(_) if status == 404 || says("TASK_NOT_FOUND") => {
            Some(Failure::UnknownTask)
        }
        Call::Cancel(_) if says("TASK_NOT_CANCELABLE") || says("UNSUPPORTED_OPERATION") => {
            Some(Failure::NotCancelable)
        }
        Call::Get(_) | Call::Cancel(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_of_an_agent_are_judged_as_documented() {
        let raw = RawValue::from_string("{}".to_owned()).unwrap();
        let configuration = json!({});
        let send = Call::Send(&raw, &configuration);
        for code in [
            -32001, -32003, -32004, -32005, -32007, -32008, -32009, -32600, -32601, -32602, -32700,
        ] {
            assert!(
                matches!(
                    of_code(send, code, ""),
                    Failure::Of(Verdict::Rejected { .. })
                ),
                "{code}"
            );
        }
        for code in [-32006, -32603, -32000, -32050, -1, 0, 429] {
            assert!(
                matches!(of_code(send, code, ""), Failure::Of(Verdict::Retry { .. })),
                "{code}"
            );
        }
        assert_eq!(of_code(Call::Get("a"), -32001, ""), Failure::UnknownTask);
        assert_eq!(
            of_code(Call::Cancel("a"), -32002, ""),
            Failure::NotCancelable
        );
    }
}
