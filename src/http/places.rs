//! How much requests may take: memory for their bodies, and places.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;

/// Bodies of the largest size that are in memory at once.
const LARGEST_BODIES: usize = 4;
const UNIT: usize = 1024;

pub struct Places {
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    max_body_bytes: usize,
}

/// A request's part, until it is done.
pub struct Place(#[allow(dead_code, reason = "it is held, not read")] OwnedSemaphorePermit);

/// Memory for a body.
pub struct Room(#[allow(dead_code, reason = "it is held, not read")] OwnedSemaphorePermit);

impl Places {
    pub fn new(max_requests: usize, max_body_bytes: usize) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(max_requests)),
            bytes: Arc::new(Semaphore::new(units(max_body_bytes) * LARGEST_BODIES)),
            max_body_bytes,
        }
    }

    pub fn max_body_bytes(&self) -> usize {
        self.max_body_bytes
    }

    pub fn request(&self) -> Result<Place, Problem> {
        let place = Arc::clone(&self.requests).try_acquire_owned();
        place.map(Place).map_err(|_| Problem::busy())
    }

    /// Memory for the body that these headers announce; for the largest where they do not say.
    pub fn body(&self, headers: &HeaderMap) -> Result<Room, Problem> {
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        // One that is too large is refused when so much of it was read: an answer before that is seldom heard.
        let bytes = announced.unwrap_or(usize::MAX).min(self.max_body_bytes);
        let wanted = u32::try_from(units(bytes)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.bytes).try_acquire_many_owned(wanted);
        room.map(Room).map_err(|_| Problem::busy())
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT).max(1)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn announcing(bytes: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
        headers
    }

    #[test]
    fn bodies_share_the_memory_of_four_of_the_largest() {
        let places = Places::new(64, 1 << 20);
        let none = HeaderMap::new();
        let unannounced: Vec<_> = (0..4).map(|_| places.body(&none).ok().unwrap()).collect();
        assert!(places.body(&announcing(10)).is_err());
        drop(unannounced);
        let small: Vec<_> = (0..4096).map(|_| places.body(&announcing(10))).collect();
        assert!(small.iter().all(Result::is_ok));
        drop(small);
        let large: Vec<_> = (0..5).map(|_| places.body(&announcing(1 << 30))).collect();
        assert_eq!(large.iter().filter(|room| room.is_ok()).count(), 4);
    }
}
