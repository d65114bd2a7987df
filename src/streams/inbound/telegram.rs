//! Reads Telegram's updates (core.telegram.org/bots/api#update): who wrote what where, and whether that is a message for an
//! agent. What is kept of an update is bounded and of its author: no text of the message that it answers.

use lanekeeper_core::source::PolledSource;
use serde_json::{Map, Value, json};

/// Bytes of a name; the schema takes 512.
const LONGEST_NAME: usize = 256;

/// An update, in the order of their ids.
pub(super) struct Update {
    pub(super) id: i64,
    pub(super) content: Content,
}

pub(super) enum Content {
    Message(Box<Message>),
    /// It is passed, for this reason.
    Passed(Passed),
}

/// Why an update is no message for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// Neither its author nor its chat is in `allow_from`.
    NotAllowed { chat: i64, actor: Option<i64> },
    /// Nothing that somebody wrote, recorded or sent as a file; or an edit, where these are not taken.
    Unsupported,
    /// From another program.
    Bot,
}

/// What a person wrote.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) chat: i64,
    pub(super) thread: Option<i64>,
    pub(super) actor: Option<i64>,
    pub(super) actor_name: Option<String>,
    /// `text`, `voice` or `file`.
    pub(super) kind: &'static str,
    pub(super) content: String,
    /// Which message it is: an edit is one of its own.
    pub(super) id: String,
    /// JSON text of an object.
    pub(super) payload: String,
    /// What templates are filled in from.
    pub(super) fields: Value,
}

/// The updates of an answer. An entry without an id is left out: nothing can be done about it.
pub(super) fn updates(source: &PolledSource, answer: &Value) -> Vec<Update> {
    let entries = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut updates: Vec<Update> = entries
        .iter()
        .filter_map(|entry| {
            let id = entry["update_id"].as_i64().filter(|id| *id < i64::MAX)?;
            let content = content(source, entry);
            Some(Update { id, content })
        })
        .collect();
    updates.sort_by_key(|update| update.id);
    updates
}

/// The kinds of updates that are asked for.
pub(super) fn kinds(source: &PolledSource) -> &'static [&'static str] {
    match source.edits {
        true => &["message", "edited_message"],
        false => &["message"],
    }
}

fn content(source: &PolledSource, update: &Value) -> Content {
    let kinds = kinds(source).iter();
    let found = kinds
        .map(|kind| &update[*kind])
        .find(|message| message.is_object());
    let Some(message) = found else {
        return Content::Passed(Passed::Unsupported);
    };
    let Some(chat) = message["chat"]["id"].as_i64() else {
        return Content::Passed(Passed::Unsupported);
    };
    let actor = message["from"]["id"].as_i64();
    let is_allowed = |id: &i64| source.allow_from.contains(id);
    if !is_allowed(&chat) && !actor.as_ref().is_some_and(is_allowed) {
        return Content::Passed(Passed::NotAllowed { chat, actor });
    }
    // An anonymous administrator writes in the name of the chat.
    if message["from"]["is_bot"] == true && !message["sender_chat"].is_object() {
        return Content::Passed(Passed::Bot);
    }
    match read(message, chat, actor) {
        Some(message) => Content::Message(Box::new(message)),
        None => Content::Passed(Passed::Unsupported),
    }
}

