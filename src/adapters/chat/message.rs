//! Reads from an event's payload, by JSON pointers (RFC 6901), what to say in a chat.
//!
//! Events of a session with the same key are versions of one message: the first is sent, later ones edit it. An event
//! without a key is a message of its own.

use lanekeeper_core::adapter::Role;
use serde_json::Value;

/// Where the text of an event is looked for unless the subscription says so itself.
const TEXTS: [&str; 3] = ["/text", "/last_assistant_message", "/message"];
const KEY: &str = "/message_key";
const FINAL: &str = "/final";

/// How long keys and names of chats may be: they are kept with what was sent.
const LONGEST_NAME: usize = 256;

/// A name that is given, or looked for in each payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Given(String),
    Pointer(String),
}

impl Source {
    fn pointer(&self) -> Option<&str> {
        match self {
            Self::Given(_) => None,
            Self::Pointer(pointer) => Some(pointer),
        }
    }

    fn read(&self, payload: &Value) -> Option<String> {
        match self {
            Self::Given(name) => Some(name.clone()),
            Self::Pointer(pointer) => name(payload.pointer(pointer)?),
        }
    }
}

/// Where a subscription's payloads have their texts, keys and chats.
#[derive(Clone, Debug)]
pub struct Reading {
    texts: Vec<String>,
    key: String,
    is_final: String,
    /// `None`: the adapter has only one chat.
    chat: Option<Source>,
    thread: Option<Source>,
    reply_to: Option<String>,
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Empty if the adapter has only one chat.
    pub chat: String,
    /// A topic, a thread.
    pub thread: Option<String>,
    /// The message that it answers.
    pub reply_to: Option<String>,
}

impl Target {
    /// The name of the target in the record of sent messages.
    pub fn place(&self) -> String {
        match &self.thread {
            Some(thread) => format!("{}/{thread}", self.chat),
            None => self.chat.clone(),
        }
    }
}

/// An event's message and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub text: String,
    pub target: Target,
    pub key: Option<String>,
    /// No further version of it is expected.
    pub is_final: bool,
}

impl Reading {
    pub fn new(
        text: Option<String>,
        key: Option<String>,
        is_final: Option<String>,
        [chat, thread]: [Option<Source>; 2],
        reply_to: Option<String>,
    ) -> Self {
        Self {
            texts: text.map_or_else(|| TEXTS.map(str::to_owned).into(), |text| vec![text]),
            key: key.unwrap_or_else(|| KEY.to_owned()),
            is_final: is_final.unwrap_or_else(|| FINAL.to_owned()),
            chat,
            thread,
            reply_to,
        }
    }

    /// The chat that all its messages go to, where events do not name it.
    pub fn given_chat(&self) -> Option<&str> {
        match &self.chat {
            Some(Source::Given(name)) => Some(name),
            _ => None,
        }
    }

    /// What this payload says, or why it says nothing that could be sent.
    pub fn message(&self, payload: &str) -> Result<Message, String> {
        let payload: Value = serde_json::from_str(payload)
            .map_err(|error| format!("the payload cannot be read, nothing was sent: {error}"))?;
        let text = self
            .text(&payload)
            .ok_or_else(|| {
                format!(
                    "the payload has no text at {}, nothing was sent: name its place with text_from",
                    self.texts.join(", ")
                )
            })?
            .to_owned();
        let (key, is_final) = self.version(&payload);
        if key.as_ref().is_some_and(|key| key.len() > LONGEST_NAME) {
            return Err(format!(
                "the message's key at {} is longer than {LONGEST_NAME} bytes, nothing was sent",
                self.key
            ));
        }
        let target = self.target(&payload)?;
        Ok(Message {
            text,
            target,
            key,
            is_final,
        })
    }

