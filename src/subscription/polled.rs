//! `[source.NAME]` of a bot: with `poll` a worker asks its platform, with `webhook` the platform sends updates.

use lanekeeper_adapters::TelegramBot;
use lanekeeper_core::source::{ChatSource, MAX_FILE_BYTES, Platform, PolledSource, WebhookSource};
use toml::de::DeValue;

use super::section::Section;
use super::source_value::{SECRET_REFUSED, commands, variable};
use super::value;

/// People and chats of one source.
const MOST_ALLOWED: usize = 1_000;
/// Names of bots are shorter.
const LONGEST_BOT_NAME: usize = 64;

/// Reads a section with `poll`; what is wrong stays in its problems.
pub(super) fn polled(section: &mut Section<'_>) -> Option<PolledSource> {
    let poll = section.require("poll", value::choice(&Platform::ALL, Platform::as_str));
    let token_env = section.require("token_env", variable);
    let chat = chat(section, poll);
    for entry in section.rest() {
        match entry.name {
            "secret" | "token" => section.refuse(entry.offset, entry.name, SECRET_REFUSED),
            "signature" | "secret_env" | "webhook" => section.refuse(
                entry.offset,
                entry.name,
                "a source either has `poll` and a `token_env`, or takes requests, with a `signature` or `webhook` and a `secret_env`",
            ),
            _ => section.refuse_unknown(entry.offset, entry.name, &[]),
        }
    }
    Some(PolledSource {
        poll: poll?,
        token_env: token_env?,
        chat: chat?,
    })
}

/// Reads a section with `webhook`; what is wrong stays in its problems.
pub(super) fn webhook(section: &mut Section<'_>) -> Option<WebhookSource> {
    let webhook = section.require(
        "webhook",
        value::choice(&Platform::WEBHOOKS, Platform::as_str),
    );
    let secret_env = section.require("secret_env", variable);
    let token_env = section.take("token_env", variable);
    let bot_name = section.take("bot_name", bot_name);
    let chat = chat(section, webhook);
    if let Some(chat) = &chat {
        let fetches = chat.max_file_bytes.is_some();
        if fetches && token_env.is_none() {
            section.refuse_whole(
                "attachments are fetched with the bot's token: name its variable with token_env",
            );
        } else if !fetches && (token_env.is_some() || chat.api_url.is_some()) {
            section.refuse_whole(
                "token_env and api_url do nothing here: with `webhook` the bot is asked for attachments only",
            );
        }
    }
    for entry in section.rest() {
        match entry.name {
            "secret" | "token" => section.refuse(entry.offset, entry.name, SECRET_REFUSED),
            "signature" => section.refuse(
                entry.offset,
                entry.name,
                "Telegram signs nothing: with `webhook` it shows the secret that secret_env names",
            ),
            _ => section.refuse_unknown(entry.offset, entry.name, &["poll"]),
        }
    }
    Some(WebhookSource {
        webhook: webhook?,
        secret_env: secret_env?,
        token_env,
        bot_name,
        chat: chat?,
    })
}

/// What both have.
fn chat(section: &mut Section<'_>, platform: Option<Platform>) -> Option<ChatSource> {
    let api_url = section.take("api_url", api_url);
    let allow_from = section.require("allow_from", ids);
    let session = section.require("session", |value: &DeValue<'_>| {
        let text = value::text(value)?;
        platform.unwrap_or(Platform::Telegram).template(&text)?;
        Ok(text)
    });
    let edits = section.take("edits", value::flag);
    let typing = section.take("typing", value::flag);
    let commands = section.take("commands", commands);
    let fetches = section.take("attachments", value::flag).unwrap_or(false);
    if platform == Some(Platform::Discord) && (edits.is_some() || fetches) {
        section.refuse_whole("edits and attachments are of Telegram only");
    }
    let max_file_bytes = section.take("max_file_bytes", value::whole(1_024..=2_147_483_648));
    if max_file_bytes.is_some() && !fetches {
        section.refuse_whole("max_file_bytes does nothing here without `attachments = true`");
    }
    Some(ChatSource {
        api_url,
        allow_from: allow_from?,
        session: session?,
        edits: edits.unwrap_or(false),
        typing: typing.unwrap_or(true),
        commands: commands.unwrap_or_default(),
        max_file_bytes: fetches.then(|| max_file_bytes.unwrap_or(MAX_FILE_BYTES)),
    })
}

fn bot_name(value: &DeValue<'_>) -> Result<String, String> {
    let name = value::text(value)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match name.len() <= LONGEST_BOT_NAME && name.chars().all(is_name) {
        true => Ok(name),
        false => Err("must be the bot's name without @, such as my_bot".to_owned()),
    }
}

/// The base of a Bot API server of the operator's own.
fn api_url(value: &DeValue<'_>) -> Result<String, String> {
    let text = value::text(value)?;
    TelegramBot::check_url(&text)?;
    Ok(text)
}

fn ids(value: &DeValue<'_>) -> Result<Vec<i64>, String> {
    let wanted = "must be a list of numbers: ids of people and chats, such as [77, -1001234]";
    let entries = value.as_array().ok_or(wanted)?;
    if entries.len() > MOST_ALLOWED {
        return Err(format!("must have at most {MOST_ALLOWED} entries"));
    }
    let id = |value: &DeValue<'_>| {
        let digits = value.as_integer()?;
        i64::from_str_radix(digits.as_str(), digits.radix()).ok()
    };
    let ids = entries.iter().map(|entry| id(entry.get_ref()));
    ids.collect::<Option<_>>().ok_or_else(|| wanted.to_owned())
}
