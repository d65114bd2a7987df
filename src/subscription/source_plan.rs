//! The steps that bring the sources to what a file asks for.

use std::collections::BTreeMap;

use lanekeeper_core::source::Definition;
use lanekeeper_core::subscription::{ChangeKind, Plan, Step};

use super::file::SubscriptionFile;
use super::step::step;

/// Adds the steps of the sources to a plan.
pub(super) fn add(
    file: &SubscriptionFile,
    current: &BTreeMap<String, Definition>,
    prune: bool,
    plan: &mut Plan,
) {
    for section in &file.sources {
        let before = current.get(&section.name);
        plan.sources
            .push(step(&section.name, before, section.definition.clone()));
    }
    let listed = |name: &String| file.sources.iter().any(|section| section.name == *name);
    for (name, definition) in current.iter().filter(|(name, _)| !listed(name)) {
        if prune {
            plan.sources.push(Step {
                name: name.clone(),
                id: None,
                kind: ChangeKind::Removed,
                fields: Vec::new(),
                definition: definition.clone(),
            });
        } else {
            plan.unlisted.push(format!("source {name}"));
        }
    }
}