    fn text<'p>(&self, payload: &'p Value) -> Option<&'p str> {
        let texts = self.texts.iter();
        texts
            .filter_map(|pointer| payload.pointer(pointer)?.as_str())
            .find(|text| !text.trim().is_empty())
    }

    /// Where this payload goes.
    pub fn target(&self, payload: &Value) -> Result<Target, String> {
        let chat = match &self.chat {
            None => String::new(),
            Some(source) => source.read(payload).ok_or_else(|| match source {
                Source::Pointer(pointer) => {
                    format!("the payload names no chat at {pointer} (chat_from), nothing was sent")
                }
                Source::Given(_) => "no chat is set, nothing was sent".to_owned(),
            })?,
        };
        let read = |source: &Source| source.read(payload);
        let reply_to = self.reply_to.as_ref();
        Ok(Target {
            chat,
            thread: self.thread.as_ref().and_then(read),
            reply_to: reply_to.and_then(|pointer| name(payload.pointer(pointer)?)),
        })
    }

    /// What an event with this payload is among the versions of its message. One that cannot be read is left
    /// to its delivery.
    pub fn role(&self, payload: &str) -> Role {
        let Ok(payload) = serde_json::from_str::<Value>(payload) else {
            return Role::Whole;
        };
        let (Some(key), is_final) = self.version(&payload) else {
            return Role::Whole;
        };
        // What has nothing to say makes nothing needless.
        if self.text(&payload).is_none() {
            return Role::Whole;
        }
        // Two chats are two messages.
        let Ok(target) = self.target(&payload) else {
            return Role::Whole;
        };
        let key = format!("{}\n{key}", target.place());
        match is_final {
            true => Role::Final { key },
            false => Role::Progress { key },
        }
    }

    /// The places that [`Reading::role`] looks at.
    pub fn role_pointers(&self) -> Vec<String> {
        let places = [&self.chat, &self.thread];
        let named = places.into_iter().flatten().filter_map(Source::pointer);
        let said = [self.key.as_str(), self.is_final.as_str()];
        said.into_iter()
            .chain(self.texts.iter().map(String::as_str))
            .chain(named)
            .map(str::to_owned)
            .collect()
    }

    fn version(&self, payload: &Value) -> (Option<String>, bool) {
        let key = payload.pointer(&self.key).and_then(name);
        let said = payload.pointer(&self.is_final).and_then(Value::as_bool);
        let is_final = key.is_none() || said.unwrap_or(false);
        (key, is_final)
    }
}

/// An id as platforms have them: text or a whole number.
fn name(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> Reading {
        let chat = Source::Pointer("/chat_id".to_owned());
        let thread = Source::Pointer("/topic".to_owned());
        Reading::new(None, None, None, [Some(chat), Some(thread)], None)
    }

    #[test]
    fn a_payload_says_what_where_and_which_version() {
        let said = reading()
            .message(r#"{"last_assistant_message": "done", "chat_id": -100, "topic": "7", "message_key": 5}"#)
            .unwrap();
        assert_eq!((said.text.as_str(), said.is_final), ("done", false));
        assert_eq!(said.target.place(), "-100/7");
        assert_eq!(said.key.as_deref(), Some("5"));
        let own = reading()
            .message(r#"{"text": " ", "message": "hi", "chat_id": "@a"}"#)
            .unwrap();
        assert_eq!(
            (own.text.as_str(), own.key, own.is_final),
            ("hi", None, true)
        );
    }

    #[test]
    fn what_cannot_be_sent_says_which_pointer_led_nowhere() {
        let refusal = |payload: &str| reading().message(payload).unwrap_err();
        assert!(
            refusal(r#"{"chat_id": 1, "text": 5}"#).contains("no text at /text, /last_assistant")
        );
        assert!(refusal(r#"{"text": "a", "chat_id": 1.5}"#).contains("no chat at /chat_id"));
        assert!(refusal("[").contains("cannot be read"));
    }

    #[test]
    fn progress_is_progress_of_one_message_in_one_chat() {
        let role = |payload: &str| reading().role(payload);
        let key = "1\nk".to_owned();
        let progress = Role::Progress { key: key.clone() };
        assert_eq!(
            role(r#"{"chat_id": 1, "message_key": "k", "text": "a"}"#),
            progress
        );
        assert_eq!(
            role(r#"{"chat_id": 1, "message_key": "k", "text": "a", "final": true}"#),
            Role::Final { key }
        );
        assert_ne!(
            role(r#"{"chat_id": 2, "message_key": "k", "text": "a"}"#),
            progress
        );
        for whole in [
            r#"{"chat_id": 1, "text": "a"}"#,
            r#"{"message_key": "k", "text": "a"}"#,
            // It must not take the place of a version that says something.
            r#"{"chat_id": 1, "message_key": "k", "final": true}"#,
            "nonsense",
        ] {
            assert_eq!(role(whole), Role::Whole, "{whole}");
        }
    }
}
