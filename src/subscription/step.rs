//! What is to be done about one thing, by what it was and what it is to be.

use lanekeeper_core::subscription::{ChangeKind, Step, differences};
use serde::Serialize;

pub(super) fn step<D: Clone + Serialize>(name: &str, before: Option<&D>, definition: D) -> Step<D> {
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
        id: None,
        kind,
        fields,
        definition,
    }
}
