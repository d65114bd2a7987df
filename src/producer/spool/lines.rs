//! Reads lines and never holds more of one than a record may have.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// What lies between two newlines, newlines excluded.
pub(super) enum Bytes {
    Held(Vec<u8>),
    /// More than may be held.
    Oversized,
}

/// A line, and where it lies.
pub(super) struct RawLine {
    pub offset: u64,
    /// With the newline.
    pub len: u64,
    pub bytes: Bytes,
}

/// Lines from an offset on. One without its newline is not among them: it is being written, or
/// never will be.
pub(super) struct Lines<'a> {
    file: &'a File,
    reader: BufReader<&'a File>,
    offset: u64,
    max: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn from(file: &'a File, offset: u64, max: u64) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(64 << 10, file);
        reader.seek(SeekFrom::Start(offset))?;
        Ok(Self {
            file,
            reader,
            offset,
            max,
        })
    }

    pub(super) fn next(&mut self) -> io::Result<Option<RawLine>> {
        let mut line = Vec::new();
        let offset = self.offset;
        let mut held = self.reader.by_ref().take(self.max + 1);
        let mut len = held.read_until(b'\n', &mut line)? as u64;
        let bytes = if line.pop_if(|last| *last == b'\n').is_some() {
            Bytes::Held(line)
        } else if len <= self.max {
            return Ok(None);
        } else {
            drop(line);
            len += self.reader.skip_until(b'\n')? as u64;
            let mut last = [0];
            self.file.read_exact_at(&mut last, offset + len - 1)?;
            if last != *b"\n" {
                return Ok(None);
            }
            Bytes::Oversized
        };
        self.offset += len;
        Ok(Some(RawLine { offset, len, bytes }))
    }
}
