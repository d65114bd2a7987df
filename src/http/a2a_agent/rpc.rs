//! JSON-RPC 2.0 as A2A 1.0 uses it: reads a call, and writes its answer or what is wrong with it.

use std::borrow::Cow;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use lanekeeper_core::a2a::VERSION;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::events::json as answer_json;
use crate::problem::Problem;

/// The header in which a client says which version it speaks.
const VERSION_HEADER: &str = "a2a-version";
/// Bytes of a call's id: it is in each answer.
const LONGEST_ID: usize = 256;

/// What may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    SendMessage,
    SendStreamingMessage,
    GetTask,
    CancelTask,
    SubscribeToTask,
}

/// A call that can be judged.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// JSON text: a string or a number.
    pub(super) id: &'a RawValue,
    pub(super) method: Method,
    pub(super) params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// What is wrong with a call: an error of JSON-RPC.
#[derive(Debug)]
pub(super) struct Fault {
    code: i32,
    /// The error's name in A2A; `None`: it is one of JSON-RPC.
    reason: Option<&'static str>,
    message: String,
}

macro_rules! faults {
    ($($name:ident = $code:literal, $reason:expr;)*) => {
        impl Fault {
            $(pub(super) fn $name(message: impl Into<String>) -> Self {
                Self { code: $code, reason: $reason, message: message.into() }
            })*
        }
    };
}

faults! {
    not_json = -32700, None;
    invalid_request = -32600, None;
    unknown_method = -32601, None;
    invalid_params = -32602, None;
    task_not_found = -32001, Some("TASK_NOT_FOUND");
    not_cancelable = -32002, Some("TASK_NOT_CANCELABLE");
    no_push = -32003, Some("PUSH_NOTIFICATION_NOT_SUPPORTED");
    unsupported = -32004, Some("UNSUPPORTED_OPERATION");
    other_version = -32009, Some("VERSION_NOT_SUPPORTED");
}

/// What the document says of an answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JsonRpcAnswer")]
pub(super) struct Answered {
    jsonrpc: &'static str,
    /// That of the request; null where it could not be read.
    #[schemars(with = "Value")]
    id: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

impl Answered {
    fn new(id: &RawValue) -> Self {
        Self {
            jsonrpc: "2.0",
            id: id.to_owned(),
            result: None,
            error: None,
        }
    }
}

/// The answer to a call, as text.
pub(super) fn result(id: &RawValue, result: Value) -> Vec<u8> {
    let answered = Answered {
        result: Some(result),
        ..Answered::new(id)
    };
    serde_json::to_vec(&answered).expect("JSON always serialises")
}

/// The parameters of a method: an object.
pub(super) fn params<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, Fault> {
    let text = params.map_or("", RawValue::get);
    // By itself serde takes an array of the fields too.
    if !text.starts_with('{') {
        return Err(Fault::invalid_params(
            "params is not an object: nothing was done",
        ));
    }
    serde_json::from_str(text).map_err(|error| {
        let error = Problem::excerpt(&error.to_string());
        let message = format!("params is not what the method takes ({error}): nothing was done");
        Fault::invalid_params(message)
    })
}

impl<'a> Call<'a> {
    /// Reads a request's body. What is wrong comes with the id for its answer.
    pub(super) fn read(
        headers: &HeaderMap,
        body: &'a [u8],
    ) -> Result<Self, (Box<RawValue>, Fault)> {
        let envelope = Envelope::read(body).map_err(|fault| (null(), fault))?;
        let id = envelope.id.filter(|id| is_id(id.get()));
        let Some(id) = id else {
            let message = "the id of a call is a string or a number: nothing was done";
            return Err((null(), Fault::invalid_request(message)));
        };
        let judged = envelope
            .judge_version(headers)
            .and_then(|()| envelope.method());
        match judged {
            Ok(method) => Ok(Self {
                id,
                method,
                params: envelope.params,
            }),
            Err(fault) => Err((id.to_owned(), fault)),
        }
    }
}

impl<'a> Envelope<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Fault> {
        if body.trim_ascii_start().starts_with(b"[") {
            let message = "one call in each request: nothing was done";
            return Err(Fault::invalid_request(message));
        }
        serde_json::from_slice(body).map_err(|error| {
            let text = Problem::excerpt(&error.to_string());
            if error.is_data() {
                let message = format!("this is no call of JSON-RPC 2.0 ({text}): nothing was done");
                Fault::invalid_request(message)
            } else {
                Fault::not_json(format!("the body is no JSON ({text}): nothing was done"))
            }
        })
    }

    /// A client that says no version speaks 0.3, says the specification.
    fn judge_version(&self, headers: &HeaderMap) -> Result<(), Fault> {
        if self.jsonrpc != "2.0" {
            let message = "jsonrpc must be \"2.0\": nothing was done";
            return Err(Fault::invalid_request(message));
        }
        let given = headers.get(VERSION_HEADER);
        let given = given
            .map_or("", |given| given.to_str().unwrap_or("?"))
            .trim();
        if given == VERSION {
            return Ok(());
        }
        let given = match given {
            "" => "0.3 (that of clients who send no A2A-Version)",
            other => &Problem::excerpt(other),
        };
        let message = format!(
            "version {given} is not spoken here: nothing was done. Send A2A-Version: {VERSION}"
        );
        Err(Fault::other_version(message))
    }

    fn method(&self) -> Result<Method, Fault> {
        Ok(match &*self.method {
            "SendMessage" => Method::SendMessage,
            "SendStreamingMessage" => Method::SendStreamingMessage,
            "GetTask" => Method::GetTask,
            "CancelTask" => Method::CancelTask,
            "SubscribeToTask" => Method::SubscribeToTask,
            "CreateTaskPushNotificationConfig"
            | "GetTaskPushNotificationConfig"
            | "ListTaskPushNotificationConfigs"
            | "DeleteTaskPushNotificationConfig" => {
                let message = "push notifications are not sent: ask with GetTask, or follow the task with SubscribeToTask";
                return Err(Fault::no_push(message));
            }
            "ListTasks" | "GetExtendedAgentCard" => {
                let message =
                    "this agent has neither lists of tasks nor another card than its public one";
                return Err(Fault::unsupported(message));
            }
            other => {
                let other = Problem::excerpt(other);
                let message = format!("there is no method {other:?}: nothing was done");
                return Err(Fault::unknown_method(message));
            }
        })
    }
}

