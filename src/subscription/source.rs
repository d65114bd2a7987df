//! `[source.NAME]` of the file for `apply`.

use std::collections::BTreeMap;

use lanekeeper_core::source::{
    Action, Definition, Filter, MAX_BYTES, REPLY, Signature, SourceDefinition, TOLERANCE, Template,
    is_source_name,
};
use lanekeeper_core::subscription::duration;
use lanekeeper_core::toml_file::Position;
use serde_json::Value;
use toml::de::DeValue;

use super::polled;
use super::section::Section;
use super::source_value::{SECRET_REFUSED, commands, variable};
use super::value;

/// Discord takes no longer message.
const LONGEST_REPLY: usize = 2_000;

/// `[source.NAME]`.
#[derive(Clone, Debug)]
pub struct SourceSection {
    pub name: String,
    pub position: Position,
    pub definition: Definition,
}

/// Reads a section; what is wrong stays in its problems.
pub(super) fn read(name: &str, section: &mut Section<'_>) -> Option<SourceSection> {
    if !is_source_name(name) {
        section.refuse_whole(
            "a source's name starts with a-z and goes on with a-z, 0-9, _ . -, at most 63",
        );
    }
    let definition = if section.has("poll") {
        Definition::Polled(polled::polled(section)?)
    } else if section.has("webhook") {
        Definition::Webhook(polled::webhook(section)?)
    } else {
        Definition::Signed(signed(section)?)
    };
    Some(SourceSection {
        name: name.to_owned(),
        position: section.position(),
        definition,
    })
}

fn signed(section: &mut Section<'_>) -> Option<SourceDefinition> {
    let signature = section.require(
        "signature",
        value::choice(&Signature::ALL, Signature::as_str),
    );
    let secret_env = section.require("secret_env", variable);
    let session = section.require("session", template);
    let content = section.require("content", template);
    let message_id = section.take("message_id", varying);
    let channel_id = section.take("channel_id", template);
    let actor_id = section.take("actor_id", template);
    let actor_name = section.take("actor_name", template);
    let tolerance = section.take("tolerance", value::duration);
    if tolerance.is_some() && signature == Some(Signature::Github) {
        section.refuse_whole(
            "tolerance does nothing here: GitHub signs no time. A repeated body is recognised instead",
        );
    }
    let only = section.take("only", only).unwrap_or_default();
    let reply = section.take("reply", reply);
    let deferred = section.take("deferred", value::flag).unwrap_or(false);
    let has_reply = signature.is_none_or(Signature::has_reply);
    if (reply.is_some() || deferred) && !has_reply {
        section.refuse_whole("reply and deferred do nothing here: nobody reads the answer");
    } else if deferred && signature != Some(Signature::Discord) {
        section.refuse_whole("deferred is for Discord only: write a reply");
    } else if deferred && reply.is_some() {
        section.refuse_whole("either a reply, or deferred");
    }
    let max_bytes = section.take("max_bytes", value::whole(1_024..=8_388_608));
    let commands = section.take("commands", commands).unwrap_or_default();
    if commands.has(Action::Status) {
        section.refuse_whole(
            "a command can be \"status\" only where the worker can answer in the chat: of a source with `poll`",
        );
    }
    for entry in section.rest() {
        match entry.name {
            "secret" | "token" => section.refuse(entry.offset, entry.name, SECRET_REFUSED),
            _ => section.refuse_unknown(entry.offset, entry.name, &["poll", "webhook"]),
        }
    }
    let default = || TOLERANCE.to_owned();
    let signature = signature?;
    Some(SourceDefinition {
        signature,
        secret_env: secret_env?,
        session: session?,
        content: content?,
        message_id,
        channel_id,
        actor_id,
        actor_name,
        tolerance: signature
            .has_time()
            .then(|| tolerance.map_or_else(default, duration::written)),
        max_bytes: max_bytes.unwrap_or(MAX_BYTES),
        only,
        reply: (signature.has_reply() && !deferred)
            .then(|| reply.unwrap_or_else(|| REPLY.to_owned())),
        deferred,
        commands,
    })
}

fn template(value: &DeValue<'_>) -> Result<String, String> {
    let text = value::text(value)?;
    Template::parse(&text)?;
    Ok(text)
}

/// A template that distinguishes requests.
fn varying(value: &DeValue<'_>) -> Result<String, String> {
    let text = value::text(value)?;
    match Template::parse(&text)?.is_fixed() {
        true => Err("has no placeholder: every message but the first would be a duplicate".into()),
        false => Ok(text),
    }
}

/// `only = { "/a/b" = "x", "/c" = ["y", 2] }`
fn only(value: &DeValue<'_>) -> Result<BTreeMap<String, Vec<String>>, String> {
    let Value::Object(conditions) = value::json(value)? else {
        return Err("must be a table, such as { \"/action\" = \"created\" }".to_owned());
    };
    let text = |at: &str, value: Value| match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(format!(
            "at {at:?} must be text, a number, true, false, or a list of them"
        )),
    };
    let conditions = conditions.into_iter().map(|(at, value)| {
        let values = match value {
            Value::Array(values) => values,
            one => vec![one],
        };
        let values = values.into_iter().map(|value| text(&at, value));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        Ok((at, values))
    });
    let conditions = conditions.collect::<Result<_, String>>()?;
    Filter::parse(&conditions)?;
    Ok(conditions)
}

/// What platforms take as a message.
fn reply(value: &DeValue<'_>) -> Result<String, String> {
    let text = value::text(value)?;
    match text.chars().count() <= LONGEST_REPLY && !text.trim().is_empty() {
        true => Ok(text),
        false => Err(format!(
            "must be a text of at most {LONGEST_REPLY} characters"
        )),
    }
}
