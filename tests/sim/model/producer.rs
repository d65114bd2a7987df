//! Producers' transactions: what each call gets, whom it waits for, what it leaves when it commits.
//!
//! A call waits for whoever holds what it needs: a session that is being created, its append lock, a key.
//! Nobody begins to wait behind another waiter, nor where a circle could come of it: what Postgres does
//! then is a matter of time, and no operation of a list.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{Entry, Model};
use crate::operation::{Event, PRODUCERS, SESSIONS};

/// A message id (true) or a dedupe key that a producer chose.
pub type Key = (bool, u8);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resource {
    /// The row of a session that nobody has committed yet.
    Created(usize),
    Append(usize),
    Key(Key),
}

#[derive(Clone, Copy, Debug)]
enum Need {
    Own(Resource),
    /// At REPEATABLE READ: nobody appended since the snapshot.
    Fresh(usize),
}

#[derive(Clone, Debug)]
pub struct Call {
    pub events: Vec<Event>,
    needs: Vec<Need>,
    at: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Seen {
    logs: [usize; SESSIONS],
    created: [bool; SESSIONS],
    keys: BTreeSet<Key>,
}

#[derive(Clone, Debug)]
pub struct Transaction {
    /// One statement that commits by itself.
    pub automatic: bool,
    /// The snapshot, at REPEATABLE READ.
    pub(super) seen: Option<Seen>,
    pub(super) held: Vec<Resource>,
    pub(super) appended: Vec<(usize, Entry)>,
    pub(super) keys: Vec<(Key, usize, (i64, Uuid))>,
    /// Lanes that were idle when something was appended that they receive.
    pub(super) woken: BTreeSet<usize>,
    pub(super) marks: Vec<(usize, usize, usize)>,
    pub waiting: Option<Call>,
}

/// What a call comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered {
    /// Each event's seq, and whether it was there before. With the id, where that is known.
    Done(Vec<(i64, bool, Option<Uuid>)>),
    /// SQLSTATE 40001.
    Refused,
}

/// An id that producers choose.
pub fn chosen(id: u8) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + u128::from(id))
}

impl Model {
    pub fn begin(&mut self, producer: usize, repeatable_read: bool, automatic: bool) {
        let seen = repeatable_read.then(|| Seen {
            logs: std::array::from_fn(|session| self.sessions[session].log.len()),
            created: std::array::from_fn(|session| self.sessions[session].created),
            keys: self.keys.keys().copied().collect(),
        });
        self.transactions[producer] = Some(Transaction {
            automatic,
            seen,
            held: Vec::new(),
            appended: Vec::new(),
            keys: Vec::new(),
            woken: BTreeSet::new(),
            marks: Vec::new(),
            waiting: None,
        });
    }

    pub(super) fn open(&self, producer: usize) -> &Transaction {
        self.transactions[producer]
            .as_ref()
            .expect("the caller looked")
    }

    pub(super) fn open_mut(&mut self, producer: usize) -> &mut Transaction {
        self.transactions[producer]
            .as_mut()
            .expect("the caller looked")
    }

    pub fn append_lock_is_held(&self, session: usize) -> bool {
        self.transactions
            .iter()
            .flatten()
            .any(|open| open.held.contains(&Resource::Append(session)))
    }

    fn holder_of(&self, resource: Resource) -> Option<usize> {
        (0..PRODUCERS).find(|other| {
            self.transactions[*other]
                .as_ref()
                .is_some_and(|open| open.held.contains(&resource))
        })
    }

