//! Sends what the spool holds, session by session, in order.
//!
//! Safe to run anywhere, at any time, more than once at a time: see the module's invariants. A
//! batch is one statement. Where the server refuses a batch for good, its records go one by one, so
//! that only the culprit ends up in `rejected/`; where the culprit's payload was the reason, a
//! stand-in that says so takes its place in the session's log.
//!
//! A hook call drains too: its session's file up to its own record ([`send_until`]), and with the time
//! that is left what others left behind. Its limits keep that within its budget.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lanekeeper_core::error::chain;
use lanekeeper_postgres::append::{AppendError, Fate};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::file::{After, Batch, Line, Portion, SessionFile, Span};
use super::{Appended, Record, Spool, SpoolError};
use crate::Producer;
use crate::error::ProducerError;

/// How much a drain takes on.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimits {
    /// Events per statement.
    pub batch_events: usize,
    /// Bytes per statement; one event is always taken.
    pub batch_bytes: usize,
    /// A session whose next record is larger is left for another drain. One that is larger than
    /// `spool.max_record_bytes` is set aside all the same.
    pub record_bytes: u64,
    /// For one statement.
    pub statement_timeout: Duration,
    /// For the whole drain; none by default.
    pub deadline: Option<Instant>,
    /// Session files at a time.
    pub files: usize,
    /// Files that were written to since are left: their hook calls are under way, and send them.
    pub untouched_for: Duration,
}

impl Default for DrainLimits {
    fn default() -> Self {
        Self {
            batch_events: 200,
            batch_bytes: 4 << 20,
            record_bytes: u64::MAX,
            statement_timeout: Duration::from_secs(30),
            deadline: None,
            files: usize::MAX,
            untouched_for: Duration::ZERO,
        }
    }
}

