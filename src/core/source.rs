//! A source: a platform whose requests, or whose answers to a worker that asks, become messages to agents. What
//! `[source.NAME]` of the file for `apply` says of it, and the templates that make a message of a request.

pub mod chat;
mod command;
pub mod discord;
mod filter;
mod polled;
pub mod telegram;
mod template;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use command::{Action, Commands};
pub use filter::Filter;
pub use polled::{ChatSource, MAX_FILE_BYTES, Platform, PolledSource, WebhookSource};
pub use template::{Missing, Request, Template};

/// The longest body of a request, unless the file says otherwise.
pub const MAX_BYTES: u32 = 1_048_576;
/// How old a signed timestamp may be, unless the file says otherwise.
pub const TOLERANCE: &str = "5m";
/// What a person is answered who gave a command, unless the file says otherwise.
pub const REPLY: &str = "Sent to the agent.";

/// How a source's requests are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signature {
    /// Standard Webhooks: HMAC-SHA256 over id, timestamp and body.
    Standard,
    /// `X-Hub-Signature-256`: HMAC-SHA256 over the body.
    Github,
    /// `X-Slack-Signature`: HMAC-SHA256 over timestamp and body.
    Slack,
    /// `X-Signature-Ed25519`: Ed25519 over timestamp and body.
    Discord,
}

impl Signature {
    pub const ALL: [Self; 4] = [Self::Standard, Self::Github, Self::Slack, Self::Discord];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Github => "github",
            Self::Slack => "slack",
            Self::Discord => "discord",
        }
    }

    /// Whether it covers the time at which a request was signed.
    pub fn has_time(self) -> bool {
        self != Self::Github
    }

    /// The template by which a repeated request is recognised, unless the file says otherwise. `None`: what is signed.
    pub fn message_id(self) -> Option<&'static str> {
        match self {
            Self::Standard | Self::Github => None,
            // Of an event, and of a command.
            Self::Slack => Some("{/event_id|/trigger_id}"),
            Self::Discord => Some("{/id}"),
        }
    }

    /// Whether somebody reads the answer to his request.
    pub fn has_reply(self) -> bool {
        matches!(self, Self::Slack | Self::Discord)
    }
}

/// A source as the database keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Definition {
    /// A worker asks its platform.
    Polled(PolledSource),
    /// Its platform sends a bot's updates.
    Webhook(WebhookSource),
    /// Its platform sends requests.
    Signed(SourceDefinition),
}

impl Definition {
    /// What it speaks: its platform, or how its requests are signed.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Polled(polled) => match polled.poll {
                Platform::Telegram => "telegram",
                Platform::Discord => "discord gateway",
            },
            Self::Webhook(_) => "telegram webhook",
            Self::Signed(signed) => signed.signature.as_str(),
        }
    }

    /// The variable with its secret.
    pub fn secret_env(&self) -> &str {
        match self {
            Self::Polled(polled) => &polled.token_env,
            Self::Webhook(webhook) => &webhook.secret_env,
            Self::Signed(signed) => &signed.secret_env,
        }
    }

    /// The template of its sessions.
    pub fn session(&self) -> &str {
        match self {
            Self::Polled(polled) => &polled.chat.session,
            Self::Webhook(webhook) => &webhook.chat.session,
            Self::Signed(signed) => &signed.session,
        }
    }
}

/// A source of signed requests as the database keeps it. Templates are kept as they were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceDefinition {
    pub signature: Signature,
    /// The worker's variable that has the secret, or with `_FILE` behind it the secret's file.
    pub secret_env: String,
    pub session: String,
    pub content: String,
    /// `None`: what the signature covers names the message.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub channel_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actor_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actor_name: Option<String>,
    /// A duration. `None`: the signature has no timestamp.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tolerance: Option<String>,
    pub max_bytes: u32,
    /// See [`Filter`]. Empty: every verified request is a message.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub only: BTreeMap<String, Vec<String>>,
    /// What a person is answered who gave a command. `None`: nobody is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reply: Option<String>,
    /// Of Discord: a program answers the person later, in place of `reply`.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub deferred: bool,
    /// What messages that begin with a command do.
    #[serde(skip_serializing_if = "Commands::is_empty", default)]
    pub commands: Commands,
}

/// Whether a source may be called so: its name is the origin of its messages.
pub fn is_source_name(name: &str) -> bool {
    name.len() <= 63
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b))
}
