//! Subscriptions that Lanekeeper makes itself. Files can neither name nor prune them; workers put
//! them in force, or out of it, by the same steps that a plan has.

use super::change::{ChangeKind, differences};
use super::definition::Definition;
use super::plan::{Current, Existing, Step};

/// The session registry's adapter, and the name of its subscription.
pub const REGISTRY: &str = "registry";

/// The names that files cannot use.
const NAMES: [&str; 1] = [REGISTRY];

/// Whether an adapter belongs to a built-in subscription.
pub fn is_built_in(adapter: &str) -> bool {
    adapter == REGISTRY
}

/// Why a file cannot have a section of this name, if it cannot. Whoever had one before the name was
/// kept may go on with it.
pub fn refusal(name: &str, current: &Current) -> Option<String> {
    let live = current.live.get(name);
    let own = live.is_some_and(|live| !is_built_in(&live.definition.adapter));
    (NAMES.contains(&name) && !own)
        .then(|| format!("{name:?} {OWN}: give yours another name. {SWITCH}"))
}

const OWN: &str = "is Lanekeeper's own";
const SWITCH: &str = "To switch it off, start all workers with LANEKEEPER_WORKER__REGISTRY=false; to make it \
     wait, use `lanekeeper subscription pause registry`";

/// Passes on what a file may name as an adapter.
pub fn refuse_adapter(adapter: String) -> Result<String, String> {
    if is_built_in(&adapter) {
        Err(format!("{adapter:?} {OWN} and needs no section. {SWITCH}"))
    } else {
        Ok(adapter)
    }
}

/// A subscription of somebody's own has the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a subscription of your own is called {name:?}, which Lanekeeper keeps for itself: apply it under \
     another name with --prune, and start a worker again. Nothing was changed"
)]
pub struct NameTaken {
    pub name: String,
}

/// What puts a built-in subscription in force; `None` where it is so already.
///
/// # Errors
/// [`NameTaken`].
pub fn install(
    current: &Current,
    name: &str,
    definition: Definition,
) -> Result<Option<Step<Definition>>, NameTaken> {
    if let Some(live) = current.live.get(name) {
        if !is_built_in(&live.definition.adapter) {
            let name = name.to_owned();
            return Err(NameTaken { name });
        }
        let fields = differences(&live.definition, &definition);
        let changed = !fields.is_empty();
        return Ok(changed.then(|| Step {
            name: name.to_owned(),
            id: Some(live.id),
            kind: ChangeKind::Changed,
            fields,
            definition,
        }));
    }
    let key = (name.to_owned(), definition.stream.clone());
    let removed = current.removed.get(&key);
    let removed = removed.filter(|one| is_built_in(&one.definition.adapter));
    let (id, kind) = match removed {
        Some(Existing { id, .. }) => (Some(*id), ChangeKind::Revived),
        None => (None, ChangeKind::Created),
    };
    Ok(Some(Step {
        name: name.to_owned(),
        id,
        kind,
        fields: Vec::new(),
        definition,
    }))
}

/// What takes a built-in subscription out of force; `None` where it is not in force.
pub fn remove(current: &Current, name: &str) -> Option<Step<Definition>> {
    let live = current.live.get(name)?;
    is_built_in(&live.definition.adapter).then(|| Step {
        name: name.to_owned(),
        id: Some(live.id),
        kind: ChangeKind::Removed,
        fields: Vec::new(),
        definition: live.definition.clone(),
    })
}
