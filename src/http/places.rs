//! How much requests may take: memory for their bodies, places, and one connection for each session.
//!
//! Appends to one session wait for each other in Postgres, and for whoever else has it. So they wait here, where
//! it costs no connection: a session that somebody keeps open holds up one connection and no other session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::problem::Problem;

/// Bodies of the largest size that are in memory at once.
const LARGEST_BODIES: usize = 4;
const UNIT: usize = 1024;
/// How long an append waits for another of its session.
const SESSION_WITHIN: Duration = Duration::from_secs(5);
/// Sessions that are remembered before those that nobody waits for are forgotten.
const SESSIONS: usize = 1024;

type Gate = tokio::sync::Mutex<()>;

pub struct Places {
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    max_body_bytes: usize,
    sessions: Mutex<HashMap<String, Weak<Gate>>>,
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
            sessions: Mutex::default(),
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

    /// Waits for this process's other appends to the session.
    pub async fn session(
        &self,
        stream: &str,
        session: &str,
    ) -> Result<OwnedMutexGuard<()>, Problem> {
        let gate = self.gate(format!("{stream}\0{session}"));
        timeout(SESSION_WITHIN, gate.lock_owned())
            .await
            .map_err(|_| Problem::session_busy())
    }

    fn gate(&self, name: String) -> Arc<Gate> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = sessions.get(&name).and_then(Weak::upgrade) {
            return gate;
        }
        if sessions.len() >= SESSIONS {
            sessions.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::new(Gate::default());
        sessions.insert(name, Arc::downgrade(&gate));
        gate
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

    #[tokio::test(start_paused = true)]
    async fn appends_to_one_session_wait_for_each_other_and_for_no_other() {
        let places = Places::new(64, 1 << 20);
        let first = places.session("runs", "a").await.ok().unwrap();
        assert!(places.session("runs", "b").await.is_ok());
        assert!(places.session("runsa", "").await.is_ok());
        assert!(places.session("runs", "a").await.is_err());
        drop(first);
        assert!(places.session("runs", "a").await.is_ok());
        for number in 0..3 * SESSIONS {
            drop(places.session("runs", &number.to_string()).await.ok());
        }
        assert!(places.sessions.lock().unwrap().len() <= SESSIONS);
    }
}