impl DrainLimits {
    fn statement_deadline(&self) -> Instant {
        let deadline = Instant::now() + self.statement_timeout;
        self.deadline.map_or(deadline, |end| end.min(deadline))
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|end| Instant::now() >= end)
    }

    fn portion(&self) -> Portion {
        Portion {
            lines: self.batch_events,
            bytes: self.batch_bytes,
            line_bytes: self.record_bytes,
        }
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
/// connection is gone or the time is up. What was not sent stays for the next drain.
pub async fn drain(
    producer: &Producer,
    spool: &Spool,
    limits: &DrainLimits,
) -> Result<DrainReport, SpoolError> {
    let (listed, untouched_for, max) = (spool.clone(), limits.untouched_for, limits.files);
    let files = blocking(move || listed.untouched_files(untouched_for, max)).await?;
    let mut drain = Drain::new(producer, spool, limits);
    // One session that cannot be sent now keeps back no other.
    let mut failed = None;
    for path in files {
        if limits.is_over() {
            break;
        }
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
    let mut drain = Drain::new(producer, spool, limits);
    drain.file(&spool.file_of(session)).await?;
    Ok(drain.report)
}

/// Sends what waits of a record's session up to the record, which it follows.
///
/// # Errors
/// As [`drain`]; the record is in the spool then. Without an error it is in Postgres, or among what
/// was rejected.
pub async fn send_until(
    producer: &Producer,
    spool: &Spool,
    record: &Appended,
    limits: &DrainLimits,
) -> Result<DrainReport, SpoolError> {
    let mut drain = Drain::new(producer, spool, limits);
    drain.until(record).await?;
    Ok(drain.report)
}

struct Drain<'a> {
    producer: &'a Producer,
    spool: &'a Spool,
    limits: &'a DrainLimits,
    report: DrainReport,
}

/// Whether a session's events can go on.
enum Sent {
    All,
    SessionFull(ProducerError),
}

impl<'a> Drain<'a> {
    fn new(producer: &'a Producer, spool: &'a Spool, limits: &'a DrainLimits) -> Self {
        Self {
            producer,
            spool,
            limits,
            report: DrainReport::default(),
        }
    }

    async fn open(&self, path: &Path) -> Result<Option<SessionFile>, SpoolError> {
        let (path, max) = (path.to_owned(), self.spool.max_record_bytes);
        blocking(move || SessionFile::open(&path, max)).await
    }

    async fn read(&self, file: SessionFile) -> Result<(SessionFile, Batch), SpoolError> {
        let portion = self.limits.portion();
        blocking(move || file.read(portion).map(|batch| (file, batch))).await
    }

    async fn file(&mut self, path: &Path) -> Result<(), SpoolError> {
        let Some(mut file) = self.open(path).await? else {
            return Ok(());
        };
        loop {
            if self.limits.is_over() {
                return Ok(());
            }
            let (read, batch) = self.read(file).await?;
            if batch.lines.is_empty() && batch.left_one {
                return Ok(());
            }
            let (sent_file, sent) = self.batch(read, batch.lines).await?;
            if let Sent::SessionFull(_) = sent {
                self.report.sessions_full += 1;
                return Ok(());
            }
            match self.advance(sent_file, batch.end).await? {
                Some(advanced) => file = advanced,
                None => break,
            }
        }
        self.report.sessions += 1;
        Ok(())
    }

    async fn until(&mut self, record: &Appended) -> Result<(), SpoolError> {
        let Some(mut file) = self.open(record.path()).await? else {
            return Ok(());
        };
        while !file.has_sent(record)? {
            if self.limits.is_over() {
                return Err(ProducerError::from(AppendError::TimedOut).into());
            }
            let (read, batch) = self.read(file).await?;
            let (sent_file, sent) = self.batch(read, batch.lines).await?;
            if let Sent::SessionFull(error) = sent {
                return Err(error.into());
            }
            let is_sent = batch.end >= record.end;
            match self.advance(sent_file, batch.end).await {
                Ok(Some(advanced)) => file = advanced,
                Ok(None) => return Ok(()),
                // Whoever drains the file next sends it once more, as a duplicate.
                Err(error) if is_sent => {
                    tracing::debug!(%error, "the spool keeps a record that was sent");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Notes what was sent. `None` where the file is gone with it.
    async fn advance(
        &mut self,
        mut file: SessionFile,
        end: u64,
    ) -> Result<Option<SessionFile>, SpoolError> {
        let advanced = blocking(move || file.advance(end).map(|after| (file, after)));
        let (file, after) = advanced.await?;
        match after {
            After::More => Ok(Some(file)),
            After::Gone => Ok(None),
            After::GoneWithTail(tail) => {
                self.keep_torn(file, tail).await?;
                Ok(None)
            }
        }
    }

    async fn batch(
        &mut self,
        mut file: SessionFile,
        lines: Vec<Line>,
    ) -> Result<(SessionFile, Sent), SpoolError> {
        let mut whole = Vec::with_capacity(lines.len());
        for line in lines {
            match line {
                Line::Whole(json) => whole.push(json),
                Line::Torn(span) => file = self.keep_torn(file, span).await?,
                Line::Oversized(span) => file = self.set_aside(file, span).await?,
            }
        }
        let sent = match self.send(&whole).await {
            Ok(()) => Sent::All,
            Err(error) if error.fate() == Fate::Later => return Err(error.into()),
            Err(error) => self.one_by_one(&whole, error).await?,
        };
        Ok((file, sent))
    }

    /// `error` is what the server said of all of them.
    async fn one_by_one(
        &mut self,
        records: &[String],
        error: ProducerError,
    ) -> Result<Sent, SpoolError> {
        let mut known = (records.len() == 1).then_some(error);
        for json in records {
            let refused = match known.take() {
                Some(error) => Err(error),
                None => self.send(std::slice::from_ref(json)).await,
            };
            let Err(error) = refused else {
                continue;
            };
            let fate = error.fate();
            match fate {
                Fate::Later => return Err(error.into()),
                Fate::SessionFull => return Ok(Sent::SessionFull(error)),
                Fate::Event | Fate::Payload => {}
            }
            let reason = chain(&error);
            let record = read(json)?;
            let (spool, kept, why) = (self.spool.clone(), record.clone(), reason.clone());
            let path = blocking(move || spool.reject(&kept, &why)).await?;
            tracing::warn!(kept = %path.display(), reason, "a spooled record was refused for good");
            if fate == Fate::Payload {
                self.replace(&record.stand_in(&reason, &path)).await?;
            }
            self.report.rejected.push(path);
        }
        Ok(Sent::All)
    }

    /// Keeps a line that no statement may have, and puts a stand-in into its place.
    async fn set_aside(
        &mut self,
        file: SessionFile,
        span: Span,
    ) -> Result<SessionFile, SpoolError> {
        let (spool, deadline) = (self.spool.clone(), self.limits.deadline);
        let aside = blocking(move || {
            let aside = spool.set_aside(&file, span, deadline)?;
            Ok((file, aside))
        });
        let (file, aside) = aside.await?;
        let kept = aside.path.display();
        tracing::warn!(%kept, bytes = span.len, "an oversized record of the spool was set aside");
        match aside.stand_in {
            Some(stand_in) => {
                self.replace(&stand_in).await?;
                self.report.rejected.push(aside.path);
            }
            None => self.report.torn.push(aside.path),
        }
        Ok(file)
    }

    async fn replace(&self, stand_in: &Record) -> Result<(), SpoolError> {
        let deadline = self.limits.statement_deadline();
        let (stream, event) = (self.spool.stream.name, stand_in.as_event());
        match self.producer.enqueue(stream, &event, deadline).await {
            Err(error) if error.fate() == Fate::Later => return Err(error.into()),
            // A stand-in that is refused as well must not hold up the events behind it.
            Err(error) => tracing::warn!(error = chain(&error), "no stand-in was stored"),
            Ok(_) => {}
        }
        Ok(())
    }

    async fn send(&mut self, records: &[String]) -> Result<(), ProducerError> {
        let (stream, deadline) = (self.spool.stream.name, self.limits.statement_deadline());
        if records.is_empty() {
            return Ok(());
        }
        let only = match records {
            [json] => read(json).ok(),
            _ => None,
        };
        let sent = match only {
            // As hook calls mostly are: cheaper, and what is wrong is said of the record itself.
            Some(record) => {
                let event = record.as_event();
                vec![self.producer.enqueue(stream, &event, deadline).await?]
            }
            None => {
                let array = format!("[{}]", records.join(","));
                self.producer
                    .enqueue_array(stream, &array, deadline)
                    .await?
            }
        };
        for one in sent {
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
        file: SessionFile,
        span: Span,
    ) -> Result<SessionFile, SpoolError> {
        let spool = self.spool.clone();
        let kept = blocking(move || {
            let kept = spool.keep_torn(&file, span)?;
            Ok((file, kept))
        });
        let (file, kept) = kept.await?;
        tracing::warn!(kept = %kept.display(), "the spool held the remains of an unfinished append");
        self.report.torn.push(kept);
        Ok(file)
    }
}

fn read(json: &str) -> Result<Record, SpoolError> {
    serde_json::from_str(json).map_err(|source| SpoolError::Decode { source })
}

/// Disk work that must not keep a runtime's threads. A runtime of one thread is a hook call's, which
/// has nothing else to do: to hand over to another thread and back would cost it more than the work.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, SpoolError> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    aside(work).await
}

/// Disk work that begins now and goes on while the caller does something else. Dropped, it goes on to its end.
pub fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> impl Future<Output = Result<T, SpoolError>> {
    let task = spawn_blocking(work);
    async move { task.await.map_err(|source| SpoolError::Task { source })? }
}
