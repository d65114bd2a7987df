//! Slack, as an app's bot (Web API).
//!
//! `chat.postMessage`, `chat.update`, `chat.delete`, and `assistant.threads.setStatus` as the typing indicator:
//! Slack has none but that, in the threads of an assistant; elsewhere none is shown. Refusals come with 200 and
//! `ok: false`. Text is mrkdwn: what an agent says can neither mention nor link anybody, for `&`, `<` and `>` are
//! escaped. `client_msg_id` is undocumented and not relied on: a message whose answer was lost is sent twice.

mod answer;

use async_trait::async_trait;
use lanekeeper_core::adapter::Server;
use lanekeeper_core::bucket::Bucket;
use serde_json::{Map, Value, json};

use self::answer::Said;
use super::chat::{
    self, Api, Bot, Chat, Outcome, Platform, PlatformLimit, PlatformRate, Target, shared_settings,
};
use super::{Environment, SettingsError, settings};

pub(super) const KIND: &str = "slack";
const API_URL: &str = "https://slack.com/api";
/// "For best results, limit the number of characters in the text field to 4,000 characters"; past 40,000 Slack
/// truncates (docs.slack.dev/reference/methods/chat.postMessage). Escaped it may be five times as long.
const LONGEST: usize = 4000;
/// "1 message per second per channel" (docs.slack.dev/apis/web-api/rate-limits).
const CHANNEL: PlatformLimit = PlatformLimit::of_chat("channel", 1, 1);
/// Beside that there is a limit of several hundred messages per minute in a workspace (the same page). The figure
/// is ours: the least that this can mean.
const WORKSPACE: PlatformLimit = PlatformLimit::of_bot("workspace", 200, 60);
/// `chat.update` is of tier 3: "50+ per minute" per method and workspace (the same page, and
/// docs.slack.dev/reference/methods/chat.update); less one for the burst.
const UPDATE: PlatformLimit = PlatformLimit::of_bot("update", 49, 60);

shared_settings! {
    struct Settings {
        token_env: String,
        api_url: Option<String>,
        channel: Option<String>,
    }
}

struct Checked {
    shared: chat::Checked,
    bot: Bot,
}

fn read(given: &Value) -> Result<Checked, SettingsError> {
    let mut given: Settings = settings::parse(KIND, given)?;
    let shared = given.shared();
    let api_url = given.api_url.as_deref();
    Ok(Checked {
        shared: shared.check(
            KIND,
            &[CHANNEL, WORKSPACE, UPDATE],
            Some(("channel", given.channel)),
        )?,
        bot: Bot::check(KIND, given.token_env, api_url, API_URL)?,
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
) -> Result<Chat<Slack>, SettingsError> {
    let checked = read(given)?;
    let api = checked
        .bot
        .open(subscription, &checked.shared, environment)?;
    Ok(Chat::new(
        Slack { api },
        checked.shared,
        environment.memory(),
    ))
}

pub(super) struct Slack {
    api: Api,
}

impl Slack {
    /// `limit`: the bucket that a refusal for haste is about.
    async fn call(&self, method: &str, body: Value, limit: Bucket) -> Result<Said, Outcome> {
        let url = self.api.url(&[method]);
        let token = self.api.credential().secret();
        let request = self.api.client.post(url).bearer_auth(token);
        let answer = self
            .api
            .call(request, &body)
            .await
            .map_err(Outcome::Failed)?;
        answer::judge(&self.api, &answer, limit)
    }
}

/// "Escape these three characters: & < >" (docs.slack.dev/messaging/formatting-message-text).
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Edits need the channel's id, which the answer to a message names, and not the name that it was sent to.
fn reference(channel: &str, ts: &str) -> String {
    format!("{channel}/{ts}")
}

/// The message that a reference is of.
fn message(target: &Target, reference: &str) -> Map<String, Value> {
    let (channel, ts) = reference
        .split_once('/')
        .unwrap_or((&target.chat, reference));
    let mut body = Map::new();
    body.insert("channel".to_owned(), channel.into());
    body.insert("ts".to_owned(), ts.into());
    body
}

/// Where replies stand: an answer to a message is a message in its thread.
fn thread(target: &Target) -> Option<&String> {
    target.thread.as_ref().or(target.reply_to.as_ref())
}

#[async_trait]
impl Platform for Slack {
    fn longest(&self) -> usize {
        LONGEST
    }

    fn server(&self) -> Option<Server> {
        self.api.server()
    }

    fn buckets(&self, target: &Target, may_edit: bool) -> Vec<Bucket> {
        let mut limits = vec![WORKSPACE, CHANNEL];
        if may_edit {
            limits.push(UPDATE);
        }
        let buckets = limits
            .iter()
            .map(|limit| self.api.bucket(limit, &target.chat));
        buckets.collect()
    }

    async fn send(&self, target: &Target, text: &str, _first: bool) -> Outcome {
        let mut body = json!({"channel": target.chat, "text": escape(text)});
        if let Some(thread) = thread(target) {
            body["thread_ts"] = thread.as_str().into();
        }
        let limit = self.api.bucket(&CHANNEL, &target.chat);
        match self.call("chat.postMessage", body, limit).await {
            Ok(Said { ts, .. }) if ts.is_empty() => Outcome::Done,
            Ok(Said { channel, ts }) => Outcome::Sent {
                reference: reference(channel.as_deref().unwrap_or(&target.chat), &ts),
            },
            Err(outcome) => outcome,
        }
    }

    async fn edit(&self, target: &Target, reference: &str, text: &str) -> Outcome {
        let mut body = message(target, reference);
        body.insert("text".to_owned(), escape(text).into());
        let said = self.call("chat.update", body.into(), self.api.bucket(&UPDATE, ""));
        said.await.map_or_else(|outcome| outcome, |_| Outcome::Done)
    }

    async fn delete(&self, target: &Target, reference: &str) -> Outcome {
        let body = message(target, reference);
        let limit = self.api.bucket(&CHANNEL, &target.chat);
        match self.call("chat.delete", body.into(), limit).await {
            Ok(_) | Err(Outcome::Missing) => Outcome::Done,
            Err(outcome) => outcome,
        }
    }

    fn can_type(&self, target: &Target) -> bool {
        thread(target).is_some()
    }

    async fn show_typing(&self, target: &Target) {
        let Some(thread) = thread(target) else {
            return;
        };
        let body = json!({"channel_id": target.chat, "thread_ts": thread, "status": "is typing…"});
        // An indicator that is not shown harms nobody; what is wrong the message itself will meet.
        let limit = self.api.bucket(&CHANNEL, &target.chat);
        let _ = self.call("assistant.threads.setStatus", body, limit).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_by_key_and_no_token_is_repeated() {
        let refusal = |given: Value| check(&given).unwrap_err().to_string();
        let error = refusal(json!({"token_env": "xoxb-17653672481-19874698323", "channel": "C1"}));
        assert!(
            error.contains("`token_env`") && !error.contains("17653672481"),
            "{error}"
        );
        assert!(refusal(json!({"token_env": "T"})).contains("`channel`"));
        check(&json!({"token_env": "T", "chat_from": "/channel", "rates": {"channel": "2/s"}}))
            .unwrap();
    }

    #[test]
    fn what_slack_has_a_use_for_is_escaped() {
        assert_eq!(
            escape("<!channel> & <@U1>"),
            "&lt;!channel&gt; &amp; &lt;@U1&gt;"
        );
    }
}
