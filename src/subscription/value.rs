//! Reads single values of the file; what is refused says what would be right.

use std::ops::RangeInclusive;
use std::time::Duration;

use lanekeeper_core::subscription::{Events, MessageStage, duration};
use serde_json::{Map, Number, Value};
use toml::de::DeValue;

/// Waits of a schedule; more would not be told apart by anyone.
const LONGEST_SCHEDULE: usize = 100;
/// Event types that end a session: an append compares its own with each.
const MOST_TERMINAL: usize = 100;

pub(super) fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) if !text.is_empty() => Ok(text.to_string()),
        DeValue::String(_) => Err("must not be empty".to_owned()),
        other => Err(format!("must be text, but is a {}", other.type_str())),
    }
}

pub(super) fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| "must be true or false".to_owned())
}

/// A whole number in a range.
pub(super) fn whole(
    range: RangeInclusive<u32>,
) -> impl FnOnce(&DeValue<'_>) -> Result<u32, String> {
    move |value| {
        let number = value
            .as_integer()
            .and_then(|digits| u32::from_str_radix(digits.as_str(), digits.radix()).ok());
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                format!(
                    "must be a whole number between {} and {}",
                    range.start(),
                    range.end()
                )
            })
    }
}

/// One of a few words.
pub(super) fn choice<T: Copy>(
    all: &'static [T],
    word: fn(T) -> &'static str,
) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| {
        let given = value.as_str();
        all.iter()
            .copied()
            .find(|choice| given == Some(word(*choice)))
            .ok_or_else(|| {
                let words: Vec<_> = all
                    .iter()
                    .map(|choice| format!("\"{}\"", word(*choice)))
                    .collect();
                format!("must be one of {}", words.join(", "))
            })
    }
}

pub(super) fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    match value {
        DeValue::String(text) => duration::parse(text),
        DeValue::Integer(number) => Err(format!("needs a unit, such as \"{number}s\"")),
        _ => Err("must be a duration, such as \"15s\"".to_owned()),
    }
}

pub(super) fn schedule(value: &DeValue<'_>) -> Result<Vec<Duration>, String> {
    let waits = value
        .as_array()
        .ok_or("must be a list, such as [\"1s\", \"5s\"]")?;
    if waits.is_empty() || waits.len() > LONGEST_SCHEDULE {
        return Err(format!("must have between 1 and {LONGEST_SCHEDULE} waits"));
    }
    waits.iter().map(|wait| duration(wait.get_ref())).collect()
}

/// A list of event types, or `["*"]` for all.
pub(super) fn events(value: &DeValue<'_>) -> Result<Events, String> {
    let types = event_types(value)?;
    match types.as_slice() {
        [] => Err("must not be empty: [\"*\"] stands for every event".to_owned()),
        [all] if all == "*" => Ok(Events::All),
        _ if types.iter().any(|event_type| event_type == "*") => {
            Err("\"*\" already stands for every event and must stand alone".to_owned())
        }
        _ => Ok(Events::Only(types)),
    }
}

/// The event types that end a session; an empty list: none.
pub(super) fn terminal(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let types = event_types(value)?;
    if types.iter().any(|event_type| event_type == "*") {
        return Err("must name event types: with \"*\" a session would have one event".to_owned());
    }
    if types.len() > MOST_TERMINAL {
        return Err(format!("must have at most {MOST_TERMINAL} event types"));
    }
    Ok(types)
}

fn event_types(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let entries = value
        .as_array()
        .ok_or("must be a list, such as [\"agent_stop\"]")?;
    let types = entries
        .iter()
        .map(|entry| text(entry.get_ref()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|reason| format!("an event type {reason}"))?;
    match types.iter().find(|event_type| event_type.len() > 200) {
        Some(long) => Err(format!("the event type {long:?} is longer than 200 bytes")),
        None => Ok(types),
    }
}

/// A list of what the lifecycle feed is told of messages, or `["*"]` for all of it.
pub(super) fn stages(value: &DeValue<'_>) -> Result<Vec<MessageStage>, String> {
    let entries = value
        .as_array()
        .ok_or("must be a list, such as [\"sent\", \"failed\"]")?;
    if entries.len() == 1 && entries[0].get_ref().as_str() == Some("*") {
        return Ok(MessageStage::ALL.to_vec());
    }
    let stage = choice(&MessageStage::ALL, MessageStage::as_str);
    let mut stages = entries
        .iter()
        .map(|entry| stage(entry.get_ref()).map_err(|reason| format!("an entry {reason}")))
        .collect::<Result<Vec<_>, _>>()?;
    stages.sort_by_key(|stage| *stage as u8);
    stages.dedup();
    Ok(stages)
}

/// Any value, as the JSON that the database keeps.
pub(super) fn json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map(Value::from)
            .map_err(|_| format!("{digits} is out of range"))?,
        DeValue::Float(digits) => digits
            .as_str()
            .parse()
            .ok()
            .and_then(Number::from_f64)
            .map(Value::from)
            .ok_or_else(|| format!("{digits} is out of range"))?,
        DeValue::Datetime(_) => return Err("a date must be written as text".to_owned()),
        DeValue::Array(entries) => entries
            .iter()
            .map(|entry| json(entry.get_ref()))
            .collect::<Result<_, _>>()?,
        DeValue::Table(entries) => {
            let mut object = Map::new();
            for (key, value) in entries {
                object.insert(key.get_ref().to_string(), json(value.get_ref())?);
            }
            Value::Object(object)
        }
    })
}
