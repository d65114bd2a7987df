//! What changes: kinds of change, and the difference of two definitions setting by setting.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Created,
    Changed,
    /// It was removed once and is back, with its lanes where they were.
    Revived,
    Removed,
    Unchanged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Stream,
    Subscription,
    Source,
}

/// One setting before and after; `null` where it was or is not given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    pub field: String,
    pub from: Value,
    pub to: Value,
}

/// A step as it is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub target: Target,
    pub name: String,
    pub change: ChangeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    pub fields: Vec<FieldChange>,
}

/// The settings in which two definitions differ.
pub fn differences(from: &impl Serialize, to: &impl Serialize) -> Vec<FieldChange> {
    let (mut from, to) = (fields(from), fields(to));
    let mut changes: Vec<FieldChange> = to
        .into_iter()
        .filter_map(|(field, to)| {
            let from = from.remove(&field).unwrap_or(Value::Null);
            (from != to).then_some(FieldChange { field, from, to })
        })
        .collect();
    let gone = from.into_iter().map(|(field, from)| FieldChange {
        field,
        from,
        to: Value::Null,
    });
    changes.extend(gone);
    changes
}

/// The settings of a definition by the keys that the file has for them.
fn fields(definition: &impl Serialize) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    let definition = serde_json::to_value(definition).expect("definitions hold plain values only");
    let Value::Object(definition) = definition else {
        return fields;
    };
    for (key, value) in definition {
        match (key.as_str(), value) {
            ("settings", Value::Object(settings)) => fields.extend(settings),
            ("retry", Value::Object(retry)) => {
                fields.extend(
                    retry
                        .into_iter()
                        .map(|(key, value)| (format!("retry.{key}"), value)),
                );
            }
            ("schema", Value::Object(schemas)) => {
                fields.extend(
                    schemas
                        .into_iter()
                        .map(|(event_type, schema)| (format!("schema.{event_type}"), schema)),
                );
            }
            (_, value) => {
                fields.insert(key, value);
            }
        }
    }
    fields
}
