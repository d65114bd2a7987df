//! What a chat is shown beside the agent's answers: that somebody types, how its session is, why a message was not taken.
//!
//! Nothing waits for it and nothing repeats it. It is sent to people who are allowed to write, one each for a message, and
//! few at a time: what is too much is left out.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_adapters::{BotError, DiscordBot, TelegramBot};
use lanekeeper_core::source::chat::Message;
use lanekeeper_core::source::{discord, telegram};
use serde_json::Value;
use tokio::sync::Semaphore;

const MOST_AT_A_TIME: usize = 8;
const WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Replies {
    bot: Bot,
    places: Arc<Semaphore>,
}

#[derive(Clone)]
enum Bot {
    Telegram(Arc<TelegramBot>),
    Discord(Arc<DiscordBot>),
}

impl Bot {
    /// To a method, or a path.
    async fn send(&self, to: &str, body: &Value) -> Result<Value, BotError> {
        match self {
            Self::Telegram(bot) => bot.call(to, body, WITHIN).await,
            Self::Discord(bot) => bot.call(to, Some(body), WITHIN).await,
        }
    }
}

impl Replies {
    pub(super) fn telegram(bot: Arc<TelegramBot>) -> Self {
        Self::of(Bot::Telegram(bot))
    }

    pub(super) fn discord(bot: Arc<DiscordBot>) -> Self {
        Self::of(Bot::Discord(bot))
    }

    fn of(bot: Bot) -> Self {
        let places = Arc::new(Semaphore::new(MOST_AT_A_TIME));
        Self { bot, places }
    }

    /// Shows that somebody types.
    pub(super) fn typing(&self, to: &Message) {
        let (to, body) = match &self.bot {
            Bot::Telegram(_) => owned(telegram::typing(to)),
            Bot::Discord(_) => discord::typing(to),
        };
        self.send(to, body);
    }

    /// Answers a message.
    pub(super) fn say(&self, to: &Message, text: &str) {
        let (to, body) = match &self.bot {
            Bot::Telegram(_) => owned(telegram::answer(to, text)),
            Bot::Discord(_) => discord::answer(to, text),
        };
        self.send(to, body);
    }

    fn send(&self, to: String, body: Value) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return;
        };
        let bot = self.bot.clone();
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = bot.send(&to, &body).await {
                tracing::debug!(to, %error, "a chat was not shown something");
            }
        });
    }
}

fn owned((method, body): (&str, Value)) -> (String, Value) {
    (method.to_owned(), body)
}
