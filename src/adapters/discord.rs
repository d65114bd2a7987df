//! Discord: a webhook of a channel, or a bot (API v10).
//!
//! A webhook's URL is its secret; `?wait=true` makes Discord return the message's id. A bot may write in any channel
//! that it is in, answer messages and show a typing indicator. No message pings anybody, whatever its text.
//!
//! Discord sends its limits with each answer and asks clients not to hard-code them. The rates below apply until the
//! first answer.

mod answer;
mod gateway;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::Server;
use lanekeeper_core::bucket::Bucket;
use reqwest::Method;
use serde_json::{Value, json};
use url::Url;

use self::answer::Said;
use super::chat::{
    self, Api, Bot, Chat, Credential, Outcome, Platform, PlatformLimit, PlatformRate, Target,
    shared_settings,
};
use super::{Environment, SettingsError, settings};

pub use self::gateway::{Closed, DiscordBot, Frame, Gateway};

pub(super) const KIND: &str = "discord";
const API_URL: &str = "https://discord.com/api/v10";
/// "Message contents (up to 2000 characters)" (discord.com/developers/docs/resources/message#create-message).
const LONGEST: usize = 2000;
/// "All bots can make up to 50 requests per second" (discord.com/developers/docs/topics/rate-limits); less
/// one for the burst.
const BOT: PlatformLimit = PlatformLimit::of_bot("bot", 49, 1);
/// Of a channel or webhook, until Discord has told. The figure is ours, for Discord gives none: "rate
/// limits should not be hard coded into your app" (the same page).
const CHANNEL: PlatformLimit = PlatformLimit::of_chat("channel", 1, 1);

shared_settings! {
    struct Settings {
        url_env: Option<String>,
        token_env: Option<String>,
        api_url: Option<String>,
        channel: Option<String>,
    }
}

/// The variable with the secret.
enum Access {
    Webhook { url_env: String },
    Bot(Bot),
}

struct Checked {
    shared: chat::Checked,
    access: Access,
}

fn read(given: &Value) -> Result<Checked, SettingsError> {
    let mut given: Settings = settings::parse(KIND, given)?;
    let shared = given.shared();
    let refused = |key: &str, reason: &str| Err(SettingsError::invalid(KIND, key, reason));
    let (access, place) = match (given.url_env, given.token_env) {
        (Some(url_env), None) => {
            for (key, is_given) in [
                ("channel", given.channel.is_some()),
                ("api_url", given.api_url.is_some()),
                ("typing", shared.typing == Some(true)),
                ("reply_to_from", shared.reply_to_from.is_some()),
            ] {
                if is_given {
                    return refused(key, "a webhook cannot: use a bot, with token_env");
                }
            }
            let url_env = chat::variable(KIND, "url_env", url_env)?;
            (Access::Webhook { url_env }, None)
        }
        (None, Some(token_env)) => {
            let bot = Bot::check(KIND, token_env, given.api_url.as_deref(), API_URL)?;
            (Access::Bot(bot), Some(("channel", given.channel)))
        }
        _ => {
            let reason = "name either the variable with a webhook's URL (url_env) or with a bot's token (token_env)";
            return refused("url_env", reason);
        }
    };
    Ok(Checked {
        shared: shared.check(KIND, &[BOT, CHANNEL], place)?,
        access,
    })
}

pub(super) fn check(given: &Value) -> Result<(), SettingsError> {
    read(given).map(drop)
}

pub(super) fn rates(given: &Value) -> Result<Vec<PlatformRate>, SettingsError> {
    read(given).map(|checked| {
        let secret_env = match &checked.access {
            Access::Webhook { url_env } => url_env,
            Access::Bot(bot) => &bot.token_env,
        };
        checked.shared.platform_rates(secret_env)
    })
}

pub(super) fn build(
    subscription: &str,
    given: &Value,
    environment: &Environment,
) -> Result<Chat<Discord>, SettingsError> {
    let checked = read(given)?;
    let is_bot = matches!(checked.access, Access::Bot(_));
    let shared = &checked.shared;
    let api = match checked.access {
        Access::Bot(bot) => bot.open(subscription, shared, environment)?,
        Access::Webhook { url_env } => {
            let secret = Credential::of_environment(subscription, &url_env, environment)?;
            let url = webhook_url(subscription, &url_env, secret.secret())?;
            let token = Credential::of_url(&url);
            Api::open(shared, "url_env", url, token, subscription, environment)?
        }
    };
    let discord = Discord {
        api,
        is_bot,
        learned: Mutex::default(),
    };
    Ok(Chat::new(discord, checked.shared, environment.memory()))
}

/// A webhook's URL, which is not repeated where it cannot be used.
fn webhook_url(subscription: &str, variable: &str, secret: &str) -> Result<Url, SettingsError> {
    let refused = |reason| SettingsError::Token {
        subscription: subscription.to_owned(),
        variable: variable.to_owned(),
        reason,
    };
    let url = Url::parse(secret).map_err(|_| refused("it must be the webhook's whole URL"))?;
    chat::secure(&url).map_err(refused)?;
    if url.query().is_some() || Credential::of_url(&url).secret().is_empty() {
        return Err(refused("it must be the webhook's URL as Discord shows it"));
    }
    Ok(url)
}

pub(super) struct Discord {
    api: Api,
    /// Not a webhook, whose URL the API's is then.
    is_bot: bool,
    learned: Mutex<Vec<(Bucket, Duration)>>,
}

impl Discord {
    fn bot_bucket(&self) -> Bucket {
        self.api.bucket(&BOT, "")
    }

