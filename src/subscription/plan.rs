//! The difference between what a file asks for and what is in force. Pure: it reads no clock and
//! no database, so that a dry run and the real one cannot differ.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::toml_file::nearest;

use super::definition::{Definition, Events, Retry, StreamDefinition};
use super::file::{RetrySection, StreamSection, SubscriptionFile, SubscriptionSection};
use super::problem::{FileError, Problem};

/// What is in force, by name.
#[derive(Clone, Debug, Default)]
pub struct Current {
    pub streams: BTreeMap<String, StreamDefinition>,
    pub subscriptions: BTreeMap<String, Existing>,
}

/// A subscription that has a row.
#[derive(Clone, Debug)]
pub struct Existing {
    pub definition: Definition,
    pub removed: bool,
}

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
}

/// One setting before and after; `null` where it was or is not given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    pub field: String,
    pub from: Value,
    pub to: Value,
}

/// What is to be done about one stream or subscription.
#[derive(Clone, Debug)]
pub struct Step<D> {
    pub name: String,
    pub kind: ChangeKind,
    pub fields: Vec<FieldChange>,
    /// As it is to be; as it was, where it is removed.
    pub definition: D,
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

/// Everything that is to be done, in this order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub streams: Vec<Step<StreamDefinition>>,
    pub subscriptions: Vec<Step<Definition>>,
    /// In force, not in the file, and left alone.
    pub unlisted: Vec<String>,
}

impl Plan {
    /// Compares; `prune` removes what the file does not name.
    pub fn new(current: &Current, file: &SubscriptionFile, prune: bool) -> Result<Self, FileError> {
        let mut plan = Self::default();
        let mut streams = current.streams.clone();
        for section in &file.streams {
            let before = current.streams.get(&section.name);
            let definition = stream(section, before.cloned().unwrap_or_default());
            streams.insert(section.name.clone(), definition.clone());
            plan.streams.push(step(&section.name, before, definition));
        }
        let mut problems = Vec::new();
        for section in &file.subscriptions {
            let before = current.subscriptions.get(&section.name);
            match subscription(section, &streams, before) {
                Ok(definition) => plan.subscriptions.push(match before {
                    Some(before) if before.removed => {
                        let step = step(&section.name, Some(&before.definition), definition);
                        Step {
                            kind: ChangeKind::Revived,
                            ..step
                        }
                    }
                    before => step(&section.name, before.map(|b| &b.definition), definition),
                }),
                Err((key, reason)) => problems.push(Problem {
                    position: section.position,
                    key: format!("subscription.{}.{key}", section.name),
                    reason,
                }),
            }
        }
        if !problems.is_empty() {
            return Err(FileError {
                origin: file.origin.clone(),
                problems,
            });
        }
        let listed = |name: &str| {
            file.subscriptions
                .iter()
                .any(|section| section.name == name)
        };
        for (name, existing) in &current.subscriptions {
            if existing.removed || listed(name) {
                continue;
            }
            if prune {
                plan.subscriptions.push(Step {
                    name: name.clone(),
                    kind: ChangeKind::Removed,
                    fields: Vec::new(),
                    definition: existing.definition.clone(),
                });
            } else {
                plan.unlisted.push(name.clone());
            }
        }
        Ok(plan)
    }

    /// The steps as they are reported.
    pub fn changes(&self) -> Vec<Change> {
        let streams = self.streams.iter().map(|step| Change {
            target: Target::Stream,
            name: step.name.clone(),
            change: step.kind,
            destination: None,
            fields: step.fields.clone(),
        });
        let subscriptions = self.subscriptions.iter().map(|step| Change {
            target: Target::Subscription,
            name: step.name.clone(),
            change: step.kind,
            destination: Some(step.definition.destination()),
            fields: step.fields.clone(),
        });
        streams.chain(subscriptions).collect()
    }

    pub fn is_empty(&self) -> bool {
        let mut kinds = self
            .streams
            .iter()
            .map(|step| step.kind)
            .chain(self.subscriptions.iter().map(|step| step.kind));
        kinds.all(|kind| kind == ChangeKind::Unchanged)
    }
}

impl<D> Step<D> {
    pub fn changes(&self, field: &str) -> bool {
        self.fields.iter().any(|change| change.field == field)
    }
}

fn stream(section: &StreamSection, before: StreamDefinition) -> StreamDefinition {
    StreamDefinition {
        max_payload_bytes: section
            .max_payload_bytes
            .unwrap_or(before.max_payload_bytes),
        fan_out: section.fan_out.clone().unwrap_or(before.fan_out),
        critical: section.critical.clone().unwrap_or(before.critical),
        retry: retry(&section.retry, &before.retry),
    }
}

fn retry(section: &RetrySection, default: &Retry) -> Retry {
    Retry {
        schedule: section
            .schedule
            .clone()
            .unwrap_or_else(|| default.schedule.clone()),
        max_attempts: section.max_attempts.unwrap_or(default.max_attempts),
        on_exhausted: section.on_exhausted.unwrap_or(default.on_exhausted),
    }
}

/// Resolves a section, or says which key is impossible and why.
fn subscription(
    section: &SubscriptionSection,
    streams: &BTreeMap<String, StreamDefinition>,
    before: Option<&Existing>,
) -> Result<Definition, (&'static str, String)> {
    let Some(stream) = streams.get(&section.stream) else {
        let names = || streams.keys().map(String::as_str);
        let hint = match nearest(&section.stream, names()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("streams are {}.", names().collect::<Vec<_>>().join(", ")),
        };
        let reason = format!(
            "there is no stream {:?}; {hint} A stream of your own needs a [stream.{}] section",
            section.stream, section.stream
        );
        return Err(("stream", reason));
    };
    if let Some(Existing {
        definition,
        removed,
    }) = before
    {
        if definition.stream != section.stream {
            let reason = format!(
                "{:?} belongs to the stream {:?}, where its lanes are: a subscription cannot move; \
                 give the new one another name",
                section.name, definition.stream
            );
            return Err(("stream", reason));
        }
        if definition.start != section.start && !removed {
            let reason = format!(
                "{:?} started {:?} and its lanes exist: replay it to deliver older events again, \
                 or give a new subscription another name",
                section.name,
                definition.start.as_str()
            );
            return Err(("start", reason));
        }
    }
    Ok(Definition {
        stream: section.stream.clone(),
        adapter: section.adapter.clone(),
        events: section
            .events
            .clone()
            .unwrap_or_else(|| stream.fan_out.clone()),
        start: section.start,
        retry: retry(&section.retry, &stream.retry),
        coalesce: section.coalesce.unwrap_or(stream.critical != Events::All),
        concurrency: section.concurrency,
        history: section.history,
        settings: section.settings.clone(),
    })
}

fn step<D: Clone + Serialize>(name: &str, before: Option<&D>, definition: D) -> Step<D> {
    let fields = before
        .map(|before| differences(before, &definition))
        .unwrap_or_default();
    let kind = match before {
        None => ChangeKind::Created,
        Some(_) if fields.is_empty() => ChangeKind::Unchanged,
        Some(_) => ChangeKind::Changed,
    };
    Step {
        name: name.to_owned(),
        kind,
        fields,
        definition,
    }
}

fn differences(from: &impl Serialize, to: &impl Serialize) -> Vec<FieldChange> {
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
            (_, value) => {
                fields.insert(key, value);
            }
        }
    }
    fields
}