impl Fault {
    /// The answer to the call with this id.
    pub(super) fn answer(&self, id: &RawValue) -> Response {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(reason) = self.reason {
            error["data"] = json!([{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": reason,
                "domain": "a2a-protocol.org",
            }]);
        }
        let answered = Answered {
            error: Some(error),
            ..Answered::new(id)
        };
        let body = serde_json::to_vec(&answered).expect("JSON always serialises");
        answer_json(StatusCode::OK, body)
    }
}

fn is_id(text: &str) -> bool {
    let is_number = |text: &str| text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    text.len() <= LONGEST_ID && (text.starts_with('"') || is_number(text))
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(version: &str, body: &str) -> Result<(String, Method), (String, i32)> {
        let mut headers = HeaderMap::new();
        headers.insert(VERSION_HEADER, version.parse().unwrap());
        match Call::read(&headers, body.as_bytes()) {
            Ok(call) => Ok((call.id.get().to_owned(), call.method)),
            Err((id, fault)) => Err((id.get().to_owned(), fault.code)),
        }
    }

    #[test]
    fn a_call_has_a_version_an_id_and_a_method() {
        let call = |id: &str, method: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
        };
        let ok = |id: &str, method| Ok((id.to_owned(), method));
        assert_eq!(read("1.0", &call("7", "GetTask")), ok("7", Method::GetTask));
        assert_eq!(
            read(" 1.0 ", &call("\"a\"", "SendMessage")),
            ok("\"a\"", Method::SendMessage)
        );
        let no = |id: &str, code| Err((id.to_owned(), code));
        for version in ["", "0.3", "1.1", "2.0", "1"] {
            assert_eq!(
                read(version, &call("7", "GetTask")),
                no("7", -32009),
                "{version}"
            );
        }
        assert_eq!(read("1.0", &call("7", "message/send")), no("7", -32601));
        assert_eq!(read("1.0", &call("7", "ListTasks")), no("7", -32004));
        let push = "CreateTaskPushNotificationConfig";
        assert_eq!(read("1.0", &call("7", push)), no("7", -32003));
        let long = format!("\"{}\"", "x".repeat(LONGEST_ID));
        for id in ["null", "{}", "[1]", "true", &long] {
            assert_eq!(
                read("1.0", &call(id, "GetTask")),
                no("null", -32600),
                "{id}"
            );
        }
    }

    #[test]
    fn what_is_no_call_is_refused() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let params = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{deep}}}"#);
        assert!(read("1.0", &params).is_ok(), "params are judged later");
        for (body, code) in [
            ("", -32700),
            ("{", -32700),
            ("\u{0}", -32700),
            ("5", -32600),
            ("{}", -32600),
            ("[]", -32600),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#, -32600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32600),
            (r#"{"jsonrpc":"2.0","method":"GetTask"}"#, -32600),
            (&deep, -32600),
        ] {
            let refused = read("1.0", body).unwrap_err();
            assert_eq!(refused.1, code, "{}", &body[..body.len().min(60)]);
        }
    }
}
