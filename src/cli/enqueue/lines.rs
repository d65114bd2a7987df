//! `enqueue --lines`: JSON lines in order, in batches that are bounded in events and bytes.
//!
//! What is there is sent: a slow writer's lines are not kept waiting for a batch to fill.

use std::borrow::Cow;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio_postgres::Client;
use uuid::Uuid;

use super::MAX_BYTES;
use crate::cli::Failure;
use crate::cli::output::{self, Output};
use crate::config::Config;
use crate::store::ErrorClass;
use crate::store::append::{self, AppendError, NewEvent};

/// Events of one batch, which is one transaction.
const BATCH_EVENTS: usize = 1_000;
/// Bytes after which a batch is complete; a single longer line comes alone.
const BATCH_BYTES: usize = 4 << 20;
const BUFFER_BYTES: usize = 1 << 20;
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// A line of input. `stream`, `seq` and `created_at` are what `tail` adds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    session: Cow<'a, str>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
    message_id: Option<Uuid>,
    dedupe_key: Option<String>,
    priority: Option<i16>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    #[serde(rename = "stream")]
    _stream: Option<IgnoredAny>,
    #[serde(rename = "seq")]
    _seq: Option<IgnoredAny>,
    #[serde(rename = "created_at")]
    _created_at: Option<IgnoredAny>,
}

impl Line<'_> {
    fn as_event(&self) -> NewEvent<'_> {
        NewEvent {
            message_id: self.message_id,
            dedupe_key: self.dedupe_key.as_deref(),
            priority: self.priority.unwrap_or(0),
            headers: self.headers.map(RawValue::get),
            ..NewEvent::new(&self.session, &self.event_type, self.payload.get())
        }
    }
}

/// Why the input was not enqueued to its end.
#[derive(Debug, Error)]
enum LineError {
    #[error("standard input cannot be read after line {after}; what was before is enqueued")]
    Unreadable { after: u64, source: io::Error },
    #[error(
        "line {line} is longer than {MAX_BYTES} bytes; everything before it is enqueued, nothing from it on"
    )]
    TooLong { line: u64 },
    #[error("line {line} is not an event; everything before it is enqueued, nothing from it on")]
    NotAnEvent {
        line: u64,
        source: serde_json::Error,
    },
    #[error("line {line} was refused; everything before it is enqueued, nothing from it on")]
    Refused { line: u64, source: AppendError },
    #[error(
        "the connection broke: whether lines {from} to {to} are enqueued is not known; everything before is"
    )]
    Unknown {
        from: u64,
        to: u64,
        source: AppendError,
    },
}

impl From<LineError> for Failure {
    fn from(error: LineError) -> Self {
        let go_on = |line| format!("correct it and go on from there: tail -n +{line} FILE");
        match error {
            LineError::Unreadable { .. } => Self::failed(error),
            LineError::TooLong { line } | LineError::NotAnEvent { line, .. } => {
                Self::failed(error).advise(go_on(line))
            }
            LineError::Refused { line, ref source } => match source {
                AppendError::Store(store) if store.class() == ErrorClass::Retryable => {
                    Self::later(error).advise(format!("try again from there: tail -n +{line} FILE"))
                }
                refused => {
                    let hint = refused
                        .advice()
                        .map(|hint| format!("{hint}; then "))
                        .unwrap_or_default();
                    Self::failed(error).advise(hint + &go_on(line))
                }
            },
            LineError::Unknown { from, .. } => Self::later(error).advise(format!(
                "lines with a message_id or a dedupe_key are safe to repeat: tail -n +{from} FILE"
            )),
        }
    }
}

pub(super) async fn run(stream: &str, form: Output, config: &Config) -> Result<ExitCode, Failure> {
    let client = crate::cli::connect(config).await?;
    let mut input = Input::new(tokio::io::stdin());
    let mut bulk = Bulk {
        client: &client,
        stream,
        form,
        events: 0,
        duplicates: 0,
    };
    let mut said_at = Instant::now();
    let ended = loop {
        match input.batch().await {
            Ok(batch) if batch.is_empty() => break Ok(()),
            Ok(batch) => {
                if let Err(failure) = bulk.enqueue(&batch).await {
                    break Err(failure);
                }
            }
            Err(error) => break Err(error.into()),
        }
        if said_at.elapsed() > PROGRESS_EVERY {
            output::note(format!("{} events so far", bulk.events));
            said_at = Instant::now();
        }
    };
    let Bulk {
        events, duplicates, ..
    } = bulk;
    let total = format!(
        "{} events enqueued, {duplicates} duplicates",
        events - duplicates
    );
    match form {
        Output::Text => output::line(total)?,
        Output::Json => output::note(total),
    }
    ended.map(|()| ExitCode::SUCCESS)
}

