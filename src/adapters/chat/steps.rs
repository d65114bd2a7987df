//! Remembers which requests this process has sent for unfinished messages, and which message ids it could not record in
//! the database yet. It only saves repeated requests: it is bounded, and is lost with the process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lanekeeper_core::memory::MessageName;
use uuid::Uuid;

/// Messages that are remembered at once; the oldest is forgotten first. More than the lanes that a worker holds.
const MOST: usize = 8192;

/// What this process has done for one event.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub typed: bool,
    /// Parts of the message that show this event's text.
    pub parts: Vec<i32>,
}

#[derive(Default)]
struct Known {
    events: HashMap<Uuid, Done>,
    /// In the order of arrival. Some of them are finished.
    order: VecDeque<Uuid>,
}

#[derive(Default)]
pub struct Steps(Mutex<Known>);

impl Steps {
    pub fn of(&self, event: Uuid) -> Done {
        self.known().events.get(&event).cloned().unwrap_or_default()
    }

    /// Whether some parts of the message show this event's text, and others do not yet.
    pub fn have_begun(&self, event: Uuid) -> bool {
        let known = self.known();
        known
            .events
            .get(&event)
            .is_some_and(|done| !done.parts.is_empty())
    }

    pub fn change(&self, event: Uuid, change: impl FnOnce(&mut Done)) {
        let mut known = self.known();
        if !known.events.contains_key(&event) {
            known.order.push_back(event);
        }
        change(known.events.entry(event).or_default());
        while known.order.len() > MOST {
            let Some(oldest) = known.order.pop_front() else {
                break;
            };
            known.events.remove(&oldest);
        }
    }

    pub fn forget(&self, event: Uuid) {
        let mut known = self.known();
        if known.events.remove(&event).is_some() {
            known.order.retain(|other| *other != event);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The subscription, session, chat and key of a message.
type Name = [String; 4];

fn owned(name: MessageName<'_>) -> Name {
    [name.subscription, name.session, name.place, name.key].map(str::to_owned)
}

/// Messages that were sent and whose ids are not recorded yet. The id is recorded before anything else is sent for that
/// message, whichever version of it is delivered then.
#[derive(Default)]
pub struct Owed(Mutex<HashMap<Name, (i32, String)>>);

impl Owed {
    /// Remembers a message id. If too many are remembered already, it is not, and the message may be sent twice.
    pub fn note(&self, name: MessageName<'_>, part: i32, reference: &str) {
        let mut owed = self.owed();
        if owed.len() < MOST {
            owed.insert(owned(name), (part, reference.to_owned()));
        }
    }

    pub fn of(&self, name: MessageName<'_>) -> Option<(i32, String)> {
        let owed = self.owed();
        // Usually empty: there are entries only after Postgres was away.
        if owed.is_empty() {
            return None;
        }
        owed.get(&owned(name)).cloned()
    }

    pub fn settle(&self, name: MessageName<'_>) {
        self.owed().remove(&owned(name));
    }

    fn owed(&self) -> MutexGuard<'_, HashMap<Name, (i32, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let steps = Steps::default();
        for n in 0..=MOST as u128 {
            steps.change(Uuid::from_u128(n), |done| done.typed = true);
        }
        assert!(!steps.of(Uuid::from_u128(0)).typed);
        assert!(steps.of(Uuid::from_u128(1)).typed);
        steps.forget(Uuid::from_u128(1));
        assert!(!steps.of(Uuid::from_u128(1)).typed);
        assert_eq!(steps.known().order.len(), MOST - 1);
    }
}
