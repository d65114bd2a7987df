//! One session's spool file as a drain sees it: reading what is unsent, and noting what was sent.
//!
//! The offset of the first unsent line is overwritten in place: it lives and dies with the file that
//! it speaks of. It never goes back, so that a drain that was slower than another repeats nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use tokio::time::Instant;

use super::SpoolError;
use super::append::Appended;
use super::layout::{LOCK_WAIT, head, lock, noted_offset, open, unlock};
use super::lines::{Bytes, Lines};
use super::record::{check_line, is_of_one_event};

/// What is copied between two looks at the deadline.
const CHUNK: usize = 4 << 20;

/// What lies between two newlines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The JSON of a record.
    Whole(String),
    /// Bytes of an append that never finished.
    Torn(Span),
    /// More than a record may have. It is the only line of its batch.
    Oversized(Span),
}

/// Bytes of a session file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub offset: u64,
    pub len: u64,
}

/// How much is read at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portion {
    pub lines: usize,
    /// No line is taken after these.
    pub bytes: usize,
    /// A line that is longer, and no longer than a record may be, is left where it is.
    pub line_bytes: u64,
}

/// Consecutive lines, and the offset after them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub lines: Vec<Line>,
    pub end: u64,
    /// The next line is longer than was asked for.
    pub left_one: bool,
}

/// What a drain finds after it moved the offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    /// More was appended meanwhile.
    More,
    /// Everything was sent; the file is gone.
    Gone,
    /// Everything was sent but for a torn tail; the file is gone, and can be read through its handle.
    GoneWithTail(Span),
}

/// A session file that a drain has open. Appends go on meanwhile.
#[derive(Debug)]
pub(super) struct SessionFile {
    path: PathBuf,
    file: File,
    /// Where the first unsent line starts, as far as this drain knows.
    offset: u64,
    max_line: u64,
}

