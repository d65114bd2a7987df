//! Reads an archive file: its content as a whole by its SHA-256, or its events in their order.
//!
//! All of it blocks, and runs where it may.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::digest::Digesting;

const BUFFER: usize = 64 << 10;
/// Events that are handed over at once, and the bytes of their lines from which on there are no more of them.
const EVENTS: usize = 500;
const BYTES: usize = 1 << 20;

/// An event as its file has it: see `write_line` of the module above.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub(super) stream: String,
    pub(super) session: String,
    pub(super) seq: i64,
    pub(super) message_id: Uuid,
    pub(super) event_type: String,
    pub(super) priority: i16,
    pub(super) created_at: Timestamp,
    pub(super) payload: Box<RawValue>,
    pub(super) headers: Option<Box<RawValue>>,
}

/// A file cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("cannot read {}: nothing was restored", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("line {number} of {} is no event of an archive: nothing was restored", path.display())]
    Line {
        path: PathBuf,
        number: u64,
        source: serde_json::Error,
    },
}

/// A file by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) sha256: [u8; 32],
    pub(super) bytes: u64,
}

/// Reads the whole file.
pub(super) fn content(path: &Path) -> Result<Content, ReadError> {
    let failed = |source| ReadError::File {
        path: path.to_owned(),
        source,
    };
    let mut digesting = Digesting::new(File::open(path).map_err(failed)?);
    io::copy(&mut digesting, &mut io::sink()).map_err(failed)?;
    Ok(content_of(digesting))
}

/// Whether the compressed text ends early.
pub(super) fn is_cut_off(path: &Path) -> Result<bool, ReadError> {
    let failed = |source| ReadError::File {
        path: path.to_owned(),
        source,
    };
    let mut text = GzDecoder::new(BufReader::new(File::open(path).map_err(failed)?));
    Ok(match io::copy(&mut text, &mut io::sink()) {
        Ok(_) => false,
        Err(error) => error.kind() == io::ErrorKind::UnexpectedEof,
    })
}

/// Hands over all events, and returns the content of the file that they came from. Ends early where nobody takes them.
pub(super) fn events(path: &Path, to: &mpsc::Sender<Vec<Line>>) -> Result<Content, ReadError> {
    let failed = |source| ReadError::File {
        path: path.to_owned(),
        source,
    };
    let digesting = Digesting::new(File::open(path).map_err(failed)?);
    let mut text = BufReader::with_capacity(BUFFER, GzDecoder::new(digesting));
    let (mut line, mut number) = (Vec::new(), 0);
    let (mut lines, mut bytes) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = text.read_until(b'\n', &mut line).map_err(failed)?;
        if read > 0 {
            number += 1;
            bytes += read;
            lines.push(
                serde_json::from_slice(&line).map_err(|source| ReadError::Line {
                    path: path.to_owned(),
                    number,
                    source,
                })?,
            );
        }
        let is_full = lines.len() == EVENTS || bytes >= BYTES;
        let is_last = read == 0;
        if (is_full || is_last && !lines.is_empty())
            && to.blocking_send(std::mem::take(&mut lines)).is_err()
        {
            break;
        }
        if is_last {
            break;
        }
        if is_full {
            bytes = 0;
        }
    }
    // What may stand behind the compressed text is part of the file.
    let mut digesting = text.into_inner().into_inner();
    io::copy(&mut digesting.by_ref(), &mut io::sink()).map_err(failed)?;
    Ok(content_of(digesting))
}

fn content_of(digesting: Digesting<File>) -> Content {
    Content {
        bytes: digesting.length(),
        sha256: digesting.sha256(),
    }
}
