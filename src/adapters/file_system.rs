//! Reads files from a file system that may not answer, such as a secret's file on a network mount that is down.
//!
//! One thread at a time reads a file. A caller waits one second at most, including the wait for callers before it. A
//! file that did not answer is not read again until its first read has returned. So it costs one thread, and each
//! caller at most that second. While one file does not answer, callers wait less for other files, because a mount that
//! is down often has many files.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(1);
/// The wait for a file while another one does not answer.
const WITHIN_BESIDE: Duration = Duration::from_millis(100);

/// The files that are being read, each with the start of its read.
#[derive(Default)]
struct Asked {
    since: Mutex<Option<HashMap<PathBuf, Instant>>>,
    answered: Condvar,
}

static ASKED: Asked = Asked {
    since: Mutex::new(None),
    answered: Condvar::new(),
};

impl Asked {
    fn since(&self) -> MutexGuard<'_, Option<HashMap<PathBuf, Instant>>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody asks for it; returns how long its answer may take. `None`: it has not answered
    /// somebody for too long.
    fn begin(&self, path: &Path) -> Option<Duration> {
        let now = Instant::now();
        let mut since = self.since();
        loop {
            let asked = since.get_or_insert_default();
            let Some(began) = asked.get(path) else {
                let silent = asked.values().any(|began| began.elapsed() > WITHIN);
                asked.insert(path.to_owned(), now);
                return Some(if silent { WITHIN_BESIDE } else { WITHIN });
            };
            let left = WITHIN.saturating_sub(began.elapsed());
            if left.is_zero() {
                return None;
            }
            let waited = self.answered.wait_timeout(since, left);
            (since, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, path: &Path) {
        if let Some(asked) = &mut *self.since() {
            asked.remove(path);
        }
        self.answered.notify_all();
    }
}

/// What `question` comes to, which asks for this file.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] where it did not answer; what it says later is dropped.
pub(super) fn ask<T: Send + 'static>(
    path: &Path,
    question: impl FnOnce(&Path) -> T + Send + 'static,
) -> io::Result<T> {
    let silent = || io::Error::new(io::ErrorKind::TimedOut, "its file system does not answer");
    let within = ASKED.begin(path).ok_or_else(silent)?;
    let (answer, answered) = mpsc::sync_channel(1);
    let path = path.to_owned();
    let asking = path.clone();
    let started = std::thread::Builder::new()
        .name("secret-file".to_owned())
        .spawn(move || {
            let said = question(&asking);
            ASKED.end(&asking);
            // Whoever asked may have gone.
            let _ = answer.send(said);
        });
    if let Err(error) = started {
        ASKED.end(&path);
        return Err(error);
    }
    answered.recv_timeout(within).map_err(|_| silent())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_answer_costs_each_caller_a_second_and_the_process_one_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hung");
        let (release, held) = mpsc::channel::<()>();
        let began = Instant::now();
        let hung = ask(&path, move |_| held.recv().is_ok());
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= WITHIN);

        // Nobody asks again, and nobody waits again.
        let began = Instant::now();
        for _ in 0..100 {
            let again = ask(&path, |_| unreachable!("it is being asked for"));
            assert_eq!(again.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert!(began.elapsed() < WITHIN);
        let other = ask(&dir.path().join("other"), |_| 1);
        assert_eq!(other.unwrap(), 1);

        // When it has answered it is asked for as before.
        release.send(()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while ask(&path, |_| 2).is_err() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }

    #[test]
    fn those_who_ask_at_once_are_all_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "1").unwrap();
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..20).all(|_| ask(&path, |path| std::fs::read(path).is_ok()).unwrap())
                    })
                })
                .collect();
            assert!(asking.into_iter().all(|one| one.join().unwrap()));
        });
    }
}
