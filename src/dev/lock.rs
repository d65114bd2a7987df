//! The lock on a home: one owner at a time, and none while a server of a former one still runs.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, test_kill_process};

use super::DevError;
use super::error::file;

/// Longer than the supervisor of a killed owner takes to stop its server.
const LOCK_WAIT: Duration = Duration::from_secs(20);

/// Takes the lock at once, or waits for the server of an owner that died.
pub(super) async fn lock(root: &Path) -> Result<File, DevError> {
    let path = root.join("lock");
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(file("open", &path))?;
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(file("lock", &path)(error.into())),
        }
        let mut pid = String::new();
        lock.seek(SeekFrom::Start(0))
            .and_then(|_| lock.read_to_string(&mut pid))
            .map_err(file("read", &path))?;
        if is_alive(&pid) || Instant::now() > deadline {
            return Err(DevError::InUse {
                data_dir: root.to_owned(),
                pid,
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    lock.set_len(0)
        .and_then(|()| lock.seek(SeekFrom::Start(0)))
        .and_then(|_| lock.write_all(std::process::id().to_string().as_bytes()))
        .map_err(file("write", &path))?;
    Ok(lock)
}

pub(super) fn is_alive(pid: &str) -> bool {
    pid.parse()
        .ok()
        .and_then(Pid::from_raw)
        // A process of another user answers "not permitted": it lives too.
        .is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}
