//! The worker's file descriptors. A delivery that fails for lack of one does not count as a failure of its destination.
//!
//! A hanging destination keeps connections open. If the process then has no descriptor left, deliveries to every other
//! destination fail, which would count attempts and open circuits although the worker is the cause. So a worker raises
//! its limit as far as it may, and a delivery that fails for this reason counts as not sent ([`Verdict::NotSent`]).

use std::error::Error;
use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lanekeeper_core::adapter::Verdict;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

/// Between two lines of the log.
const WARN_AGAIN: Duration = Duration::from_secs(10);

/// The limit that this process was started with, once it was raised.
static STARTED_WITH: Mutex<Option<Rlimit>> = Mutex::new(None);
static WARNED_AT: Mutex<Option<Instant>> = Mutex::new(None);

/// Raises the limit of open files as far as this process may. Returns the limit that holds then; `None`: there is
/// none.
pub fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => {
            *locked(&STARTED_WITH) = Some(limit);
            limit.maximum
        }
        Err(error) => {
            // Some systems refuse what they themselves named as the most.
            tracing::debug!(
                error = &error as &dyn Error,
                "the limit of open files stays as it is"
            );
            limit.current
        }
    }
}

/// Gives a program that was just started the limit that this process was started with: programs that use `select`
/// fail above 1,024 descriptors, and others close every possible one.
pub(crate) fn restore_limit(program: Pid) {
    #[cfg(target_os = "linux")]
    if let Some(limit) = *locked(&STARTED_WITH) {
        // Fails only where the program has ended.
        let _ = rustix::process::prlimit(Some(program), Resource::Nofile, limit);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = program;
}

/// The verdict of a delivery that failed with this error before anything was sent. `reason` describes a failure of the
/// destination; for lack of descriptors, the verdict is that the event was not sent.
pub(crate) fn unsent(error: &(dyn Error + 'static), reason: String) -> Verdict {
    if !is_own(error) {
        return Verdict::retry(reason);
    }
    let mut warned_at = locked(&WARNED_AT);
    if warned_at.is_none_or(|at| at.elapsed() >= WARN_AGAIN) {
        *warned_at = Some(Instant::now());
        tracing::warn!(
            error,
            "this worker lacks file descriptors or processes: deliveries wait and count no attempt. Raise its limit \
             of open files (ulimit -n), or lower the subscriptions' concurrency"
        );
    }
    Verdict::NotSent { reason }
}

/// Whether this process or its machine lacked something.
fn is_own(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    let causes = std::iter::from_fn(|| {
        let cause = next?;
        next = cause.source();
        Some(cause)
    });
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(lacks)
        // A resolver that cannot open its files says only that it does not know the name.
        || File::open("/dev/null").is_err_and(|error| lacks(&error))
}

/// Descriptors of the process or the machine; for a new program also memory and processes.
fn lacks(error: &io::Error) -> bool {
    let number = Errno::from_io_error(error);
    number.is_some_and(|number| {
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN].contains(&number)
    })
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no connection")]
    struct Outer(#[source] io::Error);

    #[test]
    fn a_want_of_descriptors_is_not_the_destinations() {
        for number in [Errno::MFILE, Errno::NFILE] {
            let error = Outer(io::Error::from_raw_os_error(number.raw_os_error()));
            let verdict = unsent(&error, "why".to_owned());
            let reason = "why".to_owned();
            assert_eq!(verdict, Verdict::NotSent { reason }, "{number}");
        }
        for number in [Errno::CONNREFUSED, Errno::HOSTUNREACH] {
            let error = Outer(io::Error::from_raw_os_error(number.raw_os_error()));
            assert_eq!(unsent(&error, "why".to_owned()), Verdict::retry("why"));
        }
    }
}
