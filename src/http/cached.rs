//! What requests of strangers ask for and Postgres knows: read for all of them together, and again after a while.
//!
//! A stranger costs no statement of his own. While Postgres does not answer, nobody waits for more than one attempt: those
//! that waited for it share its failure, and so do those that come within [`Cached::new`]'s time after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::Pool;
use lanekeeper_postgres::StoreError;
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;

use super::lease::Lease;
use super::problem::Problem;
use super::problem_type;

const READ_WITHIN: Duration = Duration::from_secs(5);

/// By name. The error says why this worker cannot use it.
pub type ByName<T> = HashMap<String, Result<Arc<T>, String>>;

pub struct Cached<T> {
    /// How long what was read counts, and how long a failure does.
    believed_for: Duration,
    last: Mutex<Last<T>>,
    /// Held by whoever reads it again. The others wait for him.
    reading: tokio::sync::Mutex<()>,
}

struct Last<T> {
    /// Kept when it is too old, for what compares it with what is newer.
    read: Option<(Instant, Arc<T>)>,
    failed: Option<Instant>,
}

impl<T: Send + Sync + 'static> Cached<T> {
    pub fn new(believed_for: Duration) -> Arc<Self> {
        Arc::new(Self {
            believed_for,
            last: Mutex::new(Last {
                read: None,
                failed: None,
            }),
            reading: tokio::sync::Mutex::default(),
        })
    }

    /// What was read last, or is read now: by `read`, which is given what was read before.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn get<F>(
        self: &Arc<Self>,
        read: impl FnOnce(Option<Arc<T>>) -> F + Send + 'static,
    ) -> Result<Arc<T>, Problem>
    where
        F: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        if let Some(known) = self.known() {
            return known;
        }
        let cached = Arc::clone(self);
        // In a task of its own: a client that leaves must not make the next one begin again.
        let reading = tokio::spawn(async move {
            let _one = cached.reading.lock().await;
            if let Some(known) = cached.known() {
                return known;
            }
            let before = cached
                .last()
                .read
                .as_ref()
                .map(|(_, read)| Arc::clone(read));
            let read = read(before).await.map(Arc::new);
            let mut last = cached.last();
            match &read {
                Ok(read) => {
                    last.read = Some((Instant::now(), Arc::clone(read)));
                    last.failed = None;
                }
                Err(_) => last.failed = Some(Instant::now()),
            }
            read
        });
        reading.await.unwrap_or_else(|_| Err(Problem::failed()))
    }

    /// What needs not be read again yet.
    fn known(&self) -> Option<Result<Arc<T>, Problem>> {
        let last = self.last();
        if let Some((at, read)) = &last.read
            && at.elapsed() < self.believed_for
        {
            return Some(Ok(Arc::clone(read)));
        }
        let has_failed = last
            .failed
            .is_some_and(|at| at.elapsed() < self.believed_for);
        has_failed.then(|| Err(Problem::away()))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last<T>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks Postgres. A connection that does not answer in time does not go back to the pool.
pub async fn ask<R>(
    pool: &Pool,
    question: impl AsyncFnOnce(&Client) -> Result<R, StoreError>,
) -> Result<R, Problem> {
    let asking = async {
        let lease = Lease::take(pool).await?;
        let answer = question(lease.client()).await;
        lease.done();
        answer.map_err(|error| {
            let problem = Problem::of_statement(&error);
            // What is read belongs to no session: somebody locked the table.
            match problem.problem_type() == problem_type::SESSION_BUSY {
                true => Problem::away(),
                false => problem,
            }
        })
    };
    timeout(READ_WITHIN, asking)
        .await
        .unwrap_or_else(|_| Err(Problem::away()))
}

/// Those that cannot be used, with the reason, and could before, or for another reason.
pub fn newly_refused<'a, T>(
    before: Option<&'a ByName<T>>,
    now: &'a ByName<T>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    now.iter().filter_map(move |(name, usable)| {
        let reason = usable.as_ref().err()?;
        let known = before.and_then(|before| before.get(name)?.as_ref().err());
        (known != Some(reason)).then_some((name.as_str(), reason.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const BELIEVED_FOR: Duration = Duration::from_secs(1);
    const SLOW: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_for_a_read_that_fails_share_its_failure_and_do_not_queue() {
        let cached = Cached::<u8>::new(BELIEVED_FOR);
        let reads = Arc::new(AtomicUsize::new(0));
        let begun = Instant::now();
        let ask = || {
            let reads = Arc::clone(&reads);
            cached.get(async move |_| {
                reads.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(SLOW).await;
                Err(Problem::away())
            })
        };
        let all = tokio::join!(ask(), ask(), ask(), ask(), ask(), ask());
        assert!(all.0.is_err() && all.3.is_err() && all.5.is_err());
        assert!(
            begun.elapsed() < SLOW + BELIEVED_FOR,
            "{:?}",
            begun.elapsed()
        );
        assert!(ask().await.is_err(), "it failed a moment ago");
        assert_eq!(reads.load(Ordering::SeqCst), 1);
        tokio::time::advance(BELIEVED_FOR).await;
        assert!(ask().await.is_err());
        assert_eq!(reads.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_counts_for_a_while_and_is_there_for_the_next_read_even_behind_a_failure()
    {
        let cached = Cached::<u8>::new(BELIEVED_FOR);
        let first = cached.get(async |before| {
            assert!(before.is_none());
            Ok(1)
        });
        assert_eq!(first.await.ok().as_deref(), Some(&1));
        let again = cached.get(async |_| Ok(2)).await;
        assert_eq!(again.ok().as_deref(), Some(&1));
        tokio::time::advance(BELIEVED_FOR).await;
        assert!(cached.get(async |_| Err(Problem::away())).await.is_err());
        tokio::time::advance(BELIEVED_FOR).await;
        let last = cached.get(async |before| {
            assert_eq!(before.as_deref(), Some(&1));
            Ok(3)
        });
        assert_eq!(last.await.ok().as_deref(), Some(&3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_does_not_end_the_read() {
        let cached = Cached::<u8>::new(BELIEVED_FOR);
        let left = cached.get(async |_| {
            tokio::time::sleep(SLOW).await;
            Ok(1)
        });
        assert!(timeout(SLOW / 5, left).await.is_err());
        let begun = Instant::now();
        let other = cached.get(async |_| Ok(2)).await;
        assert_eq!(other.ok().as_deref(), Some(&1));
        assert!(begun.elapsed() < SLOW);
    }
}
