//! What people write in chats, whichever platform it comes from.

use serde_json::{Map, Value};

use super::{Request, Template};

/// Bytes of a name; the schema takes 512.
const LONGEST_NAME: usize = 256;

/// An update, in the order of their ids.
#[derive(Clone, Debug)]
pub struct Update {
    pub id: i64,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub enum Content {
    Message(Box<Message>),
    /// It is passed, for this reason.
    Passed(Passed),
}

/// Why an update is no message for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Neither its author nor its chat is in `allow_from`.
    NotAllowed { chat: i64, actor: Option<i64> },
    /// Nothing that somebody wrote, recorded or sent as a file; or an edit, where these are not taken.
    Unsupported,
    /// From another program.
    Bot,
}

/// What a person wrote.
#[derive(Clone, Debug)]
pub struct Message {
    pub(super) chat: i64,
    pub(super) thread: Option<i64>,
    pub(super) message_id: i64,
    /// Who wrote it, as text.
    pub actor_id: Option<String>,
    pub actor_name: Option<String>,
    /// The chat, as text.
    pub channel_id: String,
    /// `text`, `voice` or `file`.
    pub kind: &'static str,
    pub content: String,
    /// Which message it is: an edit is one of its own.
    pub id: String,
    pub(super) payload: Map<String, Value>,
    /// What templates are filled in from.
    pub(super) fields: Value,
}

/// A recording or file of a message, as the platform describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub file_id: String,
    /// What it is to the platform, such as `photo`.
    pub kind: String,
    pub mime_type: Option<String>,
    /// As the platform says before it is fetched.
    pub size: Option<u64>,
}

impl Message {
    /// The session that it belongs to, by a template of [`Platform`](super::Platform).
    pub fn session(&self, template: &Template) -> String {
        let request = Request {
            text: "",
            json: Some(&self.fields),
            header: &|_| None,
        };
        // Every name of the platform has a value.
        template.render(&request).unwrap_or_default()
    }

    /// JSON text of an object.
    pub fn payload(&self) -> String {
        Value::from(self.payload.clone()).to_string()
    }

    /// What was sent with it.
    pub fn attachment(&self) -> Option<Attachment> {
        let file = self.payload.get("file")?;
        let text = |key: &str| file[key].as_str().map(str::to_owned);
        Some(Attachment {
            file_id: text("file_id")?,
            kind: text("kind")?,
            mime_type: text("mime_type"),
            size: file["file_size"].as_u64(),
        })
    }

    /// Enters where its attachment is, or why it is nowhere.
    pub fn attach(&mut self, fetched: Result<&str, &str>) {
        let (key, value) = match fetched {
            Ok(path) => ("path", path),
            Err(reason) => ("attachment_error", reason),
        };
        self.payload.insert(key.to_owned(), value.into());
    }
}

/// A short text, or null.
pub(super) fn bounded(value: &Value) -> Value {
    value
        .as_str()
        .map_or(Value::Null, |text| first(text).into())
}

pub(super) fn first(text: &str) -> String {
    let mut end = text.len().min(LONGEST_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_name_is_cut_at_a_character(name in ".{0,400}") {
            let cut = first(&name);
            proptest::prop_assert!(cut.len() <= LONGEST_NAME && name.starts_with(&cut));
        }
    }
}
