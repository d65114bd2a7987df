//! What producers append, and what it comes to when they commit, go back to a savepoint, or roll back.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::producer::{Resource, chosen};
use super::{Entry, Model};
use crate::operation::{Event, NARROW, SESSIONS, SUBSCRIPTIONS};

impl Model {
    pub(super) fn append(&mut self, producer: usize, event: &Event) -> (i64, bool, Option<Uuid>) {
        let keys = [
            event.id.map(|id| (true, id)),
            event.key.map(|key| (false, key)),
        ];
        let open = self.open(producer);
        let found = keys.iter().flatten().find_map(|key| {
            let own = open
                .keys
                .iter()
                .find(|(own, ..)| own == key)
                .map(|(.., first)| *first);
            own.or_else(|| self.keys.get(key).copied())
        });
        if let Some((seq, id)) = found {
            return (seq, true, (!id.is_nil()).then_some(id));
        }
        let session = event.session;
        let own = open
            .appended
            .iter()
            .filter(|(other, _)| *other == session)
            .count();
        let seq = (self.sessions[session].log.len() + own + 1) as i64;
        let id = event.id.map(chosen);
        // At REPEATABLE READ every lane gets an entry, whatever the snapshot says.
        let fixed = open.seen.is_some();
        let lanes = (0..SUBSCRIPTIONS.len())
            .filter(|subscription| fixed || self.matches(*subscription, event.kind));
        let lanes = lanes.map(|subscription| session * SUBSCRIPTIONS.len() + subscription);
        let idle: Vec<usize> = lanes
            .filter(|lane| self.lanes[*lane].due.is_none())
            .collect();
        let entry = Entry {
            kind: event.kind,
            id: id.unwrap_or_default(),
            day: self.today(),
            gone: false,
        };
        let open = self.open_mut(producer);
        open.woken.extend(idle);
        open.keys.extend(
            keys.into_iter()
                .flatten()
                .map(|key| (key, session, (seq, entry.id))),
        );
        open.appended.push((session, entry));
        (seq, false, id)
    }

    /// The server drew the id of what the producer appended last but `back`.
    pub fn learn_id(&mut self, producer: usize, session: usize, seq: i64, id: Uuid) {
        let before = self.sessions[session].log.len() as i64;
        let open = self.open_mut(producer);
        let mut own = open
            .appended
            .iter_mut()
            .filter(|(other, _)| *other == session);
        if let Some((_, entry)) = own.nth((seq - before - 1) as usize)
            && entry.id.is_nil()
        {
            entry.id = id;
            // Keys that were given without an id name the one that was drawn.
            for (_, _, first) in open
                .keys
                .iter_mut()
                .filter(|(_, s, first)| *s == session && first.0 == seq)
            {
                first.1 = id;
            }
        }
    }

    pub fn savepoint(&mut self, producer: usize) {
        let open = self.open_mut(producer);
        open.marks
            .push((open.held.len(), open.appended.len(), open.keys.len()));
    }

    /// False where there is no savepoint.
    pub fn roll_back_to_savepoint(&mut self, producer: usize) -> bool {
        let open = self.open_mut(producer);
        let Some(&(held, appended, keys)) = open.marks.last() else {
            return false;
        };
        open.held.truncate(held);
        open.appended.truncate(appended);
        open.keys.truncate(keys);
        true
    }

    pub fn commit(&mut self, producer: usize) {
        let Some(open) = self.transactions[producer].take() else {
            return;
        };
        for resource in &open.held {
            if let Resource::Created(session) = resource {
                self.sessions[*session].created = true;
            }
        }
        let sessions: BTreeSet<usize> = open.appended.iter().map(|(session, _)| *session).collect();
        for (session, entry) in open.appended {
            self.sessions[session].log.push(entry);
        }
        self.keys
            .extend(open.keys.into_iter().map(|(key, _, first)| (key, first)));
        for lane in open.woken {
            // What was rolled back to a savepoint left no entry.
            if sessions.contains(&Self::session_of(lane)) && self.head(lane).is_some() {
                self.lanes[lane].wake(self.now);
            }
        }
    }

    pub fn roll_back(&mut self, producer: usize) {
        self.transactions[producer] = None;
    }

    /// `narrow` has another filter: who is not sure to see it is left to housekeeping.
    pub fn change_filter(&mut self, filter: usize) {
        let subscription = NARROW;
        self.subscriptions[subscription].filter = filter;
        let fixed = self
            .transactions
            .iter()
            .flatten()
            .any(|open| open.seen.is_some());
        for session in 0..SESSIONS {
            let at = session * SUBSCRIPTIONS.len() + subscription;
            let lane = &mut self.lanes[at];
            if self.sessions[session].created && !lane.parked {
                let due = lane.retry_at.unwrap_or(self.now).max(self.now);
                lane.due = Some(lane.due.map_or(due, |other| other.min(due)));
            }
            let touched = self.transactions.iter().flatten().any(|open| {
                open.held.iter().any(|held| matches!(held, Resource::Created(s) | Resource::Append(s) if *s == session))
            });
            self.lanes[at].excused |= fixed || touched;
        }
    }
}