fn read(message: &Value, chat: i64, actor: Option<i64>) -> Option<Message> {
    let id = message["message_id"].as_i64()?;
    let edited_at = message["edit_date"].as_i64();
    // Answers in a group without topics have a thread too, which is none.
    let thread = message["message_thread_id"]
        .as_i64()
        .filter(|_| message["is_topic_message"] == true);
    let text = message["text"].as_str();
    let content = text.or(message["caption"].as_str()).unwrap_or_default();
    let attachment = attachment(message);
    let kind = match &attachment {
        Some((kind, _)) => *kind,
        None if content.is_empty() => return None,
        None => "text",
    };
    let mut payload = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            payload.insert(key.to_owned(), value);
        }
    };
    put("chat_id", chat.into());
    put("chat_type", bounded(&message["chat"]["type"]));
    put("chat_title", bounded(&message["chat"]["title"]));
    put("message_id", id.into());
    put("thread_id", json!(thread));
    put(
        "reply_to",
        json!(message["reply_to_message"]["message_id"].as_i64()),
    );
    put("date", json!(message["date"].as_i64()));
    put("edited_at", json!(edited_at));
    put("username", bounded(&message["from"]["username"]));
    if let Some((_, file)) = attachment {
        put("file", file);
    }
    let name = ["first_name", "last_name"].map(|key| message["from"][key].as_str());
    let name: Vec<&str> = name.into_iter().flatten().collect();
    let actor_name = match name.is_empty() {
        true => message["sender_chat"]["title"].as_str().map(str::to_owned),
        false => Some(name.join(" ")),
    };
    Some(Message {
        chat,
        thread,
        actor,
        actor_name: actor_name
            .map(|name| first(&name))
            .filter(|name| !name.is_empty()),
        kind,
        content: content.to_owned(),
        id: match edited_at {
            Some(edited_at) => format!("{chat}/{id}/{edited_at}"),
            None => format!("{chat}/{id}"),
        },
        payload: Value::Object(payload).to_string(),
        fields: json!({
            "chat": {"id": chat},
            // What is in no topic is in the general one.
            "message_thread_id": thread.unwrap_or(0),
            "from": {"id": actor.unwrap_or(chat)},
        }),
    })
}

/// What was sent with it: its type, and what the platform calls it.
fn attachment(message: &Value) -> Option<(&'static str, Value)> {
    const KINDS: [(&str, &str); 8] = [
        ("voice", "voice"),
        ("audio", "voice"),
        ("video_note", "voice"),
        ("document", "file"),
        ("photo", "file"),
        ("video", "file"),
        ("animation", "file"),
        ("sticker", "file"),
    ];
    KINDS.into_iter().find_map(|(name, kind)| {
        let given = &message[name];
        // A photo comes in several sizes, the largest last.
        let given = given
            .as_array()
            .and_then(|sizes| sizes.last())
            .unwrap_or(given);
        given["file_id"].as_str()?;
        let mut file = Map::new();
        file.insert("kind".to_owned(), name.into());
        for key in ["file_id", "file_unique_id", "file_name", "mime_type"] {
            let value = bounded(&given[key]);
            if !value.is_null() {
                file.insert(key.to_owned(), value);
            }
        }
        for key in ["file_size", "duration", "width", "height"] {
            if let Some(number) = given[key].as_i64() {
                file.insert(key.to_owned(), number.into());
            }
        }
        Some((kind, Value::Object(file)))
    })
}

/// A short text, or null.
fn bounded(value: &Value) -> Value {
    value
        .as_str()
        .map_or(Value::Null, |text| first(text).into())
}

