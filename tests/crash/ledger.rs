//! What the producers know of each event that they sent, by message id: the other half of the truth,
//! kept apart from the database under test.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Confirmed, with this seq.
    Committed { seq: i64 },
    /// Nothing was committed: the transaction was rolled back, or the server refused it.
    RolledBack,
    /// The answer to the commit was lost. Either is right, but one of them it must be.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub session: String,
    pub event_type: &'static str,
    pub fate: Fate,
}

#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<HashMap<Uuid, Entry>>>);

impl Ledger {
    /// Before anything of it is sent.
    pub fn intend(&self, id: Uuid, session: &str, event_type: &'static str) {
        let entry = Entry {
            session: session.to_owned(),
            event_type,
            fate: Fate::Unknown,
        };
        self.0.lock().unwrap().insert(id, entry);
    }

    pub fn is(&self, id: Uuid, fate: Fate) {
        let mut entries = self.0.lock().unwrap();
        entries.get_mut(&id).expect("it was intended").fate = fate;
    }

    pub fn entries(&self) -> HashMap<Uuid, Entry> {
        self.0.lock().unwrap().clone()
    }
}
