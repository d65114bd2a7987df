//! One session's spool file: a head with the offset of the first unsent line, then the lines.
//!
//! The lock (`flock` on the file itself) is held for one append, one move of the offset or the
//! unlink, never while Postgres is waited for. The offset is overwritten in place: it lives and
//! dies with the file that it speaks of.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::SpoolError;
use super::record::{check_line, checksum};

/// `LKSPOOL1 ` + 20 digits + space + checksum of the digits + newline.
const MAGIC: &str = "LKSPOOL1";
const HEAD_LEN: u64 = 47;

/// A holder writes at most some megabytes; longer than this and it is stopped, not slow.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// What lies between two newlines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The JSON of a record.
    Whole(String),
    /// Bytes of an append that never finished, and where they lie.
    Torn { offset: u64, bytes: Vec<u8> },
}

/// Consecutive lines, and the offset after them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub lines: Vec<Line>,
    pub end: u64,
}

/// What a drain finds after it moved the offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    /// More was appended meanwhile.
    More,
    /// Everything was sent; the file is gone.
    Gone,
    /// Everything was sent but for a torn tail; the file is gone.
    GoneWithTail { offset: u64, bytes: Vec<u8> },
}

/// Appends a line to the file, which is made if need be, and syncs it.
pub(super) fn append(path: &Path, line: &[u8]) -> Result<(), SpoolError> {
    let failed = |action| move |source| SpoolError::io(action, path, source);
    loop {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(failed("open"))?;
        lock(&file, path)?;
        let meta = file.metadata().map_err(failed("read"))?;
        if meta.nlink() == 0 {
            // A drain unlinked it between our open and our lock.
            continue;
        }
        return append_locked(&file, meta.len(), line, path).map_err(failed("append to"));
    }
}

