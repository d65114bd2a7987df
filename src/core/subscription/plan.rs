//! What the database has, and the steps that bring it to what is asked for.

use std::collections::BTreeMap;

use super::change::{Change, ChangeKind, FieldChange, Target};
use crate::source;

use super::definition::{Definition, StreamDefinition};

/// What the database has.
#[derive(Clone, Debug, Default)]
pub struct Current {
    pub streams: BTreeMap<String, StreamDefinition>,
    /// Those in force, by name.
    pub live: BTreeMap<String, Existing>,
    /// Those that were removed, by name and stream; the newest where there were several.
    pub removed: BTreeMap<(String, String), Existing>,
    pub sources: BTreeMap<String, source::Definition>,
}

/// A subscription that has a row.
#[derive(Clone, Debug)]
pub struct Existing {
    pub id: i32,
    pub definition: Definition,
}

/// What is to be done about one stream or subscription.
#[derive(Clone, Debug)]
pub struct Step<D> {
    pub name: String,
    /// The subscription's row; `None` where it is yet to be created, and for streams.
    pub id: Option<i32>,
    pub kind: ChangeKind,
    pub fields: Vec<FieldChange>,
    /// As it is to be; as it was, where it is removed.
    pub definition: D,
}

/// Everything that is to be done, in this order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub streams: Vec<Step<StreamDefinition>>,
    pub subscriptions: Vec<Step<Definition>>,
    pub sources: Vec<Step<source::Definition>>,
    /// In force, not in the file, and left alone.
    pub unlisted: Vec<String>,
}

impl Plan {
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
        let sources = self.sources.iter().map(|step| Change {
            target: Target::Source,
            name: step.name.clone(),
            change: step.kind,
            destination: None,
            fields: step.fields.clone(),
        });
        streams.chain(subscriptions).chain(sources).collect()
    }

    pub fn is_empty(&self) -> bool {
        let mut kinds = self
            .streams
            .iter()
            .map(|step| step.kind)
            .chain(self.subscriptions.iter().map(|step| step.kind))
            .chain(self.sources.iter().map(|step| step.kind));
        kinds.all(|kind| kind == ChangeKind::Unchanged)
    }
}

impl<D> Step<D> {
    pub fn changes(&self, field: &str) -> bool {
        self.fields.iter().any(|change| change.field == field)
    }
}