    /// Begins a call. False: it is not to be made, see above.
    pub fn call(&mut self, producer: usize, events: Vec<Event>) -> bool {
        let open = self.open(producer);
        let mut sessions: Vec<usize> = events.iter().map(|event| event.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let missing = |session: &usize| {
            let seen = open
                .seen
                .as_ref()
                .map_or(self.sessions[*session].created, |seen| {
                    seen.created[*session]
                });
            !seen && !open.held.contains(&Resource::Created(*session))
        };
        let mut needs: Vec<Need> = sessions
            .iter()
            .filter(|session| missing(session))
            .map(|s| Need::Own(Resource::Created(*s)))
            .collect();
        needs.extend(
            sessions
                .iter()
                .map(|session| Need::Own(Resource::Append(*session))),
        );
        for event in &events {
            needs.extend(open.seen.is_some().then_some(Need::Fresh(event.session)));
            let keys = [
                event.id.map(|id| (true, id)),
                event.key.map(|key| (false, key)),
            ];
            needs.extend(
                keys.into_iter()
                    .flatten()
                    .map(|key| Need::Own(Resource::Key(key))),
            );
        }
        let before = self.transactions[producer].clone();
        self.open_mut(producer).waiting = Some(Call {
            events,
            needs,
            at: 0,
        });
        let possible = match self.advance(producer) {
            Some(other) => {
                !self.is_awaited_by_another(producer) && !self.leads_back(other, producer)
            }
            None => true,
        };
        if !possible {
            self.transactions[producer] = before;
        }
        possible
    }

    fn remaining(&self, producer: usize) -> impl Iterator<Item = Resource> {
        let call = self.transactions[producer]
            .as_ref()
            .and_then(|open| open.waiting.as_ref());
        let needs = call.map_or(&[][..], |call| &call.needs[call.at..]);
        needs.iter().filter_map(|need| match need {
            Need::Own(resource) => Some(*resource),
            Need::Fresh(_) => None,
        })
    }

    fn is_awaited_by_another(&self, producer: usize) -> bool {
        let wanted: Vec<Resource> = self.remaining(producer).collect();
        (0..PRODUCERS)
            .filter(|other| *other != producer)
            .any(|other| {
                // A creation and the append lock of one session go together.
                self.remaining(other)
                    .any(|awaited| wanted.iter().any(|wanted| same(*wanted, awaited)))
            })
    }

    /// Whether `from` waits, or may come to wait, for `to`.
    fn leads_back(&self, from: usize, to: usize) -> bool {
        let mut reached = vec![from];
        let mut at = 0;
        while let Some(next) = reached.get(at).copied() {
            at += 1;
            for resource in self.remaining(next) {
                let holders = (0..PRODUCERS).filter(|other| {
                    let open = self.transactions[*other].as_ref();
                    *other != next
                        && open
                            .is_some_and(|open| open.held.iter().any(|held| same(*held, resource)))
                });
                for holder in holders {
                    if holder == to {
                        return true;
                    }
                    if !reached.contains(&holder) {
                        reached.push(holder);
                    }
                }
            }
        }
        false
    }

    /// Takes what is free; returns for whom it waits.
    fn advance(&mut self, producer: usize) -> Option<usize> {
        loop {
            let call = self.open(producer).waiting.as_ref()?;
            let need = *call.needs.get(call.at)?;
            if let Need::Own(resource) = need {
                match self.holder_of(resource) {
                    Some(other) if other != producer => return Some(other),
                    Some(_) => {}
                    None => {
                        let there = match resource {
                            Resource::Created(session) => self.sessions[session].created,
                            Resource::Key(key) => self.keys.contains_key(&key),
                            Resource::Append(_) => false,
                        };
                        if there
                            && self
                                .open(producer)
                                .seen
                                .as_ref()
                                .is_some_and(|seen| !seen.knows(resource))
                        {
                            return None;
                        }
                        if !there {
                            self.open_mut(producer).held.push(resource);
                        }
                    }
                }
            } else if self.is_stale(producer, need) {
                return None;
            }
            self.open_mut(producer).waiting.as_mut()?.at += 1;
        }
    }

    fn is_stale(&self, producer: usize, need: Need) -> bool {
        let Need::Fresh(session) = need else {
            return false;
        };
        let open = self.open(producer);
        open.seen
            .as_ref()
            .is_some_and(|seen| self.sessions[session].log.len() > seen.logs[session])
    }

    /// The session of each event of the call that the producer is at.
    pub fn sessions_of_call(&self, producer: usize) -> Vec<usize> {
        let call = self.transactions[producer]
            .as_ref()
            .and_then(|open| open.waiting.as_ref());
        call.map_or(Vec::new(), |call| {
            call.events.iter().map(|event| event.session).collect()
        })
    }

    /// For whom the producer's call waits by now.
    pub fn waits_for(&mut self, producer: usize) -> Option<usize> {
        self.advance(producer)
    }

    /// Ends the call that the producer is at, which waits for nobody.
    pub fn answered(&mut self, producer: usize) -> Answered {
        let call = self
            .open_mut(producer)
            .waiting
            .take()
            .expect("a call is under way");
        if call.at < call.needs.len() {
            self.transactions[producer] = None;
            return Answered::Refused;
        }
        let done = call
            .events
            .iter()
            .map(|event| self.append(producer, event))
            .collect();
        Answered::Done(done)
    }
}

impl Seen {
    fn knows(&self, resource: Resource) -> bool {
        match resource {
            Resource::Created(session) => self.created[session],
            Resource::Key(key) => self.keys.contains(&key),
            Resource::Append(_) => true,
        }
    }
}

fn same(one: Resource, other: Resource) -> bool {
    match (one, other) {
        (
            Resource::Created(one) | Resource::Append(one),
            Resource::Created(other) | Resource::Append(other),
        ) => one == other,
        _ => one == other,
    }
}
