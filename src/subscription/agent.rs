//! `[stream.NAME.a2a]` of the file for `apply`: the agent that the stream is for callers who speak A2A.

use lanekeeper_core::subscription::agent::{
    AgentDefinition, CompleteOn, EVENT_TYPE, LONGEST_WAIT, Skill, WAIT,
};
use lanekeeper_core::subscription::duration;
use toml::de::DeValue;
use url::Url;

use super::section::Section;
use super::value;

/// Skills of an agent: its card goes to everybody who asks.
const MOST_SKILLS: usize = 50;
/// Bytes of a text of the card.
const LONGEST_TEXT: usize = 2_000;
const LONGEST_EVENT_TYPE: usize = 200;

/// Takes the key of a stream's section. `None`: the file does not say; `Some(None)`: the stream is no agent.
pub(super) fn take(stream: &str, of: &mut Section<'_>) -> Option<Option<AgentDefinition>> {
    let value = of.remove("a2a")?;
    let offset = value.span().start;
    match value.get_ref() {
        DeValue::Boolean(false) => Some(None),
        DeValue::Table(table) => {
            let mut section = Section::new(of.text, format!("{}.a2a", of.path), offset, table);
            let agent = read(stream, &mut section);
            of.problems.extend(section.finish());
            agent.map(Some)
        }
        _ => {
            let reason = "must be a table, or false where the stream is no agent";
            of.refuse(offset, "a2a", reason);
            None
        }
    }
}

fn read(stream: &str, section: &mut Section<'_>) -> Option<AgentDefinition> {
    let url = section.require("url", base);
    let description = section.require("description", words);
    let name = section.take("name", words);
    let version = section.take("version", words);
    let event_type = section.take("event_type", event_type);
    let complete_on = section.take(
        "complete_on",
        value::choice(&CompleteOn::ALL, CompleteOn::as_str),
    );
    let wait = section.take("wait", |value| match value.as_str() {
        Some(text) => duration::parse_up_to(text, LONGEST_WAIT),
        None => value::duration(value),
    });
    let skills = section.take("skills", skills);
    Some(AgentDefinition {
        url: url?,
        description: description?,
        name: name.unwrap_or_else(|| stream.to_owned()),
        version: version.unwrap_or_else(|| "1".to_owned()),
        event_type: event_type.unwrap_or_else(|| EVENT_TYPE.to_owned()),
        complete_on: complete_on.unwrap_or_default(),
        wait: duration::written(wait.unwrap_or(WAIT)),
        skills: skills.unwrap_or_default(),
    })
}

/// Where callers reach a worker.
fn base(value: &DeValue<'_>) -> Result<String, String> {
    let text = words(value)?;
    let url = Url::parse(&text).map_err(|error| format!("is no URL: {error}"))?;
    let has_more = url.query().is_some() || url.fragment().is_some();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || has_more {
        return Err(
            "must be where callers reach a worker, such as \"https://lanekeeper.example.com\""
                .to_owned(),
        );
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not name a user: the card goes to everybody who asks".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn words(value: &DeValue<'_>) -> Result<String, String> {
    let text = value::text(value)?;
    match text.len() <= LONGEST_TEXT {
        true => Ok(text),
        false => Err(format!("must have at most {LONGEST_TEXT} bytes")),
    }
}

fn event_type(value: &DeValue<'_>) -> Result<String, String> {
    let text = value::text(value)?;
    match text.len() <= LONGEST_EVENT_TYPE && text != "*" {
        true => Ok(text),
        false => Err(format!(
            "must be the name of a type, of at most {LONGEST_EVENT_TYPE} bytes"
        )),
    }
}

fn skills(value: &DeValue<'_>) -> Result<Vec<Skill>, String> {
    let skills: Vec<Skill> = serde_json::from_value(value::json(value)?).map_err(|error| {
        format!("must be a list of {{ id, name, description, tags }} ({error})")
    })?;
    let is_long = |text: &String| text.is_empty() || text.len() > LONGEST_TEXT;
    let is_off = |skill: &Skill| {
        let texts = [&skill.id, &skill.name, &skill.description];
        texts.into_iter().any(is_long)
            || skill.tags.iter().chain(&skill.examples).any(is_long)
            || skill.tags.len() + skill.examples.len() > MOST_SKILLS
    };
    if skills.len() > MOST_SKILLS || skills.iter().any(is_off) {
        return Err(format!(
            "takes at most {MOST_SKILLS} skills, with texts of 1 to {LONGEST_TEXT} bytes"
        ));
    }
    Ok(skills)
}