impl SessionFile {
    /// `None`: somebody else finished it. Never more than `max_line` bytes of a line are held.
    pub(super) fn open(path: &Path, max_line: u64) -> Result<Option<Self>, SpoolError> {
        let file = match open(path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|source| SpoolError::io("open", path, source))?,
        };
        let offset = noted_offset(&file).map_err(|source| SpoolError::io("read", path, source))?;
        Ok(Some(Self {
            path: path.to_owned(),
            file,
            offset,
            max_line,
        }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a record was sent, by whomever: its file is another one, or the offset has passed it.
    pub(super) fn has_sent(&self, record: &Appended) -> Result<bool, SpoolError> {
        let is_here = record.is_in(&self.file).map_err(self.failed("read"))?;
        Ok(!is_here || self.offset >= record.end)
    }

    /// The next lines: at least one if there is one that may be taken.
    pub(super) fn read(&self, portion: Portion) -> Result<Batch, SpoolError> {
        self.read_lines(portion).map_err(self.failed("read"))
    }

    fn read_lines(&self, portion: Portion) -> io::Result<Batch> {
        let mut lines = Lines::from(&self.file, self.offset, self.max_line)?;
        let mut batch = Batch {
            end: self.offset,
            ..Batch::default()
        };
        let is_full = |batch: &Batch| {
            batch.lines.len() >= portion.lines || batch.end - self.offset >= portion.bytes as u64
        };
        while !is_full(&batch)
            && let Some(line) = lines.next()?
        {
            let span = Span {
                offset: line.offset,
                len: line.len,
            };
            match line.bytes {
                Bytes::Oversized if batch.lines.is_empty() => {
                    batch.lines.push(Line::Oversized(span));
                    batch.end += line.len;
                    break;
                }
                Bytes::Oversized => break,
                Bytes::Held(_) if line.len > portion.line_bytes => {
                    batch.left_one = true;
                    break;
                }
                Bytes::Held(bytes) => batch.push(bytes, span),
            }
        }
        Ok(batch)
    }

    /// Lines from the offset on that have their newline, and their bytes; a record and its amended
    /// copy are one. Holds a line at a time.
    pub(super) fn count(&self) -> Result<(u64, u64), SpoolError> {
        self.count_lines().map_err(self.failed("read"))
    }

    fn count_lines(&self) -> io::Result<(u64, u64)> {
        let mut lines = Lines::from(&self.file, self.offset, self.max_line)?;
        let (mut events, mut bytes) = (0, 0);
        let mut before: Option<String> = None;
        while let Some(line) = lines.next()? {
            bytes += line.len;
            let json = match line.bytes {
                Bytes::Held(held) => check_line(&held).map(str::to_owned),
                Bytes::Oversized => None,
            };
            let is_copy = matches!((&before, &json), (Some(a), Some(b)) if is_of_one_event(a, b));
            events += u64::from(!is_copy);
            before = json;
        }
        Ok((events, bytes))
    }

    /// The JSON of the first line that is whole. Holds a line at a time.
    pub(super) fn first(&self) -> Result<Option<String>, SpoolError> {
        self.first_whole().map_err(self.failed("read"))
    }

    fn first_whole(&self) -> io::Result<Option<String>> {
        let mut lines = Lines::from(&self.file, self.offset, self.max_line)?;
        while let Some(line) = lines.next()? {
            if let Bytes::Held(bytes) = line.bytes
                && let Some(json) = check_line(&bytes)
            {
                return Ok(Some(json.to_owned()));
            }
        }
        Ok(None)
    }

    /// The beginning of a span.
    pub(super) fn beginning(&self, span: Span, max: usize) -> Result<Vec<u8>, SpoolError> {
        let len = usize::try_from(span.len).map_or(max, |len| len.min(max));
        let mut bytes = vec![0; len];
        self.file
            .read_exact_at(&mut bytes, span.offset)
            .map_err(self.failed("read"))?;
        Ok(bytes)
    }

    /// Copies a span, a chunk at a time.
    pub(super) fn copy(
        &self,
        span: Span,
        to: &mut File,
        deadline: Option<Instant>,
    ) -> Result<(), SpoolError> {
        let (mut offset, end) = (span.offset, span.offset + span.len);
        let mut chunk = vec![0; CHUNK.min(usize::try_from(span.len).unwrap_or(CHUNK))];
        while offset < end {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(SpoolError::NoTime {
                    path: self.path.clone(),
                    bytes: span.len,
                });
            }
            let len =
                usize::try_from(end - offset).map_or(chunk.len(), |left| left.min(chunk.len()));
            let copied = self
                .file
                .read_exact_at(&mut chunk[..len], offset)
                .and_then(|()| to.write_all(&chunk[..len]));
            copied.map_err(self.failed("copy"))?;
            offset += len as u64;
        }
        Ok(())
    }

    /// Notes that everything before `offset` is settled, and removes the file if that is all.
    pub(super) fn advance(&mut self, offset: u64) -> Result<After, SpoolError> {
        lock(&self.file, &self.path, LOCK_WAIT)?;
        let after = self.advance_locked(offset);
        let unlocked = unlock(&self.file);
        after
            .and_then(|after| unlocked.map(|()| after))
            .map_err(self.failed("update"))
    }

    fn advance_locked(&mut self, offset: u64) -> io::Result<After> {
        let meta = self.file.metadata()?;
        if meta.nlink() == 0 {
            return Ok(After::Gone);
        }
        // Another drain may have come further.
        let offset = offset.max(noted_offset(&self.file)?);
        self.offset = offset;
        if Lines::from(&self.file, offset, self.max_line)?
            .next()?
            .is_some()
        {
            self.file.write_all_at(&head(offset), 0)?;
            return Ok(After::More);
        }
        // With the lock held nobody is writing: what has no newline never will.
        fs::remove_file(&self.path)?;
        Ok(match meta.len().saturating_sub(offset) {
            0 => After::Gone,
            len => After::GoneWithTail(Span { offset, len }),
        })
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> SpoolError {
        move |source| SpoolError::io(action, &self.path, source)
    }
}

impl Batch {
    fn push(&mut self, bytes: Vec<u8>, span: Span) {
        self.end += span.len;
        let line = match check_line(&bytes) {
            Some(json) => Line::Whole(json.to_owned()),
            None => Line::Torn(span),
        };
        match (self.lines.last_mut(), line) {
            // The same event once more, with what was found out after its first writing.
            (Some(Line::Whole(before)), Line::Whole(json)) if is_of_one_event(before, &json) => {
                *before = json;
            }
            (_, line) => self.lines.push(line),
        }
    }
}

#[cfg(test)]
mod tests;
