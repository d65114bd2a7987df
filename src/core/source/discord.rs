//! Reads messages that Discord's gateway dispatches (docs.discord.com/developers/resources/message): who wrote what where,
//! and whether that is a message for an agent; and what its channel is shown. What is kept is bounded, as of Telegram.

use serde_json::{Map, Value, json};

use super::ChatSource;
use super::chat::{Content, Message, Passed, bounded, first};

/// `DEFAULT` and `REPLY`: the others tell of pins, joins and the like.
const WRITTEN: [u64; 2] = [0, 19];
/// A message's flag that it is a recording.
const VOICE: u64 = 1 << 13;
/// Discord's own limit.
const MOST_FILES: usize = 10;
const LONGEST_URL: usize = 2_000;

/// What the data of `MESSAGE_CREATE` is to a source.
pub fn created(source: &ChatSource, data: &Value) -> Content {
    let [Some(channel), Some(message_id), Some(actor)] =
        [&data["channel_id"], &data["id"], &data["author"]["id"]].map(snowflake)
    else {
        return Content::Passed(Passed::Unsupported);
    };
    let server = snowflake(&data["guild_id"]);
    // Also what this bot wrote: an agent that gets its own words back would answer them.
    if data["author"]["bot"] == true || !data["webhook_id"].is_null() {
        return Content::Passed(Passed::Bot);
    }
    let places = [Some(actor), Some(channel), server];
    let mut places = places.into_iter().flatten();
    if !places.any(|place| source.allow_from.contains(&place)) {
        return Content::Passed(Passed::NotAllowed {
            chat: channel,
            actor: Some(actor),
        });
    }
    let files = files(data);
    let content = data["content"].as_str().unwrap_or_default();
    let is_written = data["type"]
        .as_u64()
        .is_none_or(|kind| WRITTEN.contains(&kind));
    if !is_written || (content.is_empty() && files.is_empty()) {
        return Content::Passed(Passed::Unsupported);
    }
    let is_voice = data["flags"]
        .as_u64()
        .is_some_and(|flags| flags & VOICE != 0);
    let kind = match (files.is_empty(), is_voice) {
        (true, _) => "text",
        (false, true) => "voice",
        (false, false) => "file",
    };
    let mut payload = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            payload.insert(key.to_owned(), value);
        }
    };
    put("channel_id", channel.to_string().into());
    put("guild_id", json!(server.map(|id| id.to_string())));
    put("message_id", message_id.to_string().into());
    let answered = snowflake(&data["message_reference"]["message_id"]);
    put("reply_to", json!(answered.map(|id| id.to_string())));
    put("timestamp", bounded(&data["timestamp"]));
    put("username", bounded(&data["author"]["username"]));
    if let Some(file) = files.first() {
        // Where a terminal looks for it.
        put("url", file["url"].clone());
        put("attachments", files.into());
    }
    let name = data["author"]["global_name"].as_str();
    let name = name.or(data["author"]["username"].as_str());
    Content::Message(Box::new(Message {
        chat: channel,
        thread: None,
        message_id,
        actor_id: Some(actor.to_string()),
        actor_name: name.map(first).filter(|name| !name.is_empty()),
        channel_id: channel.to_string(),
        kind,
        content: content.to_owned(),
        id: format!("{channel}/{message_id}"),
        payload,
        fields: json!({
            "channel_id": channel.to_string(),
            // A direct message has none.
            "guild_id": server.unwrap_or(0).to_string(),
            "author": {"id": actor.to_string()},
        }),
    }))
}

/// Shows a channel that somebody types: the path, and what is posted there.
pub fn typing(to: &Message) -> (String, Value) {
    (format!("channels/{}/typing", to.chat), json!({}))
}

/// Answers a message. Nobody is mentioned.
pub fn answer(to: &Message, text: &str) -> (String, Value) {
    let body = json!({
        "content": text,
        "message_reference": {"message_id": to.message_id.to_string(), "fail_if_not_exists": false},
        "allowed_mentions": {"parse": []},
    });
    (format!("channels/{}/messages", to.chat), body)
}

