//! Telegram, as a bot (Bot API 7 and later).
//!
//! One request each: `sendMessage`, `editMessageText`, `deleteMessage`, `sendChatAction`. The token stands in
//! the URL, so no URL ever enters an error. The Bot API has no key by which a repeated `sendMessage` could be
//! recognised: a message whose answer was lost is sent twice.

mod answer;
mod bot;
mod markdown;

use async_trait::async_trait;
use lanekeeper_core::adapter::Server;
use lanekeeper_core::bucket::Bucket;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::answer::Said;
use super::chat::{
    self, Api, Bot, Chat, Outcome, Platform, PlatformLimit, PlatformRate, Target, shared_settings,
};
use super::{Environment, SettingsError, settings};

pub use self::bot::{BotError, TelegramBot};

pub(super) const KIND: &str = "telegram";
const API_URL: &str = "https://api.telegram.org";
/// UTF-16 code units of a message (core.telegram.org/bots/api#sendmessage).
const LONGEST: usize = 4096;
/// "The API will not allow bulk notifications to more than ~30 users per second"
/// (core.telegram.org/bots/faq); a bucket lets its burst of 1 through beyond its rate.
const BOT: PlatformLimit = PlatformLimit::of_bot("bot", 29, 1);
/// "Avoid sending more than one message per second" in one chat (core.telegram.org/bots/faq).
const CHAT: PlatformLimit = PlatformLimit::of_chat("chat", 1, 1);
/// "Bots are not able to send more than 20 messages per minute" to a group (core.telegram.org/bots/faq);
/// that edits count is what users see, not Telegram's word. Less one for the burst, and one for what two clocks differ in.
const GROUP: PlatformLimit = PlatformLimit::of_chat("group", 18, 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Plain,
    Markdown,
}

shared_settings! {
    struct Settings {
        token_env: String,
        api_url: Option<String>,
        chat: Option<String>,
        format: Option<Format>,
    }
}

struct Checked {
    shared: chat::Checked,
    bot: Bot,
    format: Format,
}

fn read(given: &Value) -> Result<Checked, SettingsError> {
    let mut given: Settings = settings::parse(KIND, given)?;
    let shared = given.shared();
    let api_url = given.api_url.as_deref();
    Ok(Checked {
        shared: shared.check(KIND, &[BOT, CHAT, GROUP], Some(("chat", given.chat)))?,
        bot: Bot::check(KIND, given.token_env, api_url, API_URL)?,
        format: given.format.unwrap_or(Format::Plain),
    })
}

pub(super) fn rates(given: &Value) -> Result<Vec<PlatformRate>, SettingsError> {
    read(given).map(|checked| checked.shared.platform_rates(&checked.bot.token_env))
}

pub(super) fn check(given: &Value) -> Result<(), SettingsError> {
    read(given).map(drop)
}

pub(super) fn build(
    subscription: &str,
    given: &Value,
    environment: &Environment,
) -> Result<Chat<Telegram>, SettingsError> {
    let checked = read(given)?;
    let api = checked
        .bot
        .open(subscription, &checked.shared, environment)?;
    let telegram = Telegram {
        bot: format!("bot{}", api.credential().secret()),
        api,
        format: checked.format,
    };
    Ok(Chat::new(telegram, checked.shared, environment.memory()))
}

pub(super) struct Telegram {
    api: Api,
    /// What URLs name it by: its token.
    bot: String,
    format: Format,
}

/// What a request is for: the same refusal means different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Send,
    Edit,
    Delete,
}

impl Telegram {
    async fn call(
        &self,
        method: &str,
        body: Value,
        target: &Target,
        purpose: Purpose,
    ) -> Result<Said, Outcome> {
        let url = self.api.url(&[&self.bot, method]);
        let request = self.api.client.post(url);
        let answer = self
            .api
            .call(request, &body)
            .await
            .map_err(Outcome::Failed)?;
        answer::judge(&self.api, &answer, purpose, || {
            self.api.bucket(&CHAT, &target.chat)
        })
    }

    /// Says it in the subscription's format, or plainly where Telegram cannot read that.
    async fn say(
        &self,
        method: &str,
        mut body: Map<String, Value>,
        text: &str,
        target: &Target,
        purpose: Purpose,
    ) -> Outcome {
        if self.format == Format::Markdown {
            let mut marked = body.clone();
            marked.insert("text".to_owned(), markdown::escape(text).into());
            marked.insert("parse_mode".to_owned(), "MarkdownV2".into());
            match self.call(method, marked.into(), target, purpose).await {
                Ok(Said::Unparsable) => {}
                said => return outcome(said),
            }
        }
        body.insert("text".to_owned(), text.into());
        outcome(self.call(method, body.into(), target, purpose).await)
    }
}

fn outcome(said: Result<Said, Outcome>) -> Outcome {
    match said {
        Ok(Said::Message { id }) => Outcome::Sent {
            reference: id.to_string(),
        },
        Ok(Said::Yes | Said::Unparsable) => Outcome::Done,
        Err(outcome) => outcome,
    }
}