fn first(text: &str) -> String {
    let mut end = text.len().min(LONGEST_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::source::Platform;

    use super::*;

    fn source(edits: bool) -> PolledSource {
        PolledSource {
            poll: Platform::Telegram,
            token_env: "T".to_owned(),
            api_url: None,
            allow_from: vec![77, -100],
            session: "tg-{chat_id}".to_owned(),
            edits,
            typing: true,
            commands: Default::default(),
        }
    }

    fn one(edits: bool, update: Value) -> Content {
        let mut read = updates(&source(edits), &json!([update]));
        assert_eq!(read.len(), 1);
        read.remove(0).content
    }

    fn message(edits: bool, update: Value) -> Message {
        match one(edits, update) {
            Content::Message(message) => *message,
            Content::Passed(why) => panic!("{why:?}"),
        }
    }

    fn passed(edits: bool, update: Value) -> Passed {
        match one(edits, update) {
            Content::Passed(why) => why,
            Content::Message(message) => panic!("{message:?}"),
        }
    }

    fn text(chat: i64, actor: i64, more: Value) -> Value {
        let mut message = json!({"message_id": 5, "date": 1, "chat": {"id": chat, "type": "group"},
            "from": {"id": actor, "first_name": "Ada", "last_name": "L", "username": "ada"}});
        for (key, value) in more.as_object().unwrap() {
            message[key] = value.clone();
        }
        json!({"update_id": 9, "message": message})
    }

    #[test]
    fn a_text_has_its_author_chat_and_topic() {
        let topic = json!({"text": "hi", "message_thread_id": 3, "is_topic_message": true});
        let read = message(false, text(-100, 5, topic));
        assert_eq!(
            (read.chat, read.thread, read.actor),
            (-100, Some(3), Some(5))
        );
        assert_eq!((read.kind, read.content.as_str()), ("text", "hi"));
        assert_eq!(
            (read.actor_name.as_deref(), read.id.as_str()),
            (Some("Ada L"), "-100/5")
        );
        assert_eq!(read.fields["message_thread_id"], 3);
        // An answer in a group without topics.
        let answer = json!({"text": "hi", "message_thread_id": 3,
            "reply_to_message": {"message_id": 4, "text": "of somebody else"}});
        let read = message(false, text(-100, 5, answer));
        assert_eq!(
            (read.thread, &read.fields["message_thread_id"]),
            (None, &json!(0))
        );
        assert!(read.payload.contains(r#""reply_to":4"#) && !read.payload.contains("somebody"));
    }

    #[test]
    fn a_recording_is_a_voice_message_and_a_photo_the_file_of_its_largest_size() {
        let voice = json!({"voice": {"file_id": "v", "duration": 3, "file_size": 10}});
        let read = message(false, text(77, 77, voice));
        assert_eq!((read.kind, read.content.as_str()), ("voice", ""));
        assert!(read.payload.contains(r#""duration":3"#), "{}", read.payload);
        let photo = json!({"caption": "look", "photo": [{"file_id": "s"}, {"file_id": "l"}]});
        let read = message(false, text(77, 77, photo));
        assert_eq!((read.kind, read.content.as_str()), ("file", "look"));
        assert!(
            read.payload.contains(r#""file_id":"l""#),
            "{}",
            read.payload
        );
    }

    #[test]
    fn who_is_not_allowed_says_nothing_wherever_he_writes() {
        let hi = || json!({"text": "hi"});
        let stranger = Passed::NotAllowed {
            chat: 5,
            actor: Some(5),
        };
        assert_eq!(passed(false, text(5, 5, hi())), stranger);
        // By the chat, and by the person in another chat.
        message(false, text(-100, 5, hi()));
        message(false, text(-7, 77, hi()));
        let bot = json!({"text": "hi", "from": {"id": 77, "is_bot": true}});
        assert_eq!(passed(false, text(-100, 77, bot)), Passed::Bot);
    }

    #[test]
    fn what_is_no_message_is_passed_and_an_edit_is_one_only_where_edits_are_taken() {
        for more in [
            json!({}),
            json!({"text": ""}),
            json!({"new_chat_title": "x"}),
        ] {
            assert_eq!(passed(true, text(77, 77, more)), Passed::Unsupported);
        }
        for update in [
            json!({"update_id": 1}),
            json!({"update_id": 1, "message": 5}),
            json!({"update_id": 1, "message": {"chat": {"id": "x"}}}),
            json!({"update_id": 1, "callback_query": {"id": "1"}}),
        ] {
            assert_eq!(passed(true, update), Passed::Unsupported);
        }
        let mut edit = text(77, 77, json!({"text": "hi", "edit_date": 12}));
        edit["edited_message"] = edit["message"].take();
        assert_eq!(passed(false, edit.clone()), Passed::Unsupported);
        assert_eq!(message(true, edit).id, "77/5/12");
    }

    #[test]
    fn updates_are_taken_in_the_order_of_their_ids_and_those_without_one_are_left_out() {
        let answer =
            json!([{"update_id": 8}, {"update_id": 3}, {"id": 1}, 5, {"update_id": i64::MAX}]);
        let ids: Vec<i64> = updates(&source(false), &answer)
            .iter()
            .map(|it| it.id)
            .collect();
        assert_eq!(ids, [3, 8]);
        assert!(updates(&source(false), &json!({"a": 1})).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_name_is_cut_at_a_character(name in ".{0,400}") {
            let cut = first(&name);
            proptest::prop_assert!(cut.len() <= LONGEST_NAME && name.starts_with(&cut));
        }
    }
}
