//! Reads Telegram's updates (core.telegram.org/bots/api#update): who wrote what where, and whether that is a message for an
//! agent; and what its chat is shown. What is kept of an update is bounded and of its author: no text of the message that it
//! answers. A worker that asks for updates and one that is sent them read them here, so both make the same messages.

use serde_json::{Map, Value, json};

use super::ChatSource;
use super::chat::{Content, Message, Passed, Update, bounded, first};

/// Shows a chat that somebody types: the method of the Bot API, and what it takes.
pub fn typing(to: &Message) -> (&'static str, Value) {
    (
        "sendChatAction",
        into_topic(to, json!({"action": "typing"})),
    )
}

/// Answers a message: the method of the Bot API, and what it takes.
pub fn answer(to: &Message, text: &str) -> (&'static str, Value) {
    let body = json!({
        "text": text,
        "reply_parameters": {"message_id": to.message_id, "allow_sending_without_reply": true},
    });
    ("sendMessage", into_topic(to, body))
}

fn into_topic(to: &Message, mut body: Value) -> Value {
    body["chat_id"] = to.chat.into();
    if let Some(thread) = to.thread {
        body["message_thread_id"] = thread.into();
    }
    body
}

/// The updates of an answer. An entry without an id is left out: nothing can be done about it.
pub fn updates(source: &ChatSource, answer: &Value) -> Vec<Update> {
    let entries = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut updates: Vec<Update> = entries
        .iter()
        .filter_map(|entry| update(source, entry))
        .collect();
    updates.sort_by_key(|update| update.id);
    updates
}

/// One update. `None`: it has no id.
pub fn update(source: &ChatSource, entry: &Value) -> Option<Update> {
    let id = entry["update_id"].as_i64().filter(|id| *id < i64::MAX)?;
    let content = content(source, entry);
    Some(Update { id, content })
}

/// The kinds of updates that are asked for.
pub fn kinds(source: &ChatSource) -> &'static [&'static str] {
    match source.edits {
        true => &["message", "edited_message"],
        false => &["message"],
    }
}

fn content(source: &ChatSource, update: &Value) -> Content {
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
        message_id: id,
        actor_id: actor.map(|actor| actor.to_string()),
        channel_id: chat.to_string(),
        actor_name: actor_name
            .map(|name| first(&name))
            .filter(|name| !name.is_empty()),
        kind,
        content: content.to_owned(),
        id: match edited_at {
            Some(edited_at) => format!("{chat}/{id}/{edited_at}"),
            None => format!("{chat}/{id}"),
        },
        payload,
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

#[cfg(test)]
mod tests {
    use super::super::chat::Attachment;
    use super::*;

    fn source(edits: bool) -> ChatSource {
        ChatSource {
            api_url: None,
            allow_from: vec![77, -100],
            session: "tg-{chat_id}".to_owned(),
            edits,
            typing: true,
            commands: Default::default(),
            max_file_bytes: None,
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
            (read.chat, read.thread, read.actor_id.as_deref()),
            (-100, Some(3), Some("5"))
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
        assert!(read.payload().contains(r#""reply_to":4"#) && !read.payload().contains("somebody"));
    }

    #[test]
    fn a_recording_is_a_voice_message_and_a_photo_the_file_of_its_largest_size() {
        let voice = json!({"voice": {"file_id": "v", "duration": 3, "file_size": 10}});
        let read = message(false, text(77, 77, voice));
        assert_eq!((read.kind, read.content.as_str()), ("voice", ""));
        assert!(
            read.payload().contains(r#""duration":3"#),
            "{}",
            read.payload()
        );
        let photo = json!({"caption": "look", "photo": [{"file_id": "s"}, {"file_id": "l"}]});
        let read = message(false, text(77, 77, photo));
        assert_eq!((read.kind, read.content.as_str()), ("file", "look"));
        assert!(
            read.payload().contains(r#""file_id":"l""#),
            "{}",
            read.payload()
        );
    }

    #[test]
    fn a_fetched_attachment_is_where_terminals_look_for_it_and_a_missing_one_says_why() {
        let voice = json!({"voice": {"file_id": "v", "mime_type": "audio/ogg", "file_size": 10}});
        let mut read = message(false, text(77, 77, voice));
        let expected = Attachment {
            file_id: "v".to_owned(),
            kind: "voice".to_owned(),
            mime_type: Some("audio/ogg".to_owned()),
            size: Some(10),
        };
        assert_eq!(read.attachment(), Some(expected));
        read.attach(Ok("/srv/a.ogg"));
        assert!(read.payload().contains(r#""path":"/srv/a.ogg""#));
        let photo = json!({"photo": [{"file_id": "l"}]});
        let mut read = message(false, text(77, 77, photo));
        read.attach(Err("too large"));
        assert!(read.payload().contains(r#""attachment_error":"too large""#));
        let hi = message(false, text(77, 77, json!({"text": "hi"})));
        assert_eq!(hi.attachment(), None);
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
}
