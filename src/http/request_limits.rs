//! Limits on requests: how many run at once, and how much memory their bodies take.
//!
//! A body takes memory as it arrives, so a body that is sent slowly, or only announced, holds only what has arrived.
//! The bodies of one access token take at most half of that memory, and half of the API's connections, so a client that
//! never finishes its requests cannot block the others.

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
    /// The token whose share it counts against. `None`: the request needed no token.
    share: Option<(Arc<Shares>, i64)>,
}

/// The share of memory and connections that each access token's bodies use.
struct Shares {
    most: Share,
    taken: Mutex<HashMap<i64, Share>>,
}

#[derive(Clone, Copy, Default)]
struct Share {
    bodies: usize,
    units: usize,
}

impl RequestLimits {
    pub fn new(config: &HttpConfig) -> Self {
        let units = units(config.max_body_bytes) * LARGEST_BODIES;
        let most = Share {
            bodies: (connections::of_api(config.max_connections) / 2).max(1),
            units: units / 2,
        };
        Self {
            requests: Arc::new(Semaphore::new(config.max_requests)),
            memory: Arc::new(Semaphore::new(units)),
            shares: Arc::new(Shares {
                most,
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

    /// Reserves room for a body of this token.
    pub fn body(&self, token_id: Option<i64>) -> Result<Room, Problem> {
        if let Some(token_id) = token_id {
            self.shares.take(
                token_id,
                Share {
                    bodies: 1,
                    units: 0,
                },
            )?;
        }
        Ok(Room {
            memory: Arc::clone(&self.memory),
            permit: None,
            bytes: 0,
            units: 0,
            share: token_id.map(|token_id| (Arc::clone(&self.shares), token_id)),
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
        if let Some((shares, token_id)) = &self.share {
            let more = Share {
                bodies: 0,
                units: more,
            };
            shares.take(*token_id, more)?;
        }
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
        if let Some((shares, token_id)) = &self.share {
            let bodies = 1;
            let units = self.units;
            shares.give_back(*token_id, Share { bodies, units });
        }
    }
}

impl Shares {
    fn take(&self, token_id: i64, more: Share) -> Result<(), Problem> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let share = taken.entry(token_id).or_default();
        let then = Share {
            bodies: share.bodies + more.bodies,
            units: share.units + more.units,
        };
        if then.bodies > self.most.bodies || then.units > self.most.units {
            return Err(Problem::token_busy());
        }
        *share = then;
        Ok(())
    }

    fn give_back(&self, token_id: i64, less: Share) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = taken.get_mut(&token_id) {
            share.bodies -= less.bodies;
            share.units -= less.units;
            if share.bodies == 0 {
                taken.remove(&token_id);
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
    fn a_body_takes_by_the_kilobyte_however_it_is_cut() {
        let limits = limits();
        let mut room = limits.body(Some(1)).ok().unwrap();
        for _ in 0..2_048 {
            room.grow(1).ok().unwrap();
        }
        assert_eq!(limits.memory.available_permits(), 4 * 1_024 - 2);
    }
}
