//! `[stream.NAME.schema]` of the file for `apply`: event types, each with the JSON Schema that payloads of it must match.
//!
//! A schema is written into the file, as TOML or as JSON text, or is a file beside it. What the database would not check
//! as it is meant is refused here: see [`rules`].

mod in_place;
mod keyword;
mod pattern;
mod rules;

use std::collections::BTreeMap;
use std::path::Path;

use lanekeeper_core::bounded_file::{self, Links};
use lanekeeper_core::subscription::EventSchema;
use serde_json::Value;
use toml::de::DeValue;

use super::section::Section;
use super::value;

/// Event types of a stream that have one: an append compares its own with each.
const MOST_TYPES: usize = 100;
/// Bytes of a schema, and of its file.
const LARGEST: usize = 65_536;
const LONGEST_EVENT_TYPE: usize = 200;

/// Takes the key of a stream's section. `None`: the file does not say; empty: no type has a schema. Files are looked for
/// beside `origin`, the file for `apply`.
pub(super) fn take(origin: &str, of: &mut Section<'_>) -> Option<BTreeMap<String, EventSchema>> {
    let value = of.remove("schema")?;
    let offset = value.span().start;
    let table = match value.get_ref() {
        DeValue::Boolean(false) => return Some(BTreeMap::new()),
        DeValue::Table(table) => table,
        _ => {
            let reason = "must be a table of event types, or false where no type has a schema";
            of.refuse(offset, "schema", reason);
            return None;
        }
    };
    if table.len() > MOST_TYPES {
        let reason = format!("must have at most {MOST_TYPES} event types");
        of.refuse(offset, "schema", reason);
        return None;
    }
    let mut schemas = BTreeMap::new();
    for (event_type, content) in table {
        let name = event_type.get_ref().as_ref();
        let schema = match name.is_empty() || name == "*" || name.len() > LONGEST_EVENT_TYPE {
            true => Err(format!(
                "must be the name of an event type, of 1 to {LONGEST_EVENT_TYPE} bytes"
            )),
            false => read(origin, content.get_ref()).and_then(judged),
        };
        match schema {
            Ok(schema) => {
                schemas.insert(name.to_owned(), schema);
            }
            Err(reason) => of.refuse(content.span().start, &format!("schema.{name}"), reason),
        }
    }
    Some(schemas)
}

fn read(origin: &str, content: &DeValue<'_>) -> Result<Value, String> {
    match content {
        DeValue::Table(_) => value::json(content),
        DeValue::String(text) if text.trim_start().starts_with('{') => {
            parsed(text).map_err(|reason| format!("is not JSON: {reason}"))
        }
        DeValue::String(path) if !path.is_empty() => {
            let beside = Path::new(origin).parent().unwrap_or(Path::new(""));
            let path = beside.join(path.as_ref());
            let text = bounded_file::read(&path, Links::Followed, LARGEST as u64)
                .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            parsed(&text).map_err(|reason| format!("{} is not JSON: {reason}", path.display()))
        }
        _ => Err(
            "must be a schema, or the name of a file that has one; leave the type away where it has none"
                .to_owned(),
        ),
    }
}

fn parsed(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn judged(schema: Value) -> Result<EventSchema, String> {
    if !schema.is_object() {
        return Err(
            "must be an object; leave the type away where everything is allowed, and write { not = {} } where nothing is"
                .to_owned(),
        );
    }
    if schema.to_string().len() > LARGEST {
        return Err(format!("must have at most {LARGEST} bytes"));
    }
    let rules = rules::rules(&schema).map_err(|problem| problem.to_string())?;
    Ok(EventSchema { schema, rules })
}

#[cfg(test)]
mod tests;
