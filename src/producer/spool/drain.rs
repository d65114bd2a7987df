//! Sends what the spool holds, session by session, in order.
//!
//! Safe to run anywhere, at any time, more than once at a time: see the module's invariants. A
//! batch is one statement. Where the server refuses a batch for good, its records go one by one, so
//! that only the culprit ends up in `rejected/`; where the culprit's payload was the reason, a
//! stand-in that says so takes its place in the session's log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lanekeeper_core::error::chain;
use lanekeeper_postgres::append::Fate;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::file::{After, Batch, Line, SessionFile};
use super::{Record, Spool, SpoolError};
use crate::Producer;
use crate::error::ProducerError;

/// How much a drain takes on.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimits {
    /// Events per statement.
    pub batch_events: usize,
    /// Bytes per statement; one event is always taken.
    pub batch_bytes: usize,
    /// For one statement.
    pub statement_timeout: Duration,
    /// For the whole drain; none by default.
    pub deadline: Option<Instant>,
}

impl Default for DrainLimits {
    fn default() -> Self {
        Self {
            batch_events: 200,
            batch_bytes: 4 << 20,
            statement_timeout: Duration::from_secs(30),
            deadline: None,
        }
    }
}

impl DrainLimits {
    fn statement_deadline(&self) -> Instant {
        let deadline = Instant::now() + self.statement_timeout;
        self.deadline.map_or(deadline, |end| end.min(deadline))
    }
}

/// What a drain did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DrainReport {
    /// Sessions whose files were sent whole.
    pub sessions: u64,
    /// Sessions that take no more at the moment; their files stay.
    pub sessions_full: u64,
    /// Events appended, duplicates not counted.
    pub events: u64,
    /// Events that were in Postgres already.
    pub duplicates: u64,
    /// Where events went that Postgres will never take.
    pub rejected: Vec<PathBuf>,
    /// Where the remains of unfinished appends went.
    pub torn: Vec<PathBuf>,
}

/// Sends everything that waits, oldest session file first.
///
/// # Errors
/// The first error of Postgres or of the disk, after every file was tried; stops at once where the
/// connection is gone. What was not sent stays for the next drain.
pub async fn drain(
    producer: &Producer,
    spool: &Spool,
    limits: &DrainLimits,
) -> Result<DrainReport, SpoolError> {
    let listed = spool.clone();
    let files = blocking(move || listed.files()).await?;
    let mut drain = Drain {
        producer,
        spool,
        limits,
        report: DrainReport::default(),
    };
    // One session that cannot be sent now keeps back no other.
    let mut failed = None;
    for path in files {
        if let Err(error) = drain.file(&path).await {
            if producer.is_closed() {
                return Err(error);
            }
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(drain.report), Err)
}

/// Sends what waits of one session.
///
/// # Errors
/// As [`drain`].
pub async fn drain_session(
    producer: &Producer,
    spool: &Spool,
    session: &str,
    limits: &DrainLimits,
) -> Result<DrainReport, SpoolError> {
    let mut drain = Drain {
        producer,
        spool,
        limits,
        report: DrainReport::default(),
    };
    drain.file(&spool.path(session)).await?;
    Ok(drain.report)
}

struct Drain<'a> {
    producer: &'a Producer,
    spool: &'a Spool,
    limits: &'a DrainLimits,
    report: DrainReport,
}

/// Whether a session's events can go on.
#[derive(PartialEq, Eq)]
enum Sent {
    All,
    SessionFull,
}

impl Drain<'_> {
    async fn file(&mut self, path: &Path) -> Result<(), SpoolError> {
        let opened = path.to_owned();
        let Some(mut file) = blocking(move || SessionFile::open(&opened)).await? else {
            return Ok(());
        };
        loop {
            let (events, bytes) = (self.limits.batch_events, self.limits.batch_bytes);
            let (read, batch) =
                blocking(move || file.read(events, bytes).map(|batch| (file, batch))).await?;
            if self.batch(&read, &batch).await? == Sent::SessionFull {
                self.report.sessions_full += 1;
                return Ok(());
            }
            let (advanced, after) = blocking(move || {
                let mut file = read;
                file.advance(batch.end).map(|after| (file, after))
            })
            .await?;
            file = advanced;
            match after {
                After::More => {}
                After::Gone => break,
                After::GoneWithTail { offset, bytes } => {
                    self.keep_torn(&file, offset, bytes).await?;
                    break;
                }
            }
        }
        self.report.sessions += 1;
        Ok(())
    }

    async fn batch(&mut self, file: &SessionFile, batch: &Batch) -> Result<Sent, SpoolError> {
        let mut whole = Vec::with_capacity(batch.lines.len());
        for line in &batch.lines {
            match line {
                Line::Whole(json) => whole.push(json.as_str()),
                Line::Torn { offset, bytes } => {
                    self.keep_torn(file, *offset, bytes.clone()).await?;
                }
            }
        }
        match self.send(&whole).await {
            Ok(()) => Ok(Sent::All),
            Err(error) if error.fate() == Fate::Later => Err(error.into()),
            Err(_) => self.one_by_one(&whole).await,
        }
    }

    async fn one_by_one(&mut self, records: &[&str]) -> Result<Sent, SpoolError> {
        for json in records {
            let Err(error) = self.send(&[json]).await else {
                continue;
            };
            let fate = error.fate();
            match fate {
                Fate::Later => return Err(error.into()),
                Fate::SessionFull => return Ok(Sent::SessionFull),
                Fate::Event | Fate::Payload => {}
            }
            let reason = chain(&error);
            let record: Record =
                serde_json::from_str(json).map_err(|source| SpoolError::Decode { source })?;
            let (spool, kept, why) = (self.spool.clone(), record.clone(), reason.clone());
            let path = blocking(move || spool.reject(&kept, &why)).await?;
            if fate == Fate::Payload {
                let stand_in = record.stand_in(&reason, &path);
                let deadline = self.limits.statement_deadline();
                let event = stand_in.as_event();
                match self
                    .producer
                    .enqueue(self.spool.stream.name, &event, deadline)
                    .await
                {
                    Err(error) if error.fate() == Fate::Later => return Err(error.into()),
                    // A stand-in that is refused as well must not hold up the events behind it.
                    Err(error) => tracing::warn!(error = chain(&error), "no stand-in was stored"),
                    Ok(_) => {}
                }
            }
            self.report.rejected.push(path);
        }
        Ok(Sent::All)
    }

    async fn send(&mut self, records: &[&str]) -> Result<(), ProducerError> {
        if records.is_empty() {
            return Ok(());
        }
        let array = format!("[{}]", records.join(","));
        let deadline = self.limits.statement_deadline();
        let sent = self
            .producer
            .enqueue_array(self.spool.stream.name, &array, deadline);
        for one in sent.await? {
            let count = match one.duplicate {
                true => &mut self.report.duplicates,
                false => &mut self.report.events,
            };
            *count += 1;
        }
        Ok(())
    }

    async fn keep_torn(
        &mut self,
        file: &SessionFile,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), SpoolError> {
        let (spool, path) = (self.spool.clone(), file.path().to_owned());
        let kept = blocking(move || spool.keep_torn(&path, offset, &bytes)).await?;
        tracing::warn!(kept = %kept.display(), "the spool held the remains of an unfinished append");
        self.report.torn.push(kept);
        Ok(())
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, SpoolError> {
    spawn_blocking(work)
        .await
        .map_err(|source| SpoolError::Task { source })?
}
