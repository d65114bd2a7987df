//! `enqueue --lines`: JSON lines in order, a batch in each transaction.

use std::borrow::Cow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lanekeeper_config::Config;
use lanekeeper_postgres::ErrorClass;
use lanekeeper_postgres::append::{self, AppendError, NewEvent};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use thiserror::Error;
use tokio_postgres::Client;
use uuid::Uuid;

use super::input::{Input, InputError};
use crate::Failure;
use crate::output::{self, Output};

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
    #[error(transparent)]
    Input(#[from] InputError),
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
            LineError::Input(error) => Self::failed(error),
            LineError::NotAnEvent { line, .. } => Self::failed(error).advise(go_on(line)),
            LineError::Refused { line, ref source } => match source {
                AppendError::Store(store) if store.class() == ErrorClass::Retryable => {
                    Self::later(error).advise(format!("try again from there: tail -n +{line} FILE"))
                }
                AppendError::QueueFull(full) => {
                    let hint = full.refusal.hint.clone().unwrap_or_default();
                    let again = format!("{hint} Go on from there: tail -n +{line} FILE");
                    Self::later(error).advise(again)
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
    let client = crate::connect(config).await?;
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
            Err(error) => break Err(LineError::from(error).into()),
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
                Err(source) if source.is_outcome_unknown() => {
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

#[cfg(test)]
mod tests {
    use super::*;

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