/// Telegram's ids are numbers; names of public chats begin with @.
fn id(name: &str) -> Value {
    name.parse::<i64>()
        .map_or_else(|_| name.into(), Value::from)
}

/// A request about this chat, and topic.
fn about(target: &Target) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("chat_id".to_owned(), id(&target.chat));
    body
}

fn into_topic(body: &mut Map<String, Value>, target: &Target) {
    if let Some(thread) = &target.thread {
        body.insert("message_thread_id".to_owned(), id(thread));
    }
}

#[async_trait]
impl Platform for Telegram {
    fn longest(&self) -> usize {
        LONGEST
    }

    fn server(&self) -> Option<Server> {
        self.api.server()
    }

    fn buckets(&self, target: &Target, _may_edit: bool) -> Vec<Bucket> {
        let chat = &target.chat;
        let mut limits = vec![BOT, CHAT];
        // Groups have negative ids; what has a name is a channel or a public group.
        if chat.starts_with(['-', '@']) {
            limits.push(GROUP);
        }
        let buckets = limits.iter().map(|limit| self.api.bucket(limit, chat));
        buckets.collect()
    }

    async fn send(&self, target: &Target, text: &str, first: bool) -> Outcome {
        let mut body = about(target);
        into_topic(&mut body, target);
        if let Some(reply_to) = target.reply_to.as_ref().filter(|_| first) {
            let reply = json!({"message_id": id(reply_to), "allow_sending_without_reply": true});
            body.insert("reply_parameters".to_owned(), reply);
        }
        self.say("sendMessage", body, text, target, Purpose::Send)
            .await
    }

    async fn edit(&self, target: &Target, reference: &str, text: &str) -> Outcome {
        let mut body = about(target);
        body.insert("message_id".to_owned(), id(reference));
        match self
            .say("editMessageText", body, text, target, Purpose::Edit)
            .await
        {
            // It is called what it was called before.
            Outcome::Sent { .. } => Outcome::Done,
            outcome => outcome,
        }
    }

    async fn delete(&self, target: &Target, reference: &str) -> Outcome {
        let mut body = about(target);
        body.insert("message_id".to_owned(), id(reference));
        let said = self.call("deleteMessage", body.into(), target, Purpose::Delete);
        outcome(said.await)
    }

    fn can_type(&self, _target: &Target) -> bool {
        true
    }

    async fn show_typing(&self, target: &Target) {
        let mut body = about(target);
        into_topic(&mut body, target);
        body.insert("action".to_owned(), "typing".into());
        // An indicator that is not shown harms nobody; what is wrong the message itself will meet.
        let _ = self
            .call("sendChatAction", body.into(), target, Purpose::Send)
            .await;
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::adapter::Adapter;

    use super::*;

    fn refusal(given: Value) -> String {
        check(&given).unwrap_err().to_string()
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_key_and_no_token_is_repeated() {
        let error = refusal(json!({"token_env": "110201543:AAHdqTcvCH1vGW", "chat": "1"}));
        assert!(
            error.contains("`token_env`") && !error.contains("AAHdq"),
            "{error}"
        );
        assert!(refusal(json!({"token_env": "T"})).contains("`chat`"));
        let twice = json!({"token_env": "T", "chat": "1", "chat_from": "/c"});
        assert!(refusal(twice).contains("keep one"));
        let plain = json!({"token_env": "T", "chat": "1", "api_url": "http://bots.example"});
        assert!(refusal(plain).contains("must be https"));
        let rate = json!({"token_env": "T", "chat": "1", "rates": {"group": "fast"}});
        assert!(refusal(rate).contains("is not a rate"));
        let pointer = json!({"token_env": "T", "chat_from": "chat"});
        assert!(refusal(pointer).contains("JSON pointer"));
        let local = json!({"token_env": "T", "chat": "1", "api_url": "http://127.0.0.1:8081"});
        check(&local).unwrap();
    }

    #[test]
    fn a_group_has_a_limit_of_its_own_and_no_bucket_shows_the_token() {
        let environment = Environment::with_variables(true, [("T", "12:secret")]);
        let given =
            json!({"token_env": "T", "chat_from": "/chat", "api_url": "http://127.0.0.1:1"});
        let chat = build("out", &given, &environment).unwrap();
        let buckets = |chat_id: &str| {
            let target = Target {
                chat: chat_id.to_owned(),
                thread: None,
                reply_to: None,
            };
            chat.platform().buckets(&target, false)
        };
        assert_eq!(buckets("7").len(), 2);
        let group = buckets("-100");
        let rates: Vec<_> = group.iter().map(|one| one.rate.to_string()).collect();
        assert_eq!(rates, ["29/s", "1/s", "18/min"]);
        assert!(group.iter().all(|one| !one.key.contains("secret")));
        assert!(chat.is_paced() && chat.shows_progress());
    }
}