/// An id: digits in a text.
fn snowflake(value: &Value) -> Option<i64> {
    value.as_str()?.parse().ok().filter(|id| *id > 0)
}

/// Those that have an address.
fn files(data: &Value) -> Vec<Value> {
    let given = data["attachments"].as_array().map(Vec::as_slice);
    let given = given.unwrap_or_default().iter();
    let file = |given: &Value| {
        let url = given["url"].as_str()?;
        if !url.starts_with("https://") || url.len() > LONGEST_URL {
            return None;
        }
        let mut file = json!({"url": url, "size": given["size"].as_u64()});
        for key in ["id", "filename", "content_type"] {
            file[key] = bounded(&given[key]);
        }
        Some(file)
    };
    given.take(MOST_FILES).filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> ChatSource {
        ChatSource {
            api_url: None,
            allow_from: vec![77, 500, 900],
            session: "discord-{channel_id}".to_owned(),
            edits: false,
            typing: true,
            commands: Default::default(),
            max_file_bytes: None,
        }
    }

    fn data(more: Value) -> Value {
        let mut data = json!({"id": "8812", "channel_id": "500", "type": 0, "content": "hi",
            "author": {"id": "5", "username": "ada", "global_name": "Ada"}});
        for (key, value) in more.as_object().unwrap() {
            data[key] = value.clone();
        }
        data
    }

    fn message(more: Value) -> Message {
        match created(&source(), &data(more)) {
            Content::Message(message) => *message,
            Content::Passed(why) => panic!("{why:?}"),
        }
    }

    fn passed(more: Value) -> Passed {
        match created(&source(), &data(more)) {
            Content::Passed(why) => why,
            Content::Message(message) => panic!("{message:?}"),
        }
    }

    #[test]
    fn a_message_has_its_author_channel_and_server() {
        let read = message(json!({"guild_id": "900", "message_reference": {"message_id": "8811"}}));
        assert_eq!((read.kind, read.content.as_str()), ("text", "hi"));
        assert_eq!(
            (read.id.as_str(), read.channel_id.as_str()),
            ("500/8812", "500")
        );
        assert_eq!(read.actor_name.as_deref(), Some("Ada"));
        assert!(read.payload().contains(r#""reply_to":"8811""#));
        let (path, body) = answer(&read, "done");
        assert_eq!(path, "channels/500/messages");
        assert_eq!(body["message_reference"]["message_id"], "8812");
    }

    #[test]
    fn files_come_by_their_address_and_a_recording_is_a_voice_message() {
        let file =
            json!({"id": "1", "filename": "a.png", "url": "https://cdn.example/a.png", "size": 3});
        let read = message(json!({"attachments": [file], "content": ""}));
        assert_eq!(read.kind, "file");
        assert!(
            read.payload()
                .contains(r#""url":"https://cdn.example/a.png""#)
        );
        let voice = json!({"attachments": [file], "flags": 8_192});
        assert_eq!(message(voice).kind, "voice");
        let odd = json!({"attachments": [{"url": "file:///etc/passwd"}], "content": ""});
        assert_eq!(passed(odd), Passed::Unsupported);
    }

    #[test]
    fn programs_strangers_and_what_nobody_wrote_are_passed() {
        let bot = json!({"author": {"id": "77", "bot": true}});
        assert_eq!(passed(bot), Passed::Bot);
        assert_eq!(passed(json!({"webhook_id": "1"})), Passed::Bot);
        let stranger = Passed::NotAllowed {
            chat: 6,
            actor: Some(5),
        };
        assert_eq!(passed(json!({"channel_id": "6"})), stranger);
        // By the person, and by the server.
        message(json!({"channel_id": "6", "author": {"id": "77"}}));
        message(json!({"channel_id": "6", "guild_id": "900"}));
        for none in [
            json!({"type": 7}),
            json!({"content": ""}),
            json!({"id": 5}),
            json!({"channel_id": "-500"}),
        ] {
            assert_eq!(passed(none), Passed::Unsupported);
        }
    }
}