    /// Discord counts by route and by the channel or webhook that it is about; a thread is a channel.
    fn channel_bucket(&self, target: &Target) -> Bucket {
        self.api.bucket(&CHANNEL, self.channel(target))
    }

    fn channel<'t>(&self, target: &'t Target) -> &'t str {
        match self.is_bot {
            true => target.thread.as_deref().unwrap_or(&target.chat),
            false => "",
        }
    }

    /// The URL of a channel's messages, or of the webhook, with more segments behind it.
    fn messages(&self, target: &Target, more: &[&str]) -> Url {
        let mut url = match self.is_bot {
            true => {
                let channel = ["channels", self.channel(target)];
                self.api.url(&[&channel, more].concat())
            }
            false => self.api.url(more),
        };
        if !self.is_bot
            && let Some(thread) = &target.thread
        {
            url.query_pairs_mut().append_pair("thread_id", thread);
        }
        url
    }

    async fn call(
        &self,
        method: Method,
        url: Url,
        body: Value,
        target: &Target,
    ) -> Result<Said, Outcome> {
        let mut request = self.api.client.request(method, url);
        if self.is_bot {
            let token = format!("Bot {}", self.api.credential().secret());
            request = request.header("authorization", token);
        }
        let answer = self
            .api
            .call(request, &body)
            .await
            .map_err(Outcome::Failed)?;
        let channel = self.channel_bucket(target);
        if let Some(silence) = answer::used_up(&answer.headers) {
            self.learn(channel.clone(), silence);
        }
        let judged = answer::judge(&self.api, &answer, self.is_bot);
        judged.map_err(|trouble| {
            trouble.outcome(channel, self.bot_bucket(), |bucket, pause| {
                self.learn(bucket, pause);
            })
        })
    }

    fn learn(&self, bucket: Bucket, silence: Duration) {
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learned.push((bucket, silence));
    }
}

fn content(text: &str) -> Value {
    // "Allowed mentions": none, or an agent's words could call everyone.
    json!({"content": text, "allowed_mentions": {"parse": [], "replied_user": false}})
}

#[async_trait]
impl Platform for Discord {
    fn longest(&self) -> usize {
        LONGEST
    }

    fn server(&self) -> Option<Server> {
        self.api.server()
    }

    fn buckets(&self, target: &Target, _may_edit: bool) -> Vec<Bucket> {
        vec![self.bot_bucket(), self.channel_bucket(target)]
    }

    async fn send(&self, target: &Target, text: &str, first: bool) -> Outcome {
        let mut body = content(text);
        let url = match self.is_bot {
            true => {
                if let Some(reply_to) = target.reply_to.as_ref().filter(|_| first) {
                    body["message_reference"] =
                        json!({"message_id": reply_to, "fail_if_not_exists": false});
                }
                self.messages(target, &["messages"])
            }
            false => {
                let mut url = self.messages(target, &[]);
                url.query_pairs_mut().append_pair("wait", "true");
                url
            }
        };
        match self.call(Method::POST, url, body, target).await {
            Ok(Said::Message { id }) => Outcome::Sent { reference: id },
            Ok(Said::Yes) => Outcome::Done,
            Err(outcome) => outcome,
        }
    }

    async fn edit(&self, target: &Target, reference: &str, text: &str) -> Outcome {
        let url = self.messages(target, &["messages", reference]);
        let said = self.call(Method::PATCH, url, content(text), target).await;
        said.map_or_else(|outcome| outcome, |_| Outcome::Done)
    }

    async fn delete(&self, target: &Target, reference: &str) -> Outcome {
        let url = self.messages(target, &["messages", reference]);
        match self.call(Method::DELETE, url, json!({}), target).await {
            Ok(_) | Err(Outcome::Missing) => Outcome::Done,
            Err(outcome) => outcome,
        }
    }

    fn can_type(&self, _target: &Target) -> bool {
        self.is_bot
    }

    async fn show_typing(&self, target: &Target) {
        let url = self.messages(target, &["typing"]);
        // An indicator that is not shown harms nobody; what is wrong the message itself will meet.
        let _ = self.call(Method::POST, url, json!({}), target).await;
    }

    fn learned(&self) -> Vec<(Bucket, Duration)> {
        std::mem::take(&mut *self.learned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(given: Value) -> String {
        check(&given).unwrap_err().to_string()
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_key() {
        assert!(refusal(json!({})).contains("either the variable"));
        let both = json!({"url_env": "U", "token_env": "T", "channel": "1"});
        assert!(refusal(both).contains("either the variable"));
        assert!(refusal(json!({"token_env": "T"})).contains("`channel`"));
        for key in ["channel", "reply_to_from"] {
            let error = refusal(json!({"url_env": "U", key: "/1"}));
            assert!(
                error.contains(key) && error.contains("a webhook cannot"),
                "{error}"
            );
        }
        let secret = json!({"url_env": "https://discord.com/api/webhooks/1/abc"});
        assert!(!refusal(secret).contains("abc"));
        check(&json!({"url_env": "U", "thread_from": "/thread"})).unwrap();
    }

    #[test]
    fn a_webhooks_url_is_judged_and_not_repeated() {
        let built = |url: &str| {
            let environment = Environment::with_variables(true, [("U", url)]);
            build("out", &json!({"url_env": "U"}), &environment).map(drop)
        };
        for url in [
            "abc",
            "http://discord.com/api/webhooks/1/abc",
            "https://d.example/abc?wait=1",
            "https://abc.example/",
        ] {
            let error = built(url).unwrap_err().to_string();
            assert!(
                error.contains("`out`") && error.contains('U') && !error.contains("abc"),
                "{error}"
            );
        }
        built("http://127.0.0.1:1/api/webhooks/1/abc").unwrap();
    }
}
