//! Limits on requests: how many run at once, and how much memory their bodies take.
//!
//! A body takes memory as it arrives, so a body that is sent slowly, or only announced, holds only what has arrived.
//! The bodies of one access token take at most half of that memory, and half of the API's connections, so a client that
//! never finishes its requests cannot block the others.
//!
//! Bodies that arrive before it is known who sends them (a source's until its signature is verified, those of agents, of
//! sign-ins) take at most half of the memory and a quarter of the connections all together, and those of one kind half of
//! that: strangers cannot block the holders of tokens, and not one source by way of another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connections;
use super::problem::Problem;
use crate::config::HttpConfig;

/// How many bodies of the largest size fit into memory at once.
const LARGEST_BODIES: usize = 4;
const UNIT: usize = 1024;

pub struct RequestLimits {
    requests: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    shares: Arc<Shares>,
    max_body_bytes: usize,
}

/// A running request's permit.
pub struct RequestPermit(#[allow(dead_code, reason = "it is held, not read")] OwnedSemaphorePermit);

/// The memory that a body has taken so far.
pub struct Room {
    memory: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
    units: usize,
    shares: Arc<Shares>,
    payers: Vec<Payer>,
}

/// Whose share a body counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Payer {
    /// An access token, by its id.
    Token(i64),
    /// A source, by its id: its signature is verified.
    Source(i32),
    /// Whoever has proven nothing yet, by what is asked for.
    Unproven(Stranger),
    /// All those together.
    AllUnproven,
}

/// What strangers may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stranger {
    /// A source, by its id.
    Source(i32),
    /// The agent that a subscription sends to, by the subscription's id. It has a message's token, which is little.
    Agent(i32),
    SignIn,
}

/// The share of memory and connections that each payer's bodies use.
struct Shares {
    /// What one token or source may use.
    most: Share,
    /// What all that is unproven may use; one kind of it half of that.
    unproven: Share,
    taken: Mutex<HashMap<Payer, Share>>,
}

#[derive(Clone, Copy, Default)]
struct Share {
    bodies: usize,
    units: usize,
}

impl Share {
    fn part(self, of: usize) -> Self {
        Self {
            bodies: (self.bodies / of).max(1),
            units: self.units / of,
        }
    }
}

impl RequestLimits {
    pub fn new(config: &HttpConfig) -> Self {
        let units = units(config.max_body_bytes) * LARGEST_BODIES;
        let all = Share {
            bodies: connections::of_api(config.max_connections),
            units,
        };
        let most = all.part(2);
        let unproven = Share {
            bodies: all.part(4).bodies,
            units: all.part(2).units,
        };
        Self {
            requests: Arc::new(Semaphore::new(config.max_requests)),
            memory: Arc::new(Semaphore::new(units)),
            shares: Arc::new(Shares {
                most,
                unproven,
                taken: Mutex::default(),
            }),
            max_body_bytes: config.max_body_bytes,
        }
    }

    pub fn max_body_bytes(&self) -> usize {
        self.max_body_bytes
    }

    pub fn request(&self) -> Result<RequestPermit, Problem> {
        let permit = Arc::clone(&self.requests).try_acquire_owned();
        permit.map(RequestPermit).map_err(|_| Problem::busy())
    }

    /// Reserves room for a body of this token; `None`: of whoever needs none.
    pub fn body(&self, token_id: Option<i64>) -> Result<Room, Problem> {
        self.room(token_id.map(Payer::Token).into_iter().collect())
    }

    /// Reserves room for a body of which nobody knows who sends it.
    pub fn body_of(&self, stranger: Stranger) -> Result<Room, Problem> {
        self.room(vec![Payer::Unproven(stranger), Payer::AllUnproven])
    }

    fn room(&self, payers: Vec<Payer>) -> Result<Room, Problem> {
        self.shares.take(
            &payers,
            Share {
                bodies: 1,
                units: 0,
            },
        )?;
        Ok(Room {
            memory: Arc::clone(&self.memory),
            permit: None,
            bytes: 0,
            units: 0,
            shares: Arc::clone(&self.shares),
            payers,
        })
    }
}

