//! A message that a caller sends, as the event that it becomes.

use std::borrow::Cow;

use lanekeeper_core::a2a_part::ReceivedParts;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use uuid::{Builder, Uuid};

use super::rpc::{self, Fault};

/// Bytes of a message's id: it is part of a dedupe key, and of the task's id.
const LONGEST_ID: usize = 256;
/// Bytes of a message's metadata: they are part of the event's headers.
const LONGEST_METADATA: usize = 16 * 1024;
/// What a task's id begins with.
const TASK: &str = "task-";

/// See the module.
#[derive(Debug)]
pub(super) struct Message {
    id: String,
    /// The session; `None`: a new one.
    context: Option<String>,
    /// JSON text.
    pub(super) payload: String,
    /// JSON text of an object.
    pub(super) metadata: Option<Box<RawValue>>,
    /// The caller does not wait for the task.
    pub(super) returns_immediately: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    message: Given<'a>,
    #[serde(borrow)]
    configuration: Option<Configuration<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given<'a> {
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    #[serde(borrow, default)]
    context_id: Cow<'a, str>,
    #[serde(borrow, default)]
    task_id: Cow<'a, str>,
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    parts: ReceivedParts<'a>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration<'a> {
    #[serde(default)]
    return_immediately: bool,
    #[serde(borrow)]
    task_push_notification_config: Option<&'a RawValue>,
}

impl Message {
    pub(super) fn read(params: Option<&RawValue>) -> Result<Self, Fault> {
        let Params {
            message,
            configuration,
        } = rpc::params(params)?;
        let refused = |what: &str| {
            Err(Fault::invalid_params(format!(
                "{what}: nothing was enqueued"
            )))
        };
        if !(1..=LONGEST_ID).contains(&message.message_id.len()) {
            return refused(&format!("messageId has 1 to {LONGEST_ID} bytes"));
        }
        if message.message_id.chars().any(char::is_control) {
            return refused("messageId has control characters");
        }
        if message.role != "ROLE_USER" {
            return refused("role is not ROLE_USER");
        }
        if !message.task_id.is_empty() {
            let message =
                "each message is a task of its own: send it without taskId, in the same context";
            return Err(Fault::unsupported(message));
        }
        let is_off = |metadata: &&RawValue| {
            metadata.get().len() > LONGEST_METADATA || !metadata.get().starts_with('{')
        };
        if message.metadata.as_ref().is_some_and(is_off) {
            return refused(&format!(
                "metadata is an object of at most {LONGEST_METADATA} bytes"
            ));
        }
        let payload = match message.parts.payload() {
            Ok(payload) => payload,
            Err(error) => return refused(&error.to_string()),
        };
        let configuration = configuration.as_ref();
        if configuration.is_some_and(|given| given.task_push_notification_config.is_some()) {
            let message = "push notifications are not sent: nothing was enqueued";
            return Err(Fault::no_push(message));
        }
        Ok(Self {
            id: message.message_id.into_owned(),
            context: (!message.context_id.is_empty()).then(|| message.context_id.into_owned()),
            payload,
            metadata: message.metadata.map(ToOwned::to_owned),
            returns_immediately: configuration.is_some_and(|given| given.return_immediately),
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Its session. A message without a context opens one that follows from its id: a repeated call is in the same.
    pub(super) fn context(&self, stream: &str, sender: Option<&str>) -> String {
        if let Some(context) = &self.context {
            return context.clone();
        }
        let mut hash = Sha256::new();
        for part in ["a2a context", stream, sender.unwrap_or_default(), &self.id] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        let context: Uuid = Builder::from_custom_bytes(bytes).into_uuid();
        context.to_string()
    }

    /// The id of its task.
    pub(super) fn task_id(&self) -> String {
        format!("{TASK}{}", self.id)
    }

    pub(super) fn dedupe_key(&self) -> String {
        dedupe_key(&self.id)
    }
}

fn dedupe_key(message_id: &str) -> String {
    format!("a2a {message_id}")
}

/// The dedupe key of the message that a task stands for; `None`: no task is called so.
pub(super) fn key_of_task(task_id: &str) -> Option<String> {
    let id = task_id.strip_prefix(TASK)?;
    let is_id = (1..=LONGEST_ID).contains(&id.len()) && !id.chars().any(char::is_control);
    is_id.then(|| dedupe_key(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(params: &str) -> Result<Message, Fault> {
        Message::read(Some(&RawValue::from_string(params.to_owned()).unwrap()))
    }

    fn with(more: &str) -> String {
        format!(
            r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"a"}}]{more}}}}}"#
        )
    }

    #[test]
    fn a_message_without_a_context_opens_one_that_follows_from_its_id_and_sender() {
        let message = read(&with("")).unwrap();
        let context = message.context("s", Some("a"));
        assert_eq!(
            context,
            message.context("s", Some("a")),
            "a repeat is in the same"
        );
        assert_ne!(context, message.context("s", Some("b")));
        assert_ne!(context, message.context("t", Some("a")));
        assert_eq!(
            read(&with(r#","contextId":"c""#))
                .unwrap()
                .context("s", None),
            "c"
        );
        assert!(!message.returns_immediately);
    }

    #[test]
    fn a_task_is_called_by_its_message() {
        let message = read(&with("")).unwrap();
        assert_eq!(key_of_task(&message.task_id()), Some(message.dedupe_key()));
        let long = format!("{TASK}{}", "x".repeat(LONGEST_ID + 1));
        for other in ["", "m", TASK, "task-\n", &long] {
            assert_eq!(key_of_task(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let long = format!(
            r#"{{"message":{{"messageId":"{}","role":"ROLE_USER","parts":[{{"text":"a"}}]}}}}"#,
            "x".repeat(257)
        );
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for bad in [
            "{}",
            "[]",
            r#"{"message":{"messageId":"","role":"ROLE_USER","parts":[{"text":"a"}]}}"#,
            r#"{"message":{"messageId":"\n","role":"ROLE_USER","parts":[{"text":"a"}]}}"#,
            r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"a"}]}}"#,
            r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}"#,
            r#"{"message":{"messageId":"m","role":"ROLE_USER"}}"#,
            &with(r#","metadata":5"#),
            &with(&format!(r#","metadata":{deep}"#)),
            &with(r#","taskId":"task-m""#),
            &long,
            &format!(r#"{{"message":{deep}}}"#),
        ] {
            assert!(read(bad).is_err(), "{}", &bad[..bad.len().min(80)]);
        }
        let push = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}]},"configuration":{"taskPushNotificationConfig":{"url":"http://a"}}}"#;
        assert!(read(push).is_err());
    }
}