fn append_locked(mut file: &File, len: u64, line: &[u8], path: &Path) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(line.len() + 64);
    let is_new = len < HEAD_LEN;
    if is_new {
        file.set_len(0)?;
        bytes.extend(head(HEAD_LEN));
    } else if !ends_line(file, len)? {
        bytes.push(b'\n');
    }
    bytes.extend(line);
    let written = file.write_all(&bytes).and_then(|()| file.sync_data());
    if written.is_err() {
        // Without this the torn line would only be skipped later; the first error is what counts.
        let _ = file.set_len(if is_new { 0 } else { len });
        return written;
    }
    if is_new {
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// A session file that a drain has open. Appends go on meanwhile.
#[derive(Debug)]
pub(super) struct SessionFile {
    path: PathBuf,
    file: File,
    /// Where the first unsent line starts, as far as this drain knows.
    offset: u64,
}

impl SessionFile {
    /// `None`: somebody else finished it.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, SpoolError> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|source| SpoolError::io("open", path, source))?,
        };
        let mut head = [0; HEAD_LEN as usize];
        let offset = match file.read_exact_at(&mut head, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => HEAD_LEN,
            read => {
                read.map_err(|source| SpoolError::io("read", path, source))?;
                parse_head(&head).unwrap_or(HEAD_LEN)
            }
        };
        Ok(Some(Self {
            path: path.to_owned(),
            file,
            offset,
        }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next lines: at least one if there is one, at most `max_lines`, and none after
    /// `max_bytes` are reached. A line without its newline is still being written: not taken.
    pub(super) fn read(&self, max_lines: usize, max_bytes: usize) -> Result<Batch, SpoolError> {
        self.read_lines(max_lines, max_bytes)
            .map_err(|source| SpoolError::io("read", &self.path, source))
    }

    fn read_lines(&self, max_lines: usize, max_bytes: usize) -> io::Result<Batch> {
        let mut reader = BufReader::with_capacity(64 << 10, &self.file);
        reader.seek(SeekFrom::Start(self.offset))?;
        let mut batch = Batch {
            lines: Vec::new(),
            end: self.offset,
        };
        let mut bytes_read = 0;
        while batch.lines.len() < max_lines && bytes_read < max_bytes {
            let mut line = Vec::new();
            let len = reader.read_until(b'\n', &mut line)?;
            if line.pop() != Some(b'\n') {
                break;
            }
            batch.lines.push(match check_line(&line) {
                Some(json) => Line::Whole(json.to_owned()),
                None => Line::Torn {
                    offset: batch.end,
                    bytes: line,
                },
            });
            batch.end += len as u64;
            bytes_read += len;
        }
        Ok(batch)
    }

    /// Lines from the offset on that have their newline, and their bytes. Holds a buffer of them
    /// at a time.
    pub(super) fn count(&self) -> Result<(u64, u64), SpoolError> {
        self.count_lines()
            .map_err(|source| SpoolError::io("read", &self.path, source))
    }

    fn count_lines(&self) -> io::Result<(u64, u64)> {
        let mut reader = BufReader::with_capacity(64 << 10, &self.file);
        reader.seek(SeekFrom::Start(self.offset))?;
        let (mut lines, mut bytes, mut unfinished) = (0, 0, 0);
        loop {
            let chunk = reader.fill_buf()?;
            let len = chunk.len();
            if len == 0 {
                return Ok((lines, bytes));
            }
            lines += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
            match chunk.iter().rposition(|byte| *byte == b'\n') {
                Some(last) => {
                    bytes += unfinished + last as u64 + 1;
                    unfinished = (len - last - 1) as u64;
                }
                None => unfinished += len as u64,
            }
            reader.consume(len);
        }
    }

    /// The JSON of the first line that is whole. Holds a line at a time.
    pub(super) fn first(&self) -> Result<Option<String>, SpoolError> {
        self.first_whole()
            .map_err(|source| SpoolError::io("read", &self.path, source))
    }

    fn first_whole(&self) -> io::Result<Option<String>> {
        let mut reader = BufReader::with_capacity(64 << 10, &self.file);
        reader.seek(SeekFrom::Start(self.offset))?;
        let mut line = Vec::new();
        loop {
            line.clear();
            reader.read_until(b'\n', &mut line)?;
            if line.pop() != Some(b'\n') {
                return Ok(None);
            }
            if let Some(json) = check_line(&line) {
                return Ok(Some(json.to_owned()));
            }
        }
    }

    /// Notes that everything before `offset` is settled, and removes the file if that is all.
    pub(super) fn advance(&mut self, offset: u64) -> Result<After, SpoolError> {
        lock(&self.file, &self.path)?;
        let after = self.advance_locked(offset);
        let unlocked = flock(&self.file, FlockOperation::Unlock).map_err(io::Error::from);
        after
            .and_then(|after| unlocked.map(|()| after))
            .map_err(|source| SpoolError::io("update", &self.path, source))
    }

    fn advance_locked(&mut self, offset: u64) -> io::Result<After> {
        let meta = self.file.metadata()?;
        if meta.nlink() == 0 {
            return Ok(After::Gone);
        }
        self.offset = offset;
        if meta.len() > offset && self.has_line(offset)? {
            self.file.write_all_at(&head(offset), 0)?;
            return Ok(After::More);
        }
        // With the lock held nobody is writing: what has no newline never will.
        let mut tail = Vec::new();
        (&self.file).seek(SeekFrom::Start(offset))?;
        (&self.file).read_to_end(&mut tail)?;
        fs::remove_file(&self.path)?;
        Ok(if tail.is_empty() {
            After::Gone
        } else {
            After::GoneWithTail {
                offset,
                bytes: tail,
            }
        })
    }

    fn has_line(&self, offset: u64) -> io::Result<bool> {
        let mut reader = BufReader::new(&self.file);
        reader.seek(SeekFrom::Start(offset))?;
        loop {
            let chunk = reader.fill_buf()?;
            if chunk.is_empty() {
                return Ok(false);
            }
            if chunk.contains(&b'\n') {
                return Ok(true);
            }
            let len = chunk.len();
            reader.consume(len);
        }
    }
}

fn ends_line(file: &File, len: u64) -> io::Result<bool> {
    let mut last = [0];
    file.read_exact_at(&mut last, len - 1)?;
    Ok(last == *b"\n")
}

fn head(offset: u64) -> Vec<u8> {
    let digits = format!("{offset:020}");
    format!("{MAGIC} {digits} {}\n", checksum(digits.as_bytes())).into_bytes()
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

fn lock(file: &File, path: &Path) -> Result<(), SpoolError> {
    let deadline = Instant::now() + LOCK_WAIT;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::record::example;
    use super::*;

    /// A file in a directory of its own, which goes with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let name = format!("lanekeeper-file-{}", uuid::Uuid::now_v7());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir(&dir).unwrap();
            Self(dir.join("s.spool"))
        }

        fn append(&self, number: u32) {
            append(&self.0, &example("s", number).to_line()).unwrap();
        }

        fn open(&self) -> SessionFile {
            SessionFile::open(&self.0).unwrap().unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(self.0.parent().unwrap()).unwrap();
        }
    }

    fn numbers(lines: &[Line]) -> Vec<u128> {
        let number = |line: &Line| match line {
            Line::Whole(json) => {
                let record: super::super::Record = serde_json::from_str(json).unwrap();
                Some(record.message_id.as_u128())
            }
            Line::Torn { .. } => None,
        };
        lines.iter().filter_map(number).collect()
    }

    #[test]
    fn lines_come_back_in_order_in_batches_and_the_file_goes_with_the_last() {
        let scratch = Scratch::new();
        (1..=5).for_each(|n| scratch.append(n));
        let mut file = scratch.open();
        let first = file.read(2, usize::MAX).unwrap();
        assert_eq!(numbers(&first.lines), [1, 2]);
        assert_eq!(file.advance(first.end).unwrap(), After::More);
        // Another drain, after a crash: goes on behind the offset.
        let mut file = scratch.open();
        let one = file.read(9, 1).unwrap();
        assert_eq!(numbers(&one.lines), [3]);
        file.advance(one.end).unwrap();
        let rest = file.read(9, usize::MAX).unwrap();
        assert_eq!(numbers(&rest.lines), [4, 5]);
        assert_eq!(file.advance(rest.end).unwrap(), After::Gone);
        assert!(!scratch.0.exists());
        assert!(SessionFile::open(&scratch.0).unwrap().is_none());
    }

    #[test]
    fn what_waits_is_counted_from_the_offset_on_without_what_is_being_written() {
        let scratch = Scratch::new();
        (1..=3).for_each(|n| scratch.append(n));
        let mut file = scratch.open();
        let sent = file.read(1, usize::MAX).unwrap().end;
        file.advance(sent).unwrap();
        let end = fs::metadata(&scratch.0).unwrap().len();
        let mut written = OpenOptions::new().append(true).open(&scratch.0).unwrap();
        // Longer than the buffer.
        written.write_all(&[b'x'; 100_000]).unwrap();
        assert_eq!(file.count().unwrap(), (2, end - sent));
        written.write_all(b"\n").unwrap();
        assert_eq!(file.count().unwrap(), (3, end - sent + 100_001));
    }

    #[test]
    fn the_first_whole_line_is_found_behind_torn_ones() {
        let scratch = Scratch::new();
        fs::write(&scratch.0, [head(HEAD_LEN), b"torn\n\n".to_vec()].concat()).unwrap();
        assert_eq!(scratch.open().first().unwrap(), None);
        scratch.append(7);
        let first: super::super::Record =
            serde_json::from_str(&scratch.open().first().unwrap().unwrap()).unwrap();
        assert_eq!(first.message_id.as_u128(), 7);
    }

    #[test]
    fn what_is_appended_during_a_drain_keeps_the_file() {
        let scratch = Scratch::new();
        scratch.append(1);
        let mut file = scratch.open();
        let batch = file.read(9, usize::MAX).unwrap();
        scratch.append(2);
        assert_eq!(file.advance(batch.end).unwrap(), After::More);
        assert_eq!(numbers(&file.read(9, usize::MAX).unwrap().lines), [2]);
    }

    #[test]
    fn a_slow_drain_does_no_harm_to_the_file_that_came_after_its_own() {
        let scratch = Scratch::new();
        scratch.append(1);
        let (mut fast, mut slow) = (scratch.open(), scratch.open());
        let end = slow.read(9, usize::MAX).unwrap().end;
        assert_eq!(fast.advance(end).unwrap(), After::Gone);
        scratch.append(2);
        assert_eq!(slow.advance(end).unwrap(), After::Gone);
        assert_eq!(
            numbers(&scratch.open().read(9, usize::MAX).unwrap().lines),
            [2]
        );
    }

    #[test]
    fn a_torn_offset_sends_the_file_again_from_its_start() {
        let scratch = Scratch::new();
        (1..=2).for_each(|n| scratch.append(n));
        let mut file = scratch.open();
        file.advance(file.read(1, usize::MAX).unwrap().end).unwrap();
        file.file.write_all_at(b"7", 20).unwrap();
        assert_eq!(
            numbers(&scratch.open().read(9, usize::MAX).unwrap().lines),
            [1, 2]
        );
    }

    #[test]
    fn parallel_appends_and_drains_neither_lose_nor_reorder() {
        const EACH: u128 = 100;
        let scratch = Scratch::new();
        let mut seen: Vec<u128> = Vec::new();
        thread::scope(|scope| {
            let writers: Vec<_> = (0..2_u32)
                .map(|writer| {
                    let scratch = &scratch;
                    scope.spawn(move || (0..100).for_each(|n| scratch.append(writer * 100 + n)))
                })
                .collect();
            loop {
                let done = writers.iter().all(|writer| writer.is_finished());
                if let Some(mut file) = SessionFile::open(&scratch.0).unwrap() {
                    let batch = file.read(7, usize::MAX).unwrap();
                    seen.extend(numbers(&batch.lines));
                    file.advance(batch.end).unwrap();
                } else if done {
                    break;
                }
            }
        });
        let of = |writer: u128| seen.iter().copied().filter(move |n| n / EACH == writer);
        for writer in 0..2 {
            assert!(of(writer).eq(writer * EACH..(writer + 1) * EACH));
        }
        assert_eq!(seen.len() as u128, 2 * EACH);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_crash_at_any_byte_of_an_append_costs_that_append_alone(cut in 0_usize..400) {
            let scratch = Scratch::new();
            scratch.append(1);
            let before = fs::metadata(&scratch.0).unwrap().len();
            scratch.append(2);
            let len = fs::metadata(&scratch.0).unwrap().len();
            let cut = len.saturating_sub(cut as u64);
            OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(cut).unwrap();
            scratch.append(3);
            let batch = scratch.open().read(9, usize::MAX).unwrap();
            // A record that lacks but its newline is whole.
            let expected = match cut {
                _ if cut + 1 >= len => vec![1, 2, 3],
                _ if cut + 1 >= before => vec![1, 3],
                _ => vec![3],
            };
            prop_assert_eq!(numbers(&batch.lines), expected);
        }

        #[test]
        fn any_bytes_in_the_place_of_a_file_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let scratch = Scratch::new();
            fs::write(&scratch.0, &bytes).unwrap();
            let mut file = scratch.open();
            let batch = file.read(99, usize::MAX).unwrap();
            prop_assert!(numbers(&batch.lines).is_empty());
            file.advance(batch.end).unwrap();
            prop_assert!(!scratch.0.exists());
        }

        #[test]
        fn a_torn_tail_is_handed_out_once_nobody_can_be_writing_it(cut in 1_usize..100) {
            let scratch = Scratch::new();
            scratch.append(1);
            let end = fs::metadata(&scratch.0).unwrap().len();
            let torn = &example("s", 2).to_line()[..cut];
            OpenOptions::new().append(true).open(&scratch.0).unwrap().write_all(torn).unwrap();
            let mut file = scratch.open();
            let batch = file.read(9, usize::MAX).unwrap();
            prop_assert_eq!(numbers(&batch.lines), [1]);
            prop_assert_eq!(file.advance(batch.end).unwrap(), After::GoneWithTail { offset: end, bytes: torn.to_vec() });
        }

        /// What a disk may do to a file: whatever line was not touched is still there, in its place.
        #[test]
        fn flipped_bits_cost_the_lines_that_they_hit_alone(
            hits in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 0..6),
        ) {
            const LINES: u32 = 6;
            let scratch = Scratch::new();
            (1..=LINES).for_each(|n| scratch.append(n));
            let mut bytes = fs::read(&scratch.0).unwrap();
            let starts: Vec<usize> = (0..bytes.len())
                .filter(|at| *at >= HEAD_LEN as usize && bytes[at - 1] == b'\n')
                .collect();
            let mut touched = std::collections::BTreeSet::new();
            for (at, bit) in hits {
                let at = at.index(bytes.len() - HEAD_LEN as usize) + HEAD_LEN as usize;
                bytes[at] ^= 1 << bit;
                let line = starts.iter().filter(|start| **start <= at).count();
                touched.insert(line as u128);
                // A newline that is gone joins two lines.
                if starts.contains(&(at + 1)) {
                    touched.insert(line as u128 + 1);
                }
            }
            fs::write(&scratch.0, &bytes).unwrap();
            let mut file = scratch.open();
            let mut seen = Vec::new();
            loop {
                let batch = file.read(2, usize::MAX).unwrap();
                seen.extend(numbers(&batch.lines));
                if file.advance(batch.end).unwrap() != After::More {
                    break;
                }
            }
            prop_assert!(seen.is_sorted());
            let whole = (1..=u128::from(LINES)).filter(|n| !touched.contains(n));
            for number in whole {
                prop_assert!(seen.contains(&number), "{} is lost of {:?}", number, seen);
            }
            prop_assert!(!scratch.0.exists());
        }

        /// As `cat a.spool b.spool > c.spool`, of somebody who mends by hand.
        #[test]
        fn files_that_were_concatenated_keep_every_record_of_both(first in 0_u32..5, second in 0_u32..5) {
            let (one, other) = (Scratch::new(), Scratch::new());
            (1..=first).for_each(|n| one.append(n));
            (1..=second).for_each(|n| other.append(first + n));
            let mut bytes = fs::read(&one.0).unwrap_or_default();
            bytes.extend(fs::read(&other.0).unwrap_or_default());
            fs::write(&one.0, bytes).unwrap();
            let batch = one.open().read(99, usize::MAX).unwrap();
            prop_assert!(numbers(&batch.lines).into_iter().eq(1..=u128::from(first + second)));
        }
    }
}
