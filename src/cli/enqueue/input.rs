//! Reads lines of standard input in batches that are bounded in events and bytes.
//!
//! It hands on the lines that are there, and does not wait for a batch to fill.

use std::io;

use thiserror::Error;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use super::MAX_BYTES;

/// Events of one batch.
const BATCH_EVENTS: usize = 1_000;
/// Bytes after which a batch is complete; a single longer line comes alone.
const BATCH_BYTES: usize = 4 << 20;
const BUFFER_BYTES: usize = 1 << 20;

/// Why the input was not read to its end.
#[derive(Debug, Error)]
pub(super) enum InputError {
    #[error("standard input cannot be read after line {after}; everything up to it is enqueued")]
    Unreadable { after: u64, source: io::Error },
    #[error("line {line} is longer than {MAX_BYTES} bytes; everything before it is enqueued")]
    TooLong { line: u64 },
}

/// Lines with their numbers, in batches.
pub(super) struct Input<R> {
    reader: BufReader<R>,
    /// The number of the last line that was read.
    line: u64,
    /// What ended the input, while the lines before it are handed on.
    broken: Option<InputError>,
}

impl<R: AsyncRead + Unpin> Input<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, input),
            line: 0,
            broken: None,
        }
    }

    /// The next lines that are not blank: waits for one, and takes those that came with it. Empty
    /// at the end of the input.
    ///
    /// # Errors
    /// After every line before it was handed on.
    pub(super) async fn batch(&mut self) -> Result<Vec<(u64, String)>, InputError> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        loop {
            match self.next_line().await {
                Ok(Some(text)) if text.trim().is_empty() => {}
                Ok(Some(text)) => {
                    bytes += text.len();
                    batch.push((self.line, text));
                }
                Ok(None) => return Ok(batch),
                Err(error) if batch.is_empty() => return Err(error),
                Err(error) => {
                    self.broken = Some(error);
                    return Ok(batch);
                }
            }
            let more = self.reader.buffer().contains(&b'\n');
            let full = batch.len() >= BATCH_EVENTS || bytes >= BATCH_BYTES;
            if !batch.is_empty() && (full || !more) {
                return Ok(batch);
            }
        }
    }

    async fn next_line(&mut self) -> Result<Option<String>, InputError> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader)
            .take(MAX_BYTES)
            .read_until(b'\n', &mut bytes)
            .await;
        let unreadable = |source| InputError::Unreadable {
            after: self.line,
            source,
        };
        if read.map_err(unreadable)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if bytes.len() as u64 == MAX_BYTES && !bytes.ends_with(b"\n") {
            return Err(InputError::TooLong { line: self.line });
        }
        String::from_utf8(bytes)
            .map(Some)
            .map_err(|error| InputError::Unreadable {
                after: self.line - 1,
                source: io::Error::new(io::ErrorKind::InvalidData, error),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn batches(input: &[u8]) -> Vec<Vec<(u64, String)>> {
        let mut input = Input::new(input);
        let mut batches = Vec::new();
        loop {
            match input.batch().await.unwrap() {
                batch if batch.is_empty() => return batches,
                batch => batches.push(batch),
            }
        }
    }

    #[tokio::test]
    async fn lines_keep_their_numbers_and_blank_ones_are_passed() {
        let read = batches(b"a\n\n  \nb\r\nc").await.concat();
        assert_eq!(
            read,
            [(1, "a\n"), (4, "b\r\n"), (5, "c")].map(|(line, text)| (line, text.to_owned()))
        );
        assert!(batches(b"\n\n").await.is_empty());
    }

    #[tokio::test]
    async fn batches_are_bounded_in_events_and_in_bytes() {
        let short = "x\n".repeat(BATCH_EVENTS * 2 + 1);
        let sizes: Vec<usize> = batches(short.as_bytes())
            .await
            .iter()
            .map(Vec::len)
            .collect();
        assert_eq!(sizes, [BATCH_EVENTS, BATCH_EVENTS, 1]);
        let long = format!("{}\n", "x".repeat(BATCH_BYTES)).repeat(2);
        assert_eq!(batches(long.as_bytes()).await.len(), 2);
    }

    #[tokio::test]
    async fn lines_of_a_slow_writer_are_not_kept_waiting() {
        let (mut writer, reader) = tokio::io::duplex(64);
        let mut input = Input::new(reader);
        tokio::io::AsyncWriteExt::write_all(&mut writer, b"a\nb\nhalf")
            .await
            .unwrap();
        assert_eq!(input.batch().await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn what_came_before_a_line_that_cannot_be_read_is_handed_on_first() {
        let mut input = Input::new(&b"a\nb\n\xff\nc\n"[..]);
        assert_eq!(input.batch().await.unwrap().len(), 2);
        let error = input.batch().await.unwrap_err();
        assert!(
            matches!(error, InputError::Unreadable { after: 2, .. }),
            "{error:?}"
        );
    }
}
