//! `[source.NAME]` with `poll`: a platform that a worker asks.

use lanekeeper_adapters::TelegramBot;
use lanekeeper_core::source::{Platform, PolledSource};
use toml::de::DeValue;

use super::section::Section;
use super::source_value::{SECRET_REFUSED, commands, variable};
use super::value;

/// People and chats of one source.
const MOST_ALLOWED: usize = 1_000;

/// Reads a section; what is wrong stays in its problems.
pub(super) fn read(section: &mut Section<'_>) -> Option<PolledSource> {
    let poll = section.require("poll", value::choice(&Platform::ALL, Platform::as_str));
    let token_env = section.require("token_env", variable);
    let api_url = section.take("api_url", api_url);
    let allow_from = section.require("allow_from", ids);
    let session = section.require("session", |value: &DeValue<'_>| {
        let text = value::text(value)?;
        poll.unwrap_or(Platform::Telegram).template(&text)?;
        Ok(text)
    });
    let edits = section.take("edits", value::flag);
    let typing = section.take("typing", value::flag);
    let commands = section.take("commands", commands);
    for entry in section.rest() {
        match entry.name {
            "secret" | "token" => section.refuse(entry.offset, entry.name, SECRET_REFUSED),
            "signature" | "secret_env" => section.refuse(
                entry.offset,
                entry.name,
                "a source either has `poll` and a `token_env`, or takes requests with a `signature` and a `secret_env`",
            ),
            _ => section.refuse_unknown(entry.offset, entry.name, &[]),
        }
    }
    Some(PolledSource {
        poll: poll?,
        token_env: token_env?,
        api_url,
        allow_from: allow_from?,
        session: session?,
        edits: edits.unwrap_or(false),
        typing: typing.unwrap_or(true),
        commands: commands.unwrap_or_default(),
    })
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
