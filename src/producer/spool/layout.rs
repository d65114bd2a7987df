//! What a session file looks like, how it is opened, and its lock.
//!
//! A head with the offset of the first unsent line, then the lines. The lock (`flock` on the file
//! itself) is held for one write, one move of the offset or the unlink, never while Postgres or the
//! disk is waited for.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::SpoolError;
use super::record::checksum;

/// `LKSPOOL1 ` + 20 digits + space + checksum of the digits + newline.
const MAGIC: &str = "LKSPOOL1";
pub(super) const HEAD_LEN: u64 = 47;

/// A holder writes at most some megabytes; longer than this and it is stopped, not slow.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(1);

pub(super) fn head(offset: u64) -> Vec<u8> {
    let digits = format!("{offset:020}");
    format!("{MAGIC} {digits} {}\n", checksum(digits.as_bytes())).into_bytes()
}

/// Where the first unsent line starts; the first line of all where the head is torn, or notes what the file does not
/// have: a machine that lost its power may keep the head's page and lose the lines.
pub(super) fn noted_offset(file: &File) -> io::Result<u64> {
    let len = file.metadata()?.len();
    Ok(raw_offset(file)?
        .filter(|&noted| noted <= len)
        .unwrap_or(HEAD_LEN))
}

/// Whether the head notes as sent what the file does not have.
pub(super) fn notes_too_much(file: &File, len: u64) -> io::Result<bool> {
    Ok(raw_offset(file)?.is_some_and(|noted| noted > len))
}

fn raw_offset(file: &File) -> io::Result<Option<u64>> {
    let mut head = [0; HEAD_LEN as usize];
    match file.read_exact_at(&mut head, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| parse_head(&head)),
    }
}

fn parse_head(head: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head).ok()?.strip_suffix('\n')?;
    let (digits, sum) = text
        .strip_prefix(MAGIC)?
        .strip_prefix(' ')?
        .split_once(' ')?;
    let offset = digits.parse().ok()?;
    (checksum(digits.as_bytes()) == sum && offset >= HEAD_LEN).then_some(offset)
}

/// Opens a session file to read and write. What lies in its place and is a link, a pipe or a device
/// is refused: it leads to something that is not the spool's.
pub(super) fn open(path: &Path, create: bool) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Takes the lock, which goes with the file's handle at the latest.
pub(super) fn lock(file: &File, path: &Path, patience: Duration) -> Result<(), SpoolError> {
    let deadline = Instant::now() + patience;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if Instant::now() >= deadline => {
                return Err(SpoolError::Locked {
                    path: path.to_owned(),
                });
            }
            Err(Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(1)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(SpoolError::io("lock", path, errno.into())),
        }
    }
}

pub(super) fn unlock(file: &File) -> io::Result<()> {
    flock(file, FlockOperation::Unlock).map_err(io::Error::from)
}