impl Room {
    /// Takes memory for more of the body, or refuses the body. It does not wait, because a slow client may hold the
    /// memory.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        self.bytes += bytes;
        let more = units(self.bytes) - self.units;
        let permits = u32::try_from(more).map_err(|_| Problem::busy())?;
        let share = Share {
            bodies: 0,
            units: more,
        };
        self.shares.take(&self.payers, share)?;
        // Counted from here on: given back with the share.
        self.units += more;
        let permit = Arc::clone(&self.memory).try_acquire_many_owned(permits);
        let permit = permit.map_err(|_| Problem::busy())?;
        match &mut self.permit {
            Some(held) => held.merge(permit),
            None => self.permit = Some(permit),
        }
        Ok(())
    }
}

impl Room {
    /// It is known by now who sent the body: it counts against that share, and no longer against the strangers'.
    pub fn prove(&mut self, payer: Payer) -> Result<(), Problem> {
        self.shares.take(&[payer], self.share())?;
        self.shares.give_back(&self.payers, self.share());
        self.payers = vec![payer];
        Ok(())
    }

    fn share(&self) -> Share {
        Share {
            bodies: 1,
            units: self.units,
        }
    }

    /// Makes room for more bytes in a buffer of at most `most`. What the buffer allocates is counted, not what it holds.
    pub fn reserve(
        &mut self,
        buffer: &mut Vec<u8>,
        more: usize,
        most: usize,
    ) -> Result<(), Problem> {
        let (before, needed) = (buffer.capacity(), buffer.len() + more);
        if needed > before {
            // In larger and larger steps, so that a body that comes byte by byte is not copied with each of them.
            let after = (before * 2).min(most).max(needed);
            self.grow(after - before)?;
            buffer.reserve_exact(after - buffer.len());
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shares.give_back(&self.payers, self.share());
    }
}

impl Shares {
    /// Takes this much of each, or nothing.
    fn take(&self, payers: &[Payer], more: Share) -> Result<(), Problem> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for payer in payers {
            let share = taken.get(payer).copied().unwrap_or_default();
            let most = self.most_of(*payer);
            if share.bodies + more.bodies > most.bodies || share.units + more.units > most.units {
                return Err(match payer {
                    Payer::Token(_) => Problem::token_busy(),
                    _ => Problem::busy(),
                });
            }
        }
        for payer in payers {
            let share = taken.entry(*payer).or_default();
            share.bodies += more.bodies;
            share.units += more.units;
        }
        Ok(())
    }

    fn most_of(&self, payer: Payer) -> Share {
        match payer {
            Payer::Token(_) | Payer::Source(_) => self.most,
            Payer::Unproven(_) => self.unproven.part(2),
            Payer::AllUnproven => self.unproven,
        }
    }

    fn give_back(&self, payers: &[Payer], less: Share) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for payer in payers {
            let Some(share) = taken.get_mut(payer) else {
                continue;
            };
            share.bodies -= less.bodies;
            share.units -= less.units;
            if share.bodies == 0 {
                taken.remove(payer);
            }
        }
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: usize = 1 << 20;

    fn limits() -> RequestLimits {
        RequestLimits::new(&HttpConfig {
            max_body_bytes: MEGABYTE,
            // Eight of them are the API's.
            max_connections: 24,
            ..HttpConfig::default()
        })
    }

    /// As many bodies of a size as get room.
    fn fill(limits: &RequestLimits, token_id: Option<i64>, bytes: usize) -> Vec<Room> {
        let mut rooms = Vec::new();
        while let Ok(mut room) = limits.body(token_id) {
            if room.grow(bytes).is_err() {
                break;
            }
            rooms.push(room);
        }
        rooms
    }

    #[test]
    fn bodies_share_the_memory_of_four_of_the_largest() {
        let limits = limits();
        let rooms = fill(&limits, None, MEGABYTE);
        assert_eq!(rooms.len(), 4);
        drop(rooms);
        assert_eq!(fill(&limits, None, MEGABYTE).len(), 4, "it is given back");
    }

