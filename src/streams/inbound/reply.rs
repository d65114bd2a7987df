//! What a chat is shown beside the agent's answers: that somebody types, how its session is, why a message was not taken.
//!
//! Nothing waits for it and nothing repeats it. It is sent to people who are allowed to write, one each for a message, and
//! few at a time: what is too much is left out.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_adapters::TelegramBot;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::telegram::Message;

const MOST_AT_A_TIME: usize = 8;
const WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Replies {
    bot: Arc<TelegramBot>,
    places: Arc<Semaphore>,
}

impl Replies {
    pub(super) fn new(bot: Arc<TelegramBot>) -> Self {
        Self {
            bot,
            places: Arc::new(Semaphore::new(MOST_AT_A_TIME)),
        }
    }

    /// Shows that somebody types.
    pub(super) fn typing(&self, to: &Message) {
        let mut body = json!({"chat_id": to.chat, "action": "typing"});
        into_topic(&mut body, to);
        self.send("sendChatAction", body);
    }

    /// Answers a message.
    pub(super) fn say(&self, to: &Message, text: &str) {
        let mut body = json!({"chat_id": to.chat, "text": text});
        if let Ok(Value::Object(payload)) = serde_json::from_str(&to.payload) {
            let message_id = &payload["message_id"];
            body["reply_parameters"] =
                json!({"message_id": message_id, "allow_sending_without_reply": true});
        }
        into_topic(&mut body, to);
        self.send("sendMessage", body);
    }

    fn send(&self, method: &'static str, body: Value) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return;
        };
        let bot = Arc::clone(&self.bot);
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = bot.call(method, &body, WITHIN).await {
                tracing::debug!(method, %error, "a chat was not shown something");
            }
        });
    }
}

fn into_topic(body: &mut Value, to: &Message) {
    if let Some(thread) = to.thread {
        body["message_thread_id"] = thread.into();
    }
}
