//! Writes a record to the end of its session's file.
//!
//! Once written, a record outlives its process, whatever ends that; once synced, it outlives the
//! machine. The two are apart so that the lock is free while the disk works, and so that a hook can
//! connect to Postgres meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanekeeper_fault::Hang;

use super::SpoolError;
use super::layout::{HEAD_LEN, head, lock, notes_too_much, open, unlock};

/// A record in its session's file, perhaps in the disk's cache only.
#[derive(Debug)]
pub struct Appended {
    path: PathBuf,
    file: File,
    /// The offset behind the record.
    pub(super) end: u64,
    /// The file is of this process: its name has to reach the disk as well.
    pub(super) is_new: bool,
    /// The record was too large: why, and where it is. A stand-in is in its place.
    pub(super) set_aside: Option<(String, PathBuf)>,
}

impl Appended {
    /// Returns when the record is on the disk.
    pub fn sync(&self) -> Result<(), SpoolError> {
        Hang::Sync.pass();
        let sync = || -> io::Result<()> {
            self.file.sync_data()?;
            if self.is_new {
                File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
            }
            Ok(())
        };
        sync().map_err(|source| SpoolError::io("sync", &self.path, source))
    }

    /// Why the record itself was not kept for sending, and where it is.
    pub fn set_aside(&self) -> Option<(&str, &Path)> {
        let (reason, kept_in) = self.set_aside.as_ref()?;
        Some((reason, kept_in))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `file` is the one that the record is in, and not a later one of the same name.
    pub(super) fn is_in(&self, file: &File) -> io::Result<bool> {
        let (own, other) = (self.file.metadata()?, file.metadata()?);
        Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
    }
}

/// Writes a line to the end of the file, which is made if need be. Waits for its lock for at most
/// `patience`.
pub(super) fn append(path: &Path, line: &[u8], patience: Duration) -> Result<Appended, SpoolError> {
    let failed = |action| move |source| SpoolError::io(action, path, source);
    loop {
        let file = open(path, true).map_err(failed("open"))?;
        lock(&file, path, patience)?;
        let meta = file.metadata().map_err(failed("read"))?;
        if meta.nlink() == 0 {
            // A drain unlinked it between our open and our lock.
            continue;
        }
        let written = write(&file, meta.len(), line);
        // Closing the handle would do it too, but the record keeps that.
        let unlocked = unlock(&file);
        let end = written.map_err(failed("append to"))?;
        unlocked.map_err(failed("unlock"))?;
        return Ok(Appended {
            path: path.to_owned(),
            file,
            end,
            is_new: meta.len() < HEAD_LEN,
            set_aside: None,
        });
    }
}

/// Returns the offset behind the line. Needs the lock.
fn write(file: &File, len: u64, line: &[u8]) -> io::Result<u64> {
    let mut bytes = Vec::with_capacity(line.len() + 64);
    let is_new = len < HEAD_LEN;
    let at = if is_new { 0 } else { len };
    if is_new {
        file.set_len(0)?;
        bytes.extend(head(HEAD_LEN));
    } else if notes_too_much(file, len)? {
        // Before the file grows past the offset, which would then count this line as sent.
        file.write_all_at(&head(HEAD_LEN), 0)?;
    }
    if !is_new && !ends_line(file, len)? {
        bytes.push(b'\n');
    }
    bytes.extend(line);
    if let Err(error) = file.write_all_at(&bytes, at) {
        // Without this the torn line would only be skipped later; the first error is what counts.
        let _ = file.set_len(at);
        return Err(error);
    }
    Ok(at + bytes.len() as u64)
}

fn ends_line(file: &File, len: u64) -> io::Result<bool> {
    let mut last = [0];
    file.read_exact_at(&mut last, len - 1)?;
    Ok(last == *b"\n")
}
