//! `[source.NAME]` of the file for `apply`.

use lanekeeper_core::source::{
    Action, Definition, MAX_BYTES, Signature, SourceDefinition, TOLERANCE, Template, is_source_name,
};
use lanekeeper_core::subscription::duration;
use lanekeeper_core::toml_file::Position;
use toml::de::DeValue;

use super::polled;
use super::section::Section;
use super::source_value::{SECRET_REFUSED, commands, variable};
use super::value;

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
    let definition = match section.has("poll") {
        true => Definition::Polled(polled::read(section)?),
        false => Definition::Signed(signed(section)?),
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
            _ => section.refuse_unknown(entry.offset, entry.name, &["poll"]),
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
        tolerance: (signature == Signature::Standard)
            .then(|| tolerance.map_or_else(default, duration::written)),
        max_bytes: max_bytes.unwrap_or(MAX_BYTES),
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
