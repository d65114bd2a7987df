//! The destination of past events: it counts them, and notices what comes out of order.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use tokio::time::sleep;

use super::super::paced::{Journal, Watched};
use super::super::{Backlog, BenchError};
use super::{LOOK_EVERY, PREFIX};

/// What came of the past events.
pub struct Past {
    total: usize,
    /// The last seq that was delivered, by session.
    cursors: Vec<AtomicI64>,
    delivered: AtomicU64,
    disordered: AtomicU64,
    ended_at: Mutex<Option<Instant>>,
}

impl Past {
    pub fn new(past: Backlog) -> Self {
        Self {
            total: past.total(),
            cursors: (0..past.sessions).map(|_| AtomicI64::new(0)).collect(),
            delivered: AtomicU64::new(0),
            disordered: AtomicU64::new(0),
            ended_at: Mutex::default(),
        }
    }

    pub fn total(&self) -> usize {
        self.total
    }

    /// They are delivered again, from the first one on.
    pub fn begin_anew(&self) {
        for cursor in &self.cursors {
            cursor.store(0, Ordering::Relaxed);
        }
        self.delivered.store(0, Ordering::Relaxed);
        *self.ended_at() = None;
    }

    fn ended_at(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.ended_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, session: usize, seq: i64) {
        let Some(cursor) = self.cursors.get(session) else {
            return;
        };
        // One lane delivers a session.
        let before = cursor.load(Ordering::Relaxed);
        if seq <= before {
            return;
        }
        if seq != before + 1 {
            self.disordered.fetch_add(1, Ordering::Relaxed);
        }
        cursor.store(seq, Ordering::Relaxed);
        if self.delivered.fetch_add(1, Ordering::Relaxed) + 1 == self.total as u64 {
            *self.ended_at() = Some(Instant::now());
        }
    }

    /// Waits until all are delivered; returns when the last one was.
    pub async fn ended(&self, patience: Duration) -> Result<Instant, BenchError> {
        let mut last = (0, Instant::now());
        loop {
            let ended_at = *self.ended_at();
            if let Some(ended_at) = ended_at {
                return match self.disordered.load(Ordering::Relaxed) {
                    0 => Ok(ended_at),
                    disordered => Err(BenchError::Disordered(disordered)),
                };
            }
            let delivered = self.delivered.load(Ordering::Relaxed);
            if delivered > last.0 {
                last = (delivered, Instant::now());
            } else if last.1.elapsed() > patience {
                return Err(BenchError::Stalled {
                    delivered,
                    expected: self.total as u64,
                    silent: patience,
                });
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// The destination of live and past events.
pub struct Both {
    live: Watched,
    past: Arc<Past>,
}

impl Both {
    pub fn new(journal: Arc<Journal>, past: Arc<Past>) -> Self {
        Self {
            live: Watched(journal),
            past,
        }
    }
}

#[async_trait]
impl Adapter for Both {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let event = &delivery.event;
        let number = event
            .session
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|number| number.parse().ok());
        match number {
            Some(session) => {
                self.past.deliver(session, event.seq);
                Verdict::Accepted
            }
            None => self.live.deliver(delivery).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_ends_with_the_last_event_and_begins_anew() {
        let past = Past::new(Backlog {
            sessions: 2,
            events: 2,
        });
        for _ in 0..2 {
            for (session, seq) in [(0, 1), (1, 1), (1, 1), (1, 2)] {
                past.deliver(session, seq);
            }
            assert!(past.ended(Duration::ZERO).await.is_err(), "one is missing");
            past.deliver(0, 2);
            past.ended(Duration::ZERO).await.unwrap();
            past.begin_anew();
        }
    }

    #[tokio::test]
    async fn what_comes_out_of_order_fails() {
        let past = Past::new(Backlog {
            sessions: 1,
            events: 2,
        });
        past.deliver(0, 2);
        past.begin_anew();
        past.deliver(0, 1);
        past.deliver(0, 2);
        let ended = past.ended(Duration::ZERO).await;
        assert!(matches!(ended, Err(BenchError::Disordered(1))), "{ended:?}");
    }
}
