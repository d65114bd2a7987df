//! What a holder remembers from one answer to the next while the offset stays before a message that is kept back.
//!
//! Without it nothing is lost: what was enqueued is a duplicate when it comes again. With it nobody is answered twice, and a
//! locked session costs its time only after all others had theirs. It has at most what one answer has.

use std::collections::{HashSet, VecDeque};

#[derive(Default)]
pub(super) struct Memory {
    /// Sessions that were locked when they were last tried: the one tried longest ago first.
    locked: VecDeque<String>,
    /// Updates that were enqueued or passed.
    done: HashSet<i64>,
}

impl Memory {
    /// Forgets what the newest answer does not have.
    pub(super) fn keep(&mut self, ids: &HashSet<i64>, sessions: &HashSet<String>) {
        self.done.retain(|id| ids.contains(id));
        self.locked.retain(|session| sessions.contains(session));
    }

    pub(super) fn done(&mut self, update_id: i64) {
        self.done.insert(update_id);
    }

    pub(super) fn is_done(&self, update_id: i64) -> bool {
        self.done.contains(&update_id)
    }

    pub(super) fn found_locked(&mut self, session: &str) {
        self.found_free(session);
        self.locked.push_back(session.to_owned());
    }

    pub(super) fn found_free(&mut self, session: &str) {
        self.locked.retain(|locked| locked != session);
    }

    pub(super) fn is_locked(&self, session: &str) -> bool {
        self.locked.iter().any(|locked| locked == session)
    }

    pub(super) fn tried_longest_ago(&self) -> Option<&str> {
        self.locked.front().map(String::as_str)
    }
}