    #[test]
    fn a_body_that_comes_in_pieces_is_counted_as_it_is_allocated() {
        const MOST: usize = 10_000;
        let limits = limits();
        let mut room = limits.body(None).ok().unwrap();
        let mut buffer = Vec::new();
        for _ in 0..MOST / 100 {
            room.reserve(&mut buffer, 100, MOST).unwrap();
            buffer.extend([0; 100]);
            assert!(
                buffer.capacity() <= room.bytes,
                "{} {}",
                buffer.capacity(),
                room.bytes
            );
            assert!(room.bytes <= MOST);
        }
        assert_eq!(buffer.len(), MOST);
    }

    #[test]
    fn a_body_that_has_not_arrived_holds_no_memory() {
        let limits = limits();
        let slow: Vec<Room> = (0..100).map(|_| limits.body(None).ok().unwrap()).collect();
        assert_eq!(fill(&limits, None, MEGABYTE).len(), 4);
        drop(slow);
    }

    #[test]
    fn one_token_leaves_others_half_of_the_memory_and_of_the_connections() {
        let limits = limits();
        let large = fill(&limits, Some(1), MEGABYTE);
        assert_eq!(large.len(), 2);
        assert_eq!(fill(&limits, Some(2), MEGABYTE).len(), 2);
        drop(large);
        let small = fill(&limits, Some(1), 1);
        assert_eq!(small.len(), 4);
        assert_eq!(fill(&limits, Some(2), 1).len(), 4);
        drop(small);
        assert!(limits.shares.taken.lock().unwrap().is_empty());
    }

    #[test]
    fn strangers_together_leave_tokens_half_of_the_memory_and_three_quarters_of_the_connections() {
        let limits = limits();
        let fill = |stranger, bytes| {
            let mut rooms = Vec::new();
            while let Ok(mut room) = limits.body_of(stranger) {
                if room.grow(bytes).is_err() {
                    break;
                }
                rooms.push(room);
            }
            rooms
        };
        let strangers = [
            Stranger::Source(1),
            Stranger::Source(2),
            Stranger::Agent(1),
            Stranger::SignIn,
        ];
        let large: Vec<_> = strangers.map(|stranger| fill(stranger, MEGABYTE)).into();
        let counts: Vec<usize> = large.iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 1, 0, 0]);
        assert_eq!(super::tests::fill(&limits, Some(1), MEGABYTE).len(), 2);
        drop(large);
        let small: Vec<_> = strangers.map(|stranger| fill(stranger, 1)).into();
        let counts: Vec<usize> = small.iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 1, 0, 0]);
        assert_eq!(super::tests::fill(&limits, Some(1), 1).len(), 4);
        drop(small);
        assert!(limits.shares.taken.lock().unwrap().is_empty());
    }

    #[test]
    fn what_is_proven_gives_way_to_other_strangers_and_has_the_share_of_a_token() {
        let limits = limits();
        let mut proven = Vec::new();
        for _ in 0..2 {
            let mut room = limits.body_of(Stranger::Source(1)).ok().unwrap();
            room.grow(MEGABYTE).unwrap();
            room.prove(Payer::Source(1)).unwrap();
            proven.push(room);
        }
        let mut third = limits.body_of(Stranger::Source(1)).ok().unwrap();
        third.grow(MEGABYTE).unwrap();
        assert!(
            third.prove(Payer::Source(1)).is_err(),
            "it has half of the memory"
        );
        drop((proven, third));
        assert!(limits.shares.taken.lock().unwrap().is_empty());
        assert_eq!(limits.memory.available_permits(), 4 * 1_024);
    }

    #[test]
    fn a_body_takes_by_the_kilobyte_however_it_is_cut() {
        let limits = limits();
        let mut room = limits.body(Some(1)).ok().unwrap();
        for _ in 0..2_048 {
            room.grow(1).ok().unwrap();
        }
        assert_eq!(limits.memory.available_permits(), 4 * 1_024 - 2);
    }
}
