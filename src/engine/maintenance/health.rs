//! What the probes ask: whether the loops run, and whether Postgres answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When a claim loop last ran and when Postgres last answered. Times are milliseconds from `origin`; 0: never.
#[derive(Debug)]
pub struct Health {
    origin: Instant,
    turned: AtomicU64,
    answered: AtomicU64,
    /// How many claim loops stand still, and since when the first does.
    standing: Mutex<(usize, Option<Instant>)>,
    /// Since when the worker lacks its liveness lock, and who has it.
    unlocked: Mutex<Option<(Instant, String)>>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            turned: AtomicU64::new(1),
            answered: AtomicU64::new(0),
            standing: Mutex::default(),
            unlocked: Mutex::default(),
        }
    }
}

impl Health {
    /// A claim loop ran once.
    pub fn loop_turned(&self) {
        self.turned.store(self.now(), Ordering::Relaxed);
    }

    /// Postgres answered on a lane connection.
    pub fn answered(&self) {
        self.answered.store(self.now(), Ordering::Relaxed);
    }

    pub fn since_loop_turned(&self) -> Duration {
        self.since(self.turned.load(Ordering::Relaxed))
    }

    /// `None` if it never answered.
    pub fn since_answered(&self) -> Option<Duration> {
        match self.answered.load(Ordering::Relaxed) {
            0 => None,
            at => Some(self.since(at)),
        }
    }

    /// One more claim loop stands still.
    pub fn stands_still(&self) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.0 += 1;
        standing.1.get_or_insert_with(Instant::now);
    }

    /// One of them goes on.
    pub fn moves(&self) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.0 = standing.0.saturating_sub(1);
        if standing.0 == 0 {
            standing.1 = None;
        }
    }

    /// For how long some claim loop has stood still.
    pub fn standing_for(&self) -> Option<Duration> {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.1.map(|since| since.elapsed())
    }

    /// The worker has its liveness lock.
    pub fn locked(&self) {
        *self.unlocked.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// It has not: `holder` has.
    pub fn unlocked(&self, holder: String) {
        let mut unlocked = self.unlocked.lock().unwrap_or_else(PoisonError::into_inner);
        let since = unlocked
            .as_ref()
            .map_or_else(Instant::now, |(since, _)| *since);
        *unlocked = Some((since, holder));
    }

    /// Who has had the worker's liveness lock for longer than `within`.
    pub fn lock_holder(&self, within: Duration) -> Option<String> {
        let unlocked = self.unlocked.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, holder) = unlocked.as_ref()?;
        (since.elapsed() > within).then(|| holder.clone())
    }

    fn since(&self, at: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(at))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .max(1)
    }
}