struct Bulk<'a> {
    client: &'a Client,
    stream: &'a str,
    form: Output,
    events: u64,
    duplicates: u64,
}

impl Bulk<'_> {
    /// Enqueues lines in their order, up to the first that is no event or is refused.
    async fn enqueue(&mut self, batch: &[(u64, String)]) -> Result<(), Failure> {
        let mut lines = Vec::with_capacity(batch.len());
        let mut wrong = None;
        for (line, text) in batch {
            match serde_json::from_str::<Line<'_>>(text) {
                Ok(parsed) => lines.push((*line, parsed)),
                Err(source) => {
                    wrong = Some(LineError::NotAnEvent {
                        line: *line,
                        source,
                    });
                    break;
                }
            }
        }
        let events: Vec<(u64, NewEvent<'_>)> = lines
            .iter()
            .map(|(line, parsed)| (*line, parsed.as_event()))
            .collect();
        self.send(&events).await?;
        wrong.map_or(Ok(()), |error| Err(error.into()))
    }

    /// A refusal takes the whole call back: halving finds the line, with those before it enqueued.
    async fn send(&mut self, mut events: &[(u64, NewEvent<'_>)]) -> Result<(), Failure> {
        let mut size = events.len();
        while let [(line, _), ..] = *events {
            let (now, later) = events.split_at(size.min(events.len()));
            let call: Vec<NewEvent<'_>> = now.iter().map(|(_, event)| *event).collect();
            match append::enqueue_many(self.client, self.stream, &call).await {
                Ok(enqueued) => {
                    for one in &enqueued {
                        self.events += 1;
                        self.duplicates += u64::from(one.duplicate);
                        if self.form == Output::Json {
                            output::json_line(one)?;
                        }
                    }
                    events = later;
                }
                Err(source) if is_lost(&source) => {
                    let to = now.last().map_or(line, |(last, _)| *last);
                    return Err(LineError::Unknown {
                        from: line,
                        to,
                        source,
                    }
                    .into());
                }
                Err(AppendError::UnknownStream(refusal)) => {
                    return Err(AppendError::UnknownStream(refusal).into());
                }
                Err(source) if now.len() == 1 || matches!(source, AppendError::Store(_)) => {
                    return Err(LineError::Refused { line, source }.into());
                }
                Err(_) => size = now.len() / 2,
            }
        }
        Ok(())
    }
}

fn is_lost(error: &AppendError) -> bool {
    matches!(error, AppendError::Store(store) if store.class() == ErrorClass::ConnectionLost)
}

/// Lines with their numbers, in batches.
struct Input<R> {
    reader: BufReader<R>,
    /// The number of the last line that was read.
    line: u64,
}

impl<R: AsyncRead + Unpin> Input<R> {
    fn new(input: R) -> Self {
        Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, input),
            line: 0,
        }
    }

    /// The next lines that are not blank: waits for one, and takes those that came with it. Empty
    /// at the end of the input.
    async fn batch(&mut self) -> Result<Vec<(u64, String)>, LineError> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(text) = self.next_line().await? {
            if !text.trim().is_empty() {
                bytes += text.len();
                batch.push((self.line, text));
            }
            let more = self.reader.buffer().contains(&b'\n');
            let full = batch.len() >= BATCH_EVENTS || bytes >= BATCH_BYTES;
            if !batch.is_empty() && (full || !more) {
                break;
            }
        }
        Ok(batch)
    }

    async fn next_line(&mut self) -> Result<Option<String>, LineError> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader)
            .take(MAX_BYTES)
            .read_until(b'\n', &mut bytes)
            .await;
        let unreadable = |source| LineError::Unreadable {
            after: self.line,
            source,
        };
        if read.map_err(unreadable)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if bytes.len() as u64 == MAX_BYTES && !bytes.ends_with(b"\n") {
            return Err(LineError::TooLong { line: self.line });
        }
        String::from_utf8(bytes)
            .map(Some)
            .map_err(|error| LineError::Unreadable {
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

    #[test]
    fn a_mistyped_field_is_refused_and_those_of_tail_are_not() {
        let wrong = r#"{"session":"s","event_type":"t","payload":1,"dedup_key":"k"}"#;
        let error = serde_json::from_str::<Line<'_>>(wrong).err().unwrap();
        assert!(error.to_string().contains("dedup_key"), "{error}");
        let from_tail = r#"{"stream":"runs","session":"s","seq":1,"message_id":null,"event_type":"t",
            "priority":5,"created_at":"2026-01-01T00:00:00Z","payload":null,"headers":null}"#;
        let line: Line<'_> = serde_json::from_str(from_tail).unwrap();
        let event = line.as_event();
        assert_eq!(
            (event.payload, event.priority, event.headers),
            ("null", 5, None)
        );
    }
}
